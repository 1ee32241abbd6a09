"""Matrix product templates against eager in float64: ops, layouts, surroundings, structural variants."""

import pytest
import torch
import torch.nn.functional as F
from oracle import CHIP, Problem, check, every_point, function, propose, run, subgraph
from torch import nn

from mkevolve.data.candidate import Candidate
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.ops.matmul import MatmulFamily

pytestmark = pytest.mark.interp


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(24, 40, bias=False), nn.Linear(24, 40, bias=False)

    def forward(self, x):
        return F.silu(self.a(x)) * self.b(x)


class Chunked(nn.Module):
    """Gate and value as halves of one product."""

    def __init__(self, bias):
        super().__init__()
        self.both = nn.Linear(24, 80, bias=bias)

    def forward(self, x):
        a, b = self.both(x).chunk(2, dim=-1)
        return F.silu(a) * b


class Head(nn.Module):
    """A gate before the product; scale, activation and residual behind it."""

    def __init__(self):
        super().__init__()
        self.out, self.scale = nn.Linear(24, 20), nn.Parameter(values(20))

    def forward(self, x, gate, residual):
        return residual + F.relu(self.out(F.gelu(x) * gate)) * self.scale


class Projected(nn.Module):
    """Splits the result over heads, as attention does."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(24, 36)

    def forward(self, x):
        b, t, _ = x.shape
        return self.q(x).view(b, t, 3, 12).transpose(1, 2).contiguous()


class Merged(nn.Module):
    """Merges heads before the product: the operand is a view that eager copies."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(36, 20)

    def forward(self, x, residual):
        b, _, t, _ = x.shape
        return residual + self.out(x.transpose(1, 2).reshape(b, t, 36))


def linear(name, rows, *sizes, after=()):
    return Problem(name, nn.Sequential(nn.Linear(*sizes), *after), rows)


def modules():
    yield linear("no_bias", ((values(70, 33),), (values(17, 33),)), 33, 18, False)
    small = (values(1, 18, 24, seed=1), values(1, 18, 1, seed=2), values(1, 18, 20, seed=3))
    yield Problem("head", Head(), ((values(2, 9, 24), values(2, 9, 1), values(2, 9, 20)), small))
    yield Problem("projected", Projected(), ((values(2, 19, 24),), (values(3, 6, 24),)))
    yield Problem("chunked", Chunked(True), ((values(2, 19, 24),), (values(1, 21, 24),)))
    yield Problem("chunked_few", Chunked(False), ((values(3, 24),), (values(1, 24),)))
    merged = (values(1, 3, 5, 12, seed=4), values(1, 5, 20, seed=5))
    yield Problem("merged", Merged(), ((values(2, 3, 19, 12), values(2, 19, 20)), merged))
    yield linear("few_rows", ((values(3, 80),), (values(2, 80),)), 80, 30)
    yield linear("one_row", ((values(1, 80),), (values(1, 80, seed=1),)), 80, 30, after=(nn.SiLU(),))
    yield linear("one_column", ((values(5, 40, 70),), (values(2, 9, 70),)), 70, 1, after=(nn.Flatten(0),))


def scores(q, k):
    return q @ k.transpose(-1, -2) * 0.25


def einsum(equation):
    return lambda a, b: torch.einsum(equation, a, b)


def functions():
    yield function("mm", torch.mm, (values(40, 24), values(24, 33)), (values(7, 24), values(24, 33)))
    yield function("mm_transposed", lambda a, b: a.t() @ b.t(), (values(24, 40), values(33, 24)))
    yield function(
        "bmm", torch.bmm, (values(3, 20, 24), values(3, 24, 18)), (values(2, 5, 24), values(2, 24, 18))
    )
    sizes = ((2, 3, 19, 16), (2, 3, 21, 16)), ((1, 3, 5, 16), (1, 3, 7, 16))
    yield function("scores", scores, *((values(*a), values(*b, seed=1)) for a, b in sizes))
    yield function("batch_broadcast", torch.matmul, (values(4, 1, 18, 24), values(3, 24, 17)))
    yield function("shared_right", torch.matmul, (values(2, 3, 18, 24), values(24, 17)))
    yield function(
        "shared_left", torch.matmul, (values(18, 24), values(3, 24, 17)), (values(18, 24), values(2, 24, 9))
    )
    scaled = lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2)  # noqa: E731
    yield function("addmm", scaled, (values(1, 33), values(40, 24), values(24, 33)))
    yield function("baddbmm", torch.baddbmm, (values(3, 20, 18), values(3, 20, 24), values(3, 24, 18)))
    yield function("einsum", einsum("bqhd,bkhd->bhqk"), (values(2, 18, 3, 16), values(2, 21, 3, 16)))
    yield function("einsum_two_inner", einsum("bthd,hdo->bto"), (values(2, 18, 3, 16), values(3, 16, 20)))
    yield function("vector", lambda a, b: torch.relu(a @ b), (values(3, 20, 24), values(24)))
    yield function("sliced", lambda a, b: a[:, 8:32] @ b[2:26].exp(), (values(40, 48), values(30, 20)))
    yield function(
        "two_outputs",
        lambda a, b, c: (a @ b, torch.tanh(a @ c)),
        (values(20, 24), values(24, 18), values(24, 18)),
    )
    half = values(40, 24).half(), values(24, 33).half(), values(33).half()
    yield function("half", lambda a, b, c: F.silu(a @ b + c), half, tolerance=2e-3)


