"""Convolution templates against eager in float64: one line a rule, every structural choice of the table."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from oracle import CHIP, Problem, check, every_point, propose, request, run
from torch import nn

from mkevolve.errors import ProposalError
from mkevolve.propose.template import TemplateProposer

pytestmark = pytest.mark.interp


def values(*shape, seed=0, last=False):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.to(memory_format=torch.channels_last) if last else x


def settled(module):
    """Weights and running statistics that a mistake in folding would show."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            if t.is_floating_point():
                drawn = torch.randn(t.shape, generator=generator)
                t.copy_(drawn.abs() + 0.5 if name.endswith("running_var") else drawn * 0.5)
    return module


class Layer(nn.Module):
    """A convolution, perhaps a norm, and `tail(y, *others)` behind it; `head` before it."""

    def __init__(self, conv, norm=False, tail=F.relu, head=None):
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels, eps=1e-3) if norm else nn.Identity()
        self.head, self.tail = head or nn.Identity(), tail

    def forward(self, x, *others):
        return self.tail(self.norm(self.conv(self.head(x))), *others)


def layer(name, conv, *inputs, norm=False, tail=F.relu, head=None, tolerance=4e-6):
    return Problem(name, settled(Layer(conv, norm, tail, head)), inputs, tolerance)


def pair(channels, *sizes, last=False):
    return tuple((values(n, channels, h, w, seed=n, last=last),) for n, h, w in sizes)


SMALL = ((2, 5, 7), (1, 6, 3))
WINDOWS = {
    "3x3": (3, 1, 1, 1), "stride": (3, 2, 1, 1), "dilated": (3, 1, 2, 2), "even": (2, 2, 0, 1),
    "tall": ((3, 1), (1, 2), (1, 0), (2, 1)), "wide": ((1, 5), 1, (0, 2), 1), "same": (3, 1, "same", 1),
    "same_even": ((2, 4), 1, "same", (1, 1)), "valid": (3, 1, "valid", 1), "lone": (1, 1, 0, 1),
    "lone_stride": (1, 2, 0, 1), "lone_padded": (1, 1, 1, 1),
}  # fmt: skip


def test_windows(tmp_path):
    problems = []
    for place, (name, (kernel, stride, padding, dilation)) in enumerate(WINDOWS.items()):
        conv = nn.Conv2d(5, 6, kernel, stride, padding, dilation)
        problems.append(layer(name, conv, *pair(5, *SMALL, last=place % 2 == 0)))
    assert check(problems, tmp_path, limit=1) == {}


