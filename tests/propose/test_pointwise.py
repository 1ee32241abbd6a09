"""Pointwise templates against eager in float64: one line an op rule, then shapes, layouts and views."""

import pytest
import torch
import torch.nn.functional as F
from oracle import Problem, check, compile_errors, every_point, function, propose
from torch import nn

from mkevolve.errors import ProposalError

pytestmark = pytest.mark.interp


def values(*shape, seed=0, scale=3.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def positive(*shape, seed=0):
    return values(*shape, seed=seed).abs() + 0.1


SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-6, -1e-6, 80.0, -80.0, 5.0])

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "exp2": torch.exp2, "sin": torch.sin,
    "cos": torch.cos, "erf": torch.erf, "floor": torch.floor, "ceil": torch.ceil, "sign": torch.sign,
    "square": torch.square, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "expm1": torch.expm1,
    "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "hardtanh": lambda x: F.hardtanh(x, -0.5, 2.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7), "selu": F.selu, "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2.0, 10.0),
    "logsigmoid": F.logsigmoid, "softsign": F.softsign, "tanhshrink": F.tanhshrink,
    "clamp": lambda x: x.clamp(-1, 2), "clamp_min": lambda x: x.clamp(min=0.5),
    "clamp_max": lambda x: x.clamp(max=0.5), "add_scalar": lambda x: x + 2, "rsub": lambda x: 2.5 - x,
    "mul_scalar": lambda x: x * -0.5, "div_scalar": lambda x: x / 3, "reciprocal": lambda x: 1 / x,
    "cube": lambda x: x**3, "isnan": torch.isnan, "not": torch.logical_not, "gt": lambda x: x > 0.5,
    "where": lambda x: torch.where(x <= 0, -1.0, x), "masked_fill": lambda x: x.masked_fill(x != x, 4.0),
    "to_int": lambda x: (x != 0).to(torch.int32),
    "to_bool": lambda x: (x > 0).to(torch.float32).to(torch.bool),
    "like": lambda x: x + torch.ones_like(x) + torch.full_like(x, 0.5) - torch.zeros_like(x),
}  # fmt: skip

POSITIVE = {
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log, "log2": torch.log2, "log1p": torch.log1p,
    "pow_half": lambda x: x**0.5, "pow_minus": lambda x: x**-2, "pow_odd": lambda x: x**1.7,
}  # fmt: skip

BINARY = {
    "add": torch.add, "add_alpha": lambda a, b: torch.add(a, b, alpha=0.3), "sub": torch.sub,
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=2), "mul": torch.mul, "div": torch.div,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder, "maximum": torch.maximum, "minimum": torch.minimum, "eq": torch.eq,
    "le": torch.le, "logical": lambda a, b: (a > 0) & (b > 0) | torch.logical_xor(a < 1, b < 1),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3), "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "select": lambda a, b: torch.where(a > b, a, b),
}  # fmt: skip

INTEGER = {
    "int_add": lambda a, b: a + b * 3, "int_floor": lambda a, b: a // b, "int_rem": lambda a, b: a % b,
    "int_float": lambda a, b: a * 0.5 + b, "int_true": lambda a, b: a / b, "int_compare": lambda a, b: a < b,
    "int_bits": lambda a, b: (a & b) ^ (a | 7), "int_clamp": lambda a, b: (a - b).clamp(-3, 4),
}  # fmt: skip


def together(name, table, *inputs):
    """All rules of a table as one problem with one output a rule (exporting is what takes time)."""
    return function(name, lambda *args: tuple(call(*args) for call in table.values()), *inputs)


def rules():
    x, y = values(97), values(11, seed=3)
    yield together("unary", UNARY, (torch.cat([x, SPECIAL]),), (y,), (SPECIAL[:9],))
    yield together("positive", POSITIVE, (positive(97),), (positive(11),))
    yield together("binary", BINARY, (x, values(97, seed=4)), (y, values(11, seed=5)))
    ints = torch.arange(-40, 57), torch.tensor([3, -5, 7, -1]).repeat(25)[:97]
    yield together("integer", INTEGER, ints, (ints[0][:7], ints[1][:7]))


