"""The rule table of pointwise ops: how each is written in Triton, over operands that are names or numbers.

NaN goes through comparisons as in eager: a lane is replaced only where the comparison holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mkevolve.data.graph import Arg
from mkevolve.errors import ProposalError


@dataclass(frozen=True, slots=True)
class Term:
    """A kernel expression and its dtype; for a number of the graph, the Python type's name."""

    text: str
    dtype: str

    def cast(self, dtype: str) -> str:
        """Text of this value in `dtype`."""
        if self.dtype in (dtype, "int", "float"):
            return self.text
        if self.dtype == "bool" and dtype not in ("float32", "float64"):
            return f"{self.text}.to(tl.{dtype})"
        if dtype == "bool":
            return f"({self.text} != 0)"
        return f"{self.text}.to(tl.{dtype})"


class Operands(Protocol):
    """What a rule may ask for; implemented by `emit.Call`."""

    @property
    def dtype(self) -> str: ...
    def arg(self, index: int, name: str = "", default: Arg = None) -> Arg: ...
    def number(self, index: int, name: str, default: float) -> float: ...
    def term(self, index: int) -> Term: ...
    def text(self, index: int, dtype: str | None = None) -> str: ...
    def promoted(self, *indices: int) -> str: ...
    def channel(self, index: int, axis: int = 1) -> str | None: ...
    def function(self, name: str) -> str: ...
    def place(self, axis: int) -> str: ...


Rule = Callable[[Operands], str]

FUNCTIONS = {
    "_tanh": '''
@triton.jit
def _tanh(x):
    """Odd polynomial near 0, where the exponential form cancels."""
    s = x * x
    t = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - t) / (1.0 + t)
    near = -0.05396825396825397 + s * 0.021869488536155203
    near = x * (1.0 + s * (-0.3333333333333333 + s * (0.13333333333333333 + s * near)))
    return tl.where(tl.abs(x) < 0.25, near, tl.where(x < 0, -far, far))
''',
    "_expm1": '''
@triton.jit
def _expm1(x):
    """exp(x) - 1 without cancellation near 0."""
    return tl.where(tl.abs(x) < 0.5, _tanh(0.5 * x) * (tl.exp(x) + 1.0), tl.exp(x) - 1.0)
''',
    "_log1p": '''
@triton.jit
def _log1p(x):
    """log(1 + x), corrected for the rounding of 1 + x."""
    u = 1.0 + x
    return tl.where((u == 1.0) | (u == float("inf")), x, tl.log(u) * (x / (u - 1.0)))
''',
}
NEEDS = {"_expm1": ("_tanh",)}


def functions(names: set[str]) -> list[str]:
    """Sources of these jit functions and of those they call, callees first."""
    wanted = names | {callee for n in names for callee in NEEDS.get(n, ())}
    return [text.strip("\n") for name, text in FUNCTIONS.items() if name in wanted]


def computed(dtype: str) -> str:
    """The dtype of arithmetic on tensors of `dtype`."""
    if dtype in ("float16", "bfloat16", "float32"):
        return "float32"
    if dtype in ("float64", "bool", "int64", "int32", "int16", "int8", "uint8"):
        return dtype
    raise ProposalError(f"no arithmetic on {dtype}")


def literal(arg: Arg) -> str:
    """A Python number of the graph as kernel text."""
    if isinstance(arg, bool | int):
        return str(arg) if arg >= 0 else f"({arg})"
    if isinstance(arg, float):
        if math.isnan(arg):
            return 'float("nan")'
        if math.isinf(arg):
            return 'float("inf")' if arg > 0 else '(-float("inf"))'
        return repr(arg) if arg >= 0 else f"({arg!r})"
    raise ProposalError(f"argument {arg!r} is not a number")


def _form(text: str, count: int = 1) -> Rule:
    """A rule that fills operands, cast to the dtype of the result, into `text`."""

    def rule(call: Operands) -> str:
        return text.format(*(call.text(i) for i in range(count)))

    return rule


def _compare(operator: str) -> Rule:
    def rule(call: Operands) -> str:
        meet = call.promoted(0, 1)
        return f"{call.text(0, meet)} {operator} {call.text(1, meet)}"

    return rule


def _logical(operator: str) -> Rule:
    def rule(call: Operands) -> str:
        return f"({call.text(0, 'bool')}) {operator} ({call.text(1, 'bool')})"

    return rule


def _scaled(operator: str) -> Rule:
    """add and sub with their `alpha`."""

    def rule(call: Operands) -> str:
        if call.dtype == "bool":
            return f"{call.text(0)} | {call.text(1)}"
        alpha = call.number(2, "alpha", 1)
        right = call.text(1) if alpha == 1 else f"{literal(alpha)} * {call.text(1)}"
        return f"{call.text(0)} {operator} {right}"

    return rule