class Projected(nn.Module):
    """The end of a residual block whose other branch is a projection."""

    def __init__(self, stride):
        super().__init__()
        self.second = nn.Conv2d(18, 17, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(17)
        self.projection = nn.Conv2d(3, 17, 1, stride, bias=False)
        self.norm_2 = nn.BatchNorm2d(17)

    def forward(self, y, x):
        return torch.relu(self.norm(self.second(y)) + self.norm_2(self.projection(x)))


def test_structural_choices(tmp_path):
    few = layer("few", nn.Conv2d(3, 17, 3, padding=1, bias=False), *pair(3, (1, 5, 9), (2, 3, 4)), norm=True)
    many = layer("many", nn.Conv2d(18, 140, 3, 2, 1), *pair(18, (1, 5, 5), (2, 3, 4)), norm=True)
    # A chip of one processor, so that few tiles are enough for persistent programs.
    tiny = replace(request(many, limit=1000), chip=replace(CHIP, processors=1))
    offers = {few: every_point(few), many: TemplateProposer().propose(tiny)}
    offers[many] += tuple(c for c in every_point(many) if "split_k" in c.move)
    names = {choice for points in offers.values() for c in points for choice, _ in c.choices}
    assert {"dot", "k_order", "tile", "order", "split_k", "programs", "repack", "norm"} <= names
    inputs = ((values(1, 18, 4, 5), values(1, 3, 8, 10)), (values(2, 18, 3, 3), values(2, 3, 6, 6)))
    joined = Problem("projected", settled(Projected(2)), inputs, 4e-6)
    assert "plus conv 1x1" in propose(joined)[0].source
    offers[joined] = every_point(joined)
    assert run(list(offers.items()), tmp_path) == {}


def test_surroundings(tmp_path):
    x, gate, other = values(2, 18, 4, 5), values(2, 18, 1, 1, seed=2), values(2, 6, 4, 5, seed=3)
    y, gate_2, other_2 = values(1, 18, 3, 3), values(1, 18, 1, 1, seed=2), values(1, 6, 3, 3, seed=3)
    conv = nn.Conv2d(18, 6, 3, padding=1)
    problems = [
        layer("residual", conv, (x, other), (y, other_2), tail=lambda y, r: F.gelu(y + r), norm=True),
        layer("channels_last", conv, (x, other.to(memory_format=torch.channels_last)),
              (y, other_2.to(memory_format=torch.channels_last)), tail=lambda y, r: torch.sigmoid(y) * r),
        layer("shifted_before", conv, (x,), (y,), head=lambda x: F.silu(x + 1.0)),
        layer("norm_before", conv, (x,), (y,), head=nn.Sequential(nn.BatchNorm2d(18), nn.ReLU())),
        layer("two_outputs", conv, (x,), (y,), tail=lambda y: (y, torch.tanh(y))),
        layer("tokens", conv, (x,), (y,), tail=lambda y: y.flatten(2).transpose(1, 2) + 1.0),
        Problem("gated", settled(Gated()), ((x, gate), (y, gate_2)), 4e-6),
        Problem("scaled", settled(Scaled()), ((x, other), (y, other_2)), 4e-6),
    ]  # fmt: skip
    assert check(problems, tmp_path, limit=1) == {}


class Gated(nn.Module):
    """The projection of an inverted residual block: squeeze-and-excitation gates its input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(18, 10, 1, bias=False), nn.BatchNorm2d(10)

    def forward(self, x, gate):
        return self.norm(self.conv(x * torch.sigmoid(gate)))


class Scaled(nn.Module):
    """A parameter behind the convolution, which `prepare` must hand on."""

    def __init__(self):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(18, 6, 3, padding=1), nn.Parameter(torch.ones(6, 1, 1))

    def forward(self, x, other):
        return other + self.conv(x) * self.scale


def test_groups_and_one_dimension(tmp_path):
    line = ((values(2, 5, 11),), (values(1, 5, 6),))
    problems = [
        layer("groups", nn.Conv2d(6, 9, 3, padding=1, groups=3), *pair(6, *SMALL), norm=True),
        layer("groups_wide", nn.Conv2d(34, 36, 1, groups=2), *pair(34, *SMALL), norm=True),
        layer("conv1d", nn.Conv1d(5, 6, 4, 2, 1), *line),
        layer("conv1d_same", nn.Conv1d(5, 6, 4, padding="same", dilation=2), *line),
    ]
    assert check(problems, tmp_path, limit=3) == {}


def test_transposed_convolution_is_named():
    problem = Problem("up", nn.ConvTranspose2d(4, 4, 2), ((values(1, 4, 5, 5),),))
    with pytest.raises(ProposalError, match="conv_transpose2d"):
        propose(problem)


def test_batch_statistics_are_not_folded():
    class Live(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x):
            return F.batch_norm(self.conv(x), None, None, training=True)

    with pytest.raises(ProposalError, match="norm"):
        propose(Problem("live", Live(), ((values(2, 4, 5, 5),),)))


def test_chained_convolutions_are_named():
    chain = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    with pytest.raises(ProposalError, match="conv2d"):
        propose(Problem("chain", chain, ((values(2, 4, 7, 7),),)))


def test_tiles_of_a_single_pixel_or_channel_are_stored_whole(tmp_path):
    """Sizes of 1 have no part in an offset, which then is narrower than the tile."""
    pixel = layer("one_pixel", nn.Conv2d(3, 8, 3), (values(1, 3, 3, 3),))
    channel = layer("one_channel", nn.Conv2d(3, 1, 3), (values(1, 3, 6, 6),))
    assert check([pixel, channel], tmp_path, limit=2) == {}