def test_every_op_and_layout_at_its_best_guess(tmp_path):
    assert check([*modules(), *functions()], tmp_path, limit=1) == {}


def test_single_and_combined_structural_choices(tmp_path):
    long = linear("long", ((values(3, 13, 200),), (values(1, 5, 200),)), 200, 40, after=(nn.GELU(),))
    gated = Problem("gated", Gated(), ((values(2, 19, 24),), (values(1, 21, 24),)))
    offers = [(p, every_point(p)) for p in (long, gated)]
    moves = {c.move.split(":")[0] for _, found in offers for c in found if c.move}
    assert moves == {"method", "dot", "weight", "order", "split_k", "tail", "epilogue"}
    batch = function("batch", lambda a, b: torch.relu(a @ b), (values(3, 20, 200), values(3, 200, 18)))
    for problem, change in (
        (long, {"split_k": 8, "weight": "n_fastest", "order": "grouped", "tail": "masked"}),
        (long, {"persistent": 2, "order": "column", "weight": "k_fastest"}),
        (gated, {"split_k": 2, "persistent": 1}),
        (batch, {"split_k": 4}),
        (batch, {"persistent": 2, "epilogue": "separate"}),
        (batch, {"method": "rows"}),
        (Problem("chunked", Chunked(True), ((values(2, 19, 24),),)), {"split_k": 2, "tail": "masked"}),
    ):
        offers.append((problem, [_at(problem, change)]))
    assert run(offers, tmp_path) == {}


def _at(problem, change):
    family = MatmulFamily()
    match = family.match(subgraph(problem))
    point = (
        {k: v[0] for k, v in family.choices(match, CHIP, Precision.IEEE).items()} | {"method": "dot"} | change
    )
    return Candidate(family.render(match, point), "template", choices=tuple(point.items()))


def test_choices_that_exclude_each_other_have_no_source():
    family = MatmulFamily()
    match = family.match(subgraph(linear("plain", ((values(20, 200),),), 200, 40)))
    point = {k: v[0] for k, v in family.choices(match, CHIP, Precision.IEEE).items()}
    assert family.render(match, point | {"split_k": 2, "epilogue": "separate"}) is None
    assert family.render(match, point | {"split_k": 2}) is not None


def test_precision_policy_decides_what_a_dot_may_say():
    family = MatmulFamily()
    match = family.match(subgraph(linear("policy", ((values(20, 24),),), 24, 40)))
    assert family.choices(match, CHIP, Precision.IEEE)["dot"] == ("tf32x3", "ieee")
    assert family.choices(match, CHIP, Precision.TF32)["dot"][0] == "tf32"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda a, b: torch.softmax(a @ b, -1), r"aten\.softmax\.int beside aten\.(mm|matmul)"),
        (lambda a, b: (a @ b) @ b, r"twice, of different operands"),
        (lambda a, b: (a @ b)[:, :3], r"aten\.slice\.Tensor after the main op"),
        (lambda a, b: (a @ b).expand(2, 24, 24) + 1, r"aten\.expand\.default after the main op"),
        (lambda a, b: a.double() @ b.double(), r"on float64"),
    ],
)
def test_what_is_not_covered_is_named(call, reason):
    with pytest.raises(ProposalError, match=reason):
        propose(function("refused", call, (values(24, 24), values(24, 24))))