def _rsub(call: Operands) -> str:
    alpha = call.number(2, "alpha", 1)
    left = call.text(0) if alpha == 1 else f"{literal(alpha)} * {call.text(0)}"
    return f"{call.text(1)} - {left}"


def _mul(call: Operands) -> str:
    return f"{call.text(0)} {'&' if call.dtype == 'bool' else '*'} {call.text(1)}"


def _floor_divide(call: Operands) -> str:
    return _divided(call, "floor")


def _div_mode(call: Operands) -> str:
    return _divided(call, call.arg(2, "rounding_mode"))


def _divided(call: Operands, mode: Arg) -> str:
    if mode is None:
        return f"{call.text(0)} / {call.text(1)}"
    if call.dtype not in ("float32", "float64"):
        quotient = f"({call.text(0)} // {call.text(1)})"
        if mode == "trunc":
            return quotient
        return f"{quotient} - {_borrow(call)}.to(tl.{call.dtype})"
    quotient = f"({call.text(0)} / {call.text(1)})"
    floor = f"tl.floor({quotient})"
    return floor if mode == "floor" else f"tl.where({quotient} < 0, tl.ceil({quotient}), {floor})"


def _borrow(call: Operands) -> str:
    """Whether an integer quotient that Triton rounds to zero lies one above the floor."""
    a, b = call.text(0), call.text(1)
    return f"(({a} % {b} != 0) & (({a} < 0) != ({b} < 0)))"


def _remainder(call: Operands) -> str:
    a, b = call.text(0), call.text(1)
    if call.dtype in ("float32", "float64"):
        return f"{a} - {b} * tl.floor({a} / {b})"
    return f"{a} % {b} + tl.where({_borrow(call)}, {b}, 0)"


def _pow(call: Operands) -> str:
    exponent = call.arg(1)
    if not isinstance(exponent, int | float):
        raise ProposalError("aten.pow.Tensor_Tensor")
    x = call.text(0)
    special = {
        0.5: f"tl.sqrt({x})",
        -0.5: f"tl.rsqrt({x})",
        -1: f"1.0 / {x}",
        -2: f"1.0 / ({x} * {x})",
        0: f"{x} * 0 + 1",
    }
    if exponent in special:
        return special[exponent]
    if exponent == int(exponent) and 1 <= exponent <= 8:
        return " * ".join([x] * int(exponent))
    if exponent == int(exponent):
        raise ProposalError(f"aten.pow with exponent {exponent}")
    return f"tl.exp({literal(float(exponent))} * tl.log({x}))"


def _bounds(call: Operands) -> str:
    """clamp, hardtanh, relu6: lower bound first, then upper, as in eager."""
    return _clamped(
        call, call.arg(1, "min", call.arg(1, "min_val")), call.arg(2, "max", call.arg(2, "max_val"))
    )


def _clamped(call: Operands, low: Arg, high: Arg) -> str:
    text = call.text(0)
    if low is not None:
        bound = call.text(1) if not isinstance(low, int | float) else literal(low)
        text = f"tl.where({text} < {bound}, {bound}, {text})"
    if high is not None:
        bound = call.text(2) if not isinstance(high, int | float) else literal(high)
        text = f"tl.where({text} > {bound}, {bound}, {text})"
    return text


def _hardtanh(call: Operands) -> str:
    return _clamped(call, call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0))


def _leaky_relu(call: Operands) -> str:
    x, slope = call.text(0), call.number(1, "negative_slope", 0.01)
    return f"tl.where({x} > 0, {x}, {x} * {literal(slope)})"


def _prelu(call: Operands) -> str:
    x = call.text(0)
    return f"tl.where({x} > 0, {x}, {x} * {call.channel(1)})"


def _elu(call: Operands) -> str:
    alpha, scale, inner = (
        call.number(i, n, 1.0) for i, n in ((1, "alpha"), (2, "scale"), (3, "input_scale"))
    )
    x, minus = call.text(0), call.function("_expm1")
    low = f"{minus}({x} * {literal(inner)}) * {literal(alpha * scale)}"
    return f"tl.where({x} > 0, {x} * {literal(scale)}, {low})"


def _selu(call: Operands) -> str:
    x, minus = call.text(0), call.function("_expm1")
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return f"tl.where({x} > 0, {x} * {scale}, {minus}({x}) * {scale * alpha})"


