"""Row reductions against eager in float64: every rule, dimension, layout, in registers and in loops."""

import pytest
import torch
import torch.nn.functional as F
from oracle import Problem, check, compile_errors, every_point, function, propose, subgraph
from test_pointwise import values
from torch import nn

from mkevolve.errors import ProposalError

pytestmark = pytest.mark.interp

X, Y = (values(5, 70),), (values(3, 33, seed=1),)
CUBE, SMALL = (values(3, 6, 20),), (values(2, 6, 7, seed=1),)

ROWS = {
    "sum": lambda x: x.sum(-1), "sum_all": lambda x: x.sum(), "mean": lambda x: x.mean(-1, keepdim=True),
    "mean_first": lambda x: x.mean(0), "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(0, keepdim=True),
    "var": lambda x: x.var(-1), "var_biased": lambda x: x.var(-1, unbiased=False), "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.var_mean(x, -1), "norm": lambda x: x.norm(dim=-1),
    "norm_1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1), "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1), "softmax_first": lambda x: x.softmax(0),
    "normalize": lambda x: F.normalize(x, dim=-1), "shifted_var": lambda x: (x + 1000).var(-1),
    "max": lambda x: x.max(), "sum_int": lambda x: (x > 0).sum(-1),
}  # fmt: skip


def layer_norm(size, **options):
    return affine(nn.LayerNorm(size, **options))


def affine(module):
    for k, p in enumerate(module.parameters()):
        p.data.copy_(values(*p.shape, seed=40 + k))
    return module


class Residual(nn.Module):
    """Pointwise before and after the norm; the sum is an output too."""

    def __init__(self):
        super().__init__()
        self.norm = layer_norm(70)

    def forward(self, x, r):
        y = x + r
        return y, F.silu(self.norm(y)) * 2


class ChannelsFirst(nn.Module):
    """A norm over channels of an image, as in ConvNeXt."""

    def __init__(self):
        super().__init__()
        self.norm = layer_norm(6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous()


class Attention(nn.Module):
    """Softmax with scale, mask and cast around it."""

    def forward(self, x, mask):
        return (x * 0.125 + mask).softmax(-1) + 0.5


def problems():
    last = torch.channels_last
    image, other = values(2, 6, 5, 9), values(1, 6, 4, 3, seed=2)
    for name, call in ROWS.items():
        yield function(name, call, X, Y, tolerance=3e-6 if "shifted" not in name else 1e-4)
    yield function("sum_middle", lambda x: x.sum(1), CUBE, SMALL)
    yield function("mean_outer", lambda x: x.mean((0, 2)), CUBE, SMALL)
    yield function("softmax_middle", lambda x: x.softmax(1), CUBE, SMALL)
    yield function("mean_image", lambda x: x.mean((2, 3), keepdim=True), (image,), (other,))
    yield function(
        "mean_last",
        lambda x: x.mean((2, 3)),
        (image.to(memory_format=last),),
        (other.to(memory_format=last),),
    )
    yield function(
        "twice", lambda x: (x.softmax(-1) * x).sum(-1, keepdim=True) + x.mean(-1, keepdim=True), X, Y
    )
    yield function("centred", lambda x: (x - x.mean(-1, keepdim=True)).abs().mean(-1), X, Y)
    yield function("infinite", lambda x: x.masked_fill(x < 1.0, -float("inf")).softmax(-1), X, Y)
    yield Problem("layer_norm", layer_norm(70), (X, (values(3, 70),)))
    yield Problem("layer_norm_plain", layer_norm(70, elementwise_affine=False), (X, (values(3, 70),)))
    yield Problem("layer_norm_two", layer_norm((6, 20)), (CUBE, (values(2, 6, 20),)))
    yield Problem("layer_norm_bias", layer_norm(20, bias=False), (CUBE, (values(1, 5, 20),)))
    yield Problem(
        "residual", Residual(), ((*X, values(5, 70, seed=9)), (values(3, 70), values(3, 70, seed=8)))
    )
    yield Problem("channels_first", ChannelsFirst(), ((image,), (other,)))
    yield Problem("rms_norm", affine(nn.RMSNorm(70, eps=1e-6)), (X, (values(3, 70),)))
    yield Problem("group_norm", nn.Sequential(affine(nn.GroupNorm(2, 6)), nn.SiLU()), ((image,), (other,)))
    yield Problem(
        "group_norm_last",
        affine(nn.GroupNorm(3, 6)),
        ((image.to(memory_format=last),), (other.to(memory_format=last),)),
    )
    yield Problem("instance_norm", affine(nn.GroupNorm(6, 6)), ((image,), (other,)))
    yield Problem(
        "attention", Attention(), ((values(2, 3, 7, 7), values(7, 7)), (values(1, 3, 5, 5), values(5, 5)))
    )


def test_every_rule_and_point_equals_eager(tmp_path):
    assert check(list(problems()), tmp_path) == {}


def halves():
    for dtype, tolerance in ((torch.bfloat16, 5e-3), (torch.float16, 6e-4)):
        x, y = values(5, 70).to(dtype), values(3, 70).to(dtype)
        yield Problem(f"residual_{dtype}", Residual().to(dtype), ((x, x * 0.5), (y, y * 2)), tolerance)
        yield function(f"softmax_{dtype}", lambda x: x.softmax(-1), (x,), (y,), tolerance=tolerance)
        yield function(f"amax_{dtype}", lambda x: x.amax(0), (x,), (y,), tolerance=tolerance)


def test_half_precision_rounds_once(tmp_path):
    assert check(list(halves()), tmp_path) == {}


def test_long_rows_are_offered_in_loops_only():
    problem = function("long", lambda x: x.softmax(-1), (torch.zeros(2, 40000),), Y)
    rows = {dict(c.choices)["row"] for c in every_point(problem)}
    assert rows == {"two_pass", "online"}


def test_reductions_over_different_rows_are_named():
    problem = function("mixed", lambda x: x.softmax(-1).sum(0), X, Y)
    with pytest.raises(ProposalError, match=r"aten\.sum\.dim_IntList over other rows than aten\.softmax"):
        propose(problem)


def test_layer_norm_plain_has_no_pointer_for_absent_parameters():
    problem = Problem("plain", layer_norm(70, elementwise_affine=False), (X,))
    assert not subgraph(problem).target.params
    assert "p0" not in propose(problem, 1)[0].source


def test_points_compile():
    chosen = {"var", "softmax", "residual", "channels_first", "sum_all", "amax", "group_norm_last"}
    assert compile_errors([(p, every_point(p)) for p in problems() if p.name in chosen]) == {}


def single():
    """One row, or rows of one element, for blocks of more than one."""
    yield function("one_row", lambda x: x.softmax(-1), (values(1, 40),))
    yield function("one_sum", lambda x: x.sum(-1, keepdim=True) * 2, (values(1, 40),))
    yield function("one_element", lambda x: (x.sum(-1, keepdim=True) * 2, x - x.mean()), (values(1),))


def test_rows_of_sizes_of_one_stay_inside(tmp_path):
    assert check(list(single()), tmp_path) == {}


def test_a_single_row_is_stored_once_whatever_the_rows_of_a_block():
    """Height 1 leaves the rows of a block without coordinates: the number of an element needs their mask."""
    for offer in every_point(function("one_row", lambda x: x.softmax(-1), (values(1, 40),))):
        stores = [line for line in offer.source.splitlines() if "tl.store" in line]
        assert stores
        assert all("(r < 1)" in line for line in stores)