def shapes():
    image, other = (values(4, 6, 10, 12),), (values(1, 6, 5, 7, seed=1),)
    last = torch.channels_last
    yield function(
        "broadcast", lambda a, b: a * b + b.exp(), (image[0], values(6, 1, 1)), (other[0], values(6, 1, 1))
    )
    yield function("outer", lambda a, b: a[:, None] + b, (values(33), values(17)), (values(2), values(5)))
    yield function(
        "gate",
        lambda a, b: a * torch.sigmoid(b),
        (image[0], values(4, 6, 1, 1)),
        (other[0], values(1, 6, 1, 1)),
    )
    yield function(
        "channels_last",
        lambda a: F.silu(a) + a,
        (image[0].to(memory_format=last),),
        (other[0].to(memory_format=last),),
    )
    yield function(
        "several",
        lambda a, b: (a + b, (a * b).relu(), b.exp()),
        (values(9, 7), values(7)),
        (values(3, 7), values(7)),
    )
    yield function(
        "transposed",
        lambda a, b: a.transpose(0, 1) * b,
        (values(9, 7), values(7, 9)),
        (values(4, 5), values(5, 4)),
    )
    yield function(
        "heads",
        lambda a: a.view(a.shape[0], a.shape[1], 2, 8).permute(0, 2, 1, 3).contiguous().exp(),
        (values(3, 9, 16),),
        (values(1, 5, 16),),
    )
    yield function(
        "chunk", lambda a: (lambda p, q: p * F.silu(q))(*a.chunk(2, -1)), (values(9, 32),), (values(2, 32),)
    )
    yield function(
        "slice", lambda a: a[:, 2:] + a[:, :-2].relu() + a[:, 1:2], (values(9, 32),), (values(2, 32),)
    )
    yield function(
        "expanded",
        lambda a, b: a.unsqueeze(1).expand(-1, 4, -1) + b,
        (values(3, 5), values(3, 4, 5)),
        (values(2, 5), values(2, 4, 5)),
    )
    yield function(
        "merged",
        lambda a, b: a.flatten(0, 1) * b,
        (values(3, 5, 8), values(15, 8)),
        (values(2, 4, 8), values(8, 8)),
    )
    yield function("triangle", lambda a: torch.tril(a) + torch.triu(a, 1), (values(9, 9),), (values(5, 5),))
    yield function(
        "scalar", lambda a, b: a * b, (values(9, 7), torch.tensor(2.5)), (values(3, 7), torch.tensor(0.5))
    )
    yield Problem("batch_norm", norm(), (image, other))
    yield Problem(
        "batch_norm_last",
        nn.Sequential(norm(), nn.ReLU()),
        ((image[0].to(memory_format=last),), (other[0].to(memory_format=last),)),
    )
    yield Problem("prelu", nn.PReLU(6), (image, other))


def norm():
    made = nn.BatchNorm2d(6)
    made.running_mean.copy_(values(6, seed=7))
    made.running_var.copy_(positive(6, seed=8))
    return made


def test_every_rule_equals_eager(tmp_path):
    assert check(list(rules()), tmp_path, limit=1) == {}


def test_shapes_layouts_and_views_at_every_point(tmp_path):
    assert check(list(shapes()), tmp_path) == {}


def test_same_request_gives_the_same_sources():
    problem = next(iter(shapes()))
    assert [c.source for c in every_point(problem)] == [c.source for c in every_point(problem)]


def test_uncovered_op_is_named():
    problem = function("sorted", lambda a: a.exp().cumsum(0), (values(9),))
    with pytest.raises(ProposalError, match=r"aten\.cumsum"):
        propose(problem)


def test_every_rule_compiles():
    assert compile_errors([(p, propose(p, 1)) for p in rules()]) == {}


def single():
    """Sizes of 1 have no coordinate, and so no mask of their own."""
    yield function("counter", lambda n: n + 1, (torch.tensor(3),))
    yield function("one", lambda a: a.exp() * 2, (values(1, 1, 1),))
    yield function("one_row", lambda a, b: a * b, (values(1, 24), values(24)))
    yield function("one_column", lambda a, b: a * b, (values(24, 1), values(24, 1)))


def test_tiles_of_sizes_of_one_stay_inside(tmp_path):
    assert check(list(single()), tmp_path) == {}