def _gelu(call: Operands) -> str:
    x = call.text(0)
    if call.arg(1, "approximate", "none") == "tanh":
        tanh = call.function("_tanh")
        return f"0.5 * {x} * (1.0 + {tanh}(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})))"
    return f"0.5 * {x} * (1.0 + tl.erf({x} * 0.7071067811865476))"


def _softplus(call: Operands) -> str:
    beta, threshold = call.number(1, "beta", 1.0), call.number(2, "threshold", 20.0)
    x, log1p = call.text(0), call.function("_log1p")
    y = x if beta == 1 else f"({x} * {literal(beta)})"
    tail = "" if beta == 1 else f" / {literal(beta)}"
    return f"tl.where({y} > {literal(threshold)}, {x}, {log1p}(tl.exp({y})){tail})"


def _mish(call: Operands) -> str:
    """x * tanh(softplus(x)) = x * n / (n + 2) with n = e^x (e^x + 2)."""
    x = call.text(0)
    n = f"(tl.exp({x}) * (tl.exp({x}) + 2.0))"
    return f"tl.where({x} > 20.0, {x}, {x} * ({n} / ({n} + 2.0)))"


def _where(call: Operands) -> str:
    return f"tl.where({call.text(0, 'bool')}, {call.text(1)}, {call.text(2)})"


def _masked_fill(call: Operands) -> str:
    return f"tl.where({call.text(1, 'bool')}, {call.text(2)}, {call.text(0)})"


def _not(call: Operands) -> str:
    return f"{call.text(0, 'bool')} == 0"


def _cast(call: Operands) -> str:
    """`_to_copy` and `to`: floats stay in the dtype of arithmetic, other targets are exact."""
    term = call.term(0)
    return term.cast(call.dtype)


def _batch_norm(call: Operands) -> str:
    """Eval mode only: a per-channel affine map from running statistics."""
    whole = call.arg(5)
    if isinstance(whole, bool) and whole:
        raise ProposalError("batch norm over batch statistics")
    eps = call.number(7 if isinstance(whole, bool) else 6, "eps", 1e-5)
    weight, bias, mean, var = (call.channel(i) for i in (1, 2, 3, 4))
    text = f"({call.text(0)} - {mean}) * tl.rsqrt({var} + {literal(eps)})"
    text = f"{text} * {weight}" if weight else text
    return f"{text} + {bias}" if bias else text


def _constant(value: str) -> Rule:
    def rule(call: Operands) -> str:
        return f"tl.full([], {value}, tl.{call.dtype if call.dtype != 'bool' else 'int1'})"

    return rule


def _full(call: Operands) -> str:
    return _constant(literal(call.arg(1, "fill_value")))(call)


def _lerp(call: Operands) -> str:
    return f"{call.text(0)} + {call.text(2)} * ({call.text(1)} - {call.text(0)})"


def _addcmul(call: Operands) -> str:
    return f"{call.text(0)} + {literal(call.number(3, 'value', 1))} * {call.text(1)} * {call.text(2)}"


def _triangle(operator: str) -> Rule:
    def rule(call: Operands) -> str:
        diagonal = literal(int(call.number(1, "diagonal", 0)))
        return f"tl.where({call.place(-1)} - {call.place(-2)} {operator} {diagonal}, {call.text(0)}, 0)"

    return rule


_SIGMOID = "1.0 / (1.0 + tl.exp(-{0}))"
_BOTH = ("Tensor", "Scalar")

