"""The rule table of pointwise ops: how each is written in Triton, over operands that are names or numbers."""

from mkevolve.data.graph import Arg
from mkevolve.errors import ProposalError
from mkevolve.propose.activations import ACTIVATIONS
from mkevolve.propose.terms import Operands, Rule, Term, computed, form, literal

__all__ = ["POINTWISE", "Term", "computed", "literal"]


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


_BOTH = ("Tensor", "Scalar")

POINTWISE: dict[str, Rule] = {
    **ACTIVATIONS,
    "aten.neg.default": form("-{0}"),
    "aten.abs.default": form("tl.abs({0})"),
    "aten.sqrt.default": form("tl.sqrt({0})"),
    "aten.rsqrt.default": form("tl.rsqrt({0})"),
    "aten.reciprocal.default": form("1.0 / {0}"),
    "aten.square.default": form("{0} * {0}"),
    "aten.exp.default": form("tl.exp({0})"),
    "aten.exp2.default": form("tl.exp2({0})"),
    "aten.log.default": form("tl.log({0})"),
    "aten.log2.default": form("tl.log2({0})"),
    "aten.sin.default": form("tl.sin({0})"),
    "aten.cos.default": form("tl.cos({0})"),
    "aten.erf.default": form("tl.erf({0})"),
    "aten.floor.default": form("tl.floor({0})"),
    "aten.ceil.default": form("tl.ceil({0})"),
    "aten.sign.default": lambda call: "tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0)).to(tl.{1})".format(
        call.text(0), call.dtype
    ),
    "aten.tanh.default": lambda call: f"{call.function('_tanh')}({call.text(0)})",
    "aten.expm1.default": lambda call: f"{call.function('_expm1')}({call.text(0)})",
    "aten.log1p.default": lambda call: f"{call.function('_log1p')}({call.text(0)})",
    **{f"aten.add.{k}": _scaled("+") for k in _BOTH},
    **{f"aten.sub.{k}": _scaled("-") for k in _BOTH},
    **{f"aten.rsub.{k}": _rsub for k in _BOTH},
    **{f"aten.mul.{k}": _mul for k in _BOTH},
    **{f"aten.div.{k}": form("{0} / {1}", 2) for k in _BOTH},
    **{f"aten.div.{k}_mode": _div_mode for k in _BOTH},
    **{f"aten.remainder.{k}": _remainder for k in _BOTH},
    "aten.floor_divide.default": _floor_divide,
    "aten.pow.Tensor_Scalar": _pow,
    "aten.maximum.default": form("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", 2),
    "aten.minimum.default": form("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", 2),
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
    **{f"aten.{n}.{k}": form("{0} & {1}", 2) for n in ("bitwise_and", "__and__") for k in _BOTH},
    **{f"aten.{n}.{k}": form("{0} | {1}", 2) for n in ("bitwise_or", "__or__") for k in _BOTH},
    **{f"aten.{n}.{k}": form("{0} ^ {1}", 2) for n in ("bitwise_xor", "__xor__") for k in _BOTH},
    "aten.isnan.default": lambda call: "{0} != {0}".format(call.term(0).text),
    "aten._to_copy.default": _cast,
    "aten.to.dtype": _cast,
    "aten.type_as.default": _cast,
    "aten.full_like.default": _full,
    "aten.full.default": _full,
    "aten.scalar_tensor.default": lambda call: _constant(literal(call.arg(0)))(call),
    "aten.zeros_like.default": _constant("0"),
    "aten.zeros.default": _constant("0"),
    "aten.ones_like.default": _constant("1"),
    "aten.ones.default": _constant("1"),
    "aten.tril.default": _triangle("<="),
    "aten.triu.default": _triangle(">="),
}