POINTWISE: dict[str, Rule] = {
    "aten.neg.default": _form("-{0}"),
    "aten.abs.default": _form("tl.abs({0})"),
    "aten.sqrt.default": _form("tl.sqrt({0})"),
    "aten.rsqrt.default": _form("tl.rsqrt({0})"),
    "aten.reciprocal.default": _form("1.0 / {0}"),
    "aten.square.default": _form("{0} * {0}"),
    "aten.exp.default": _form("tl.exp({0})"),
    "aten.exp2.default": _form("tl.exp2({0})"),
    "aten.log.default": _form("tl.log({0})"),
    "aten.log2.default": _form("tl.log2({0})"),
    "aten.sin.default": _form("tl.sin({0})"),
    "aten.cos.default": _form("tl.cos({0})"),
    "aten.erf.default": _form("tl.erf({0})"),
    "aten.floor.default": _form("tl.floor({0})"),
    "aten.ceil.default": _form("tl.ceil({0})"),
    "aten.sign.default": lambda call: (
        "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to(tl.{1})".format(call.text(0), call.dtype)
    ),
    "aten.sigmoid.default": _form(_SIGMOID),
    "aten.silu.default": _form("{0} / (1.0 + tl.exp(-{0}))"),
    "aten.relu.default": _form("tl.where({0} < 0, 0, {0})"),
    "aten.relu6.default": _form("tl.where({0} < 0, 0, tl.where({0} > 6, 6, {0}))"),
    "aten.hardsigmoid.default": _form("tl.where({0} < -3, 0, tl.where({0} > 3, 1, ({0} + 3.0) / 6.0))"),
    "aten.hardswish.default": _form("{0} * tl.where({0} < -3, 0, tl.where({0} > 3, 6, {0} + 3.0)) / 6.0"),
    "aten.tanh.default": lambda call: f"{call.function('_tanh')}({call.text(0)})",
    "aten.expm1.default": lambda call: f"{call.function('_expm1')}({call.text(0)})",
    "aten.log1p.default": lambda call: f"{call.function('_log1p')}({call.text(0)})",
    "aten.hardtanh.default": _hardtanh,
    "aten.clamp.default": _bounds,
    "aten.clamp.Tensor": _bounds,
    "aten.clamp_min.default": lambda call: _clamped(call, call.arg(1, "min"), None),
    "aten.clamp_max.default": lambda call: (
        "tl.where({0} > {1}, {1}, {0})".format(call.text(0), literal(call.arg(1, "max")))
    ),
    "aten.leaky_relu.default": _leaky_relu,
    "aten.prelu.default": _prelu,
    "aten.elu.default": _elu,
    "aten.celu.default": lambda call: (
        "tl.where({0} > 0, {0}, {1} * {2}({0} / {1}))".format(
            call.text(0), literal(call.number(1, "alpha", 1.0)), call.function("_expm1")
        )
    ),
    "aten.selu.default": _selu,
    "aten.gelu.default": _gelu,
    "aten.softplus.default": _softplus,
    "aten.mish.default": _mish,
    "aten.log_sigmoid.default": lambda call: (
        "tl.where({0} < 0, {0}, 0) - {1}(tl.exp(-tl.abs({0})))".format(call.text(0), call.function("_log1p"))
    ),
    "aten.softsign.default": _form("{0} / (1.0 + tl.abs({0}))"),
    **{f"aten.add.{k}": _scaled("+") for k in _BOTH},
    **{f"aten.sub.{k}": _scaled("-") for k in _BOTH},
    **{f"aten.rsub.{k}": _rsub for k in _BOTH},
    **{f"aten.mul.{k}": _mul for k in _BOTH},
    **{f"aten.div.{k}": _form("{0} / {1}", 2) for k in _BOTH},
    **{f"aten.div.{k}_mode": _div_mode for k in _BOTH},
    **{f"aten.remainder.{k}": _remainder for k in _BOTH},
    "aten.floor_divide.default": _floor_divide,
    "aten.pow.Tensor_Scalar": _pow,
    "aten.maximum.default": _form("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", 2),
    "aten.minimum.default": _form("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", 2),
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.addcmul.default": _addcmul,
    **{f"aten.where.{k}": _where for k in ("self", "ScalarOther", "ScalarSelf", "Scalar")},
    **{f"aten.masked_fill.{k}": _masked_fill for k in _BOTH},
    **{
        f"aten.{name}.{k}": _compare(sign)
        for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
        for k in _BOTH
    },
    "aten.logical_and.default": _logical("&"),
    "aten.logical_or.default": _logical("|"),
    "aten.logical_xor.default": _logical("^"),
    "aten.logical_not.default": _not,
    "aten.bitwise_not.default": lambda call: _not(call) if call.dtype == "bool" else f"~{call.text(0)}",
    **{f"aten.{n}.{k}": _form("{0} & {1}", 2) for n in ("bitwise_and", "__and__") for k in _BOTH},
    **{f"aten.{n}.{k}": _form("{0} | {1}", 2) for n in ("bitwise_or", "__or__") for k in _BOTH},
    **{f"aten.{n}.{k}": _form("{0} ^ {1}", 2) for n in ("bitwise_xor", "__xor__") for k in _BOTH},
    "aten.isnan.default": lambda call: "{0} != {0}".format(call.term(0).text),
    "aten._to_copy.default": _cast,
    "aten.to.dtype": _cast,
    "aten.type_as.default": _cast,
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten.full_like.default": _full,
    "aten.full.default": _full,
    "aten.scalar_tensor.default": lambda call: _constant(literal(call.arg(0)))(call),
    "aten.zeros_like.default": _constant("0"),
    "aten.zeros.default": _constant("0"),
    "aten.ones_like.default": _constant("1"),
    "aten.ones.default": _constant("1"),
    "aten.tril.default": _triangle("<="),
    "aten.triu.default": _triangle(">="),
}  # fmt: skip
