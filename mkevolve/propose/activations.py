"""Rules of activations, bounds and eval-mode batch norm.

NaN goes through comparisons as in eager: a lane is replaced only where the comparison holds.
"""

from mkevolve.data.graph import Arg
from mkevolve.errors import ProposalError
from mkevolve.propose.terms import Operands, Rule, form, literal


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


ACTIVATIONS: dict[str, Rule] = {
    "aten.sigmoid.default": form("1.0 / (1.0 + tl.exp(-{0}))"),
    "aten.silu.default": form("{0} / (1.0 + tl.exp(-{0}))"),
    "aten.relu.default": form("tl.where({0} < 0, 0, {0})"),
    "aten.relu6.default": form("tl.where({0} < 0, 0, tl.where({0} > 6, 6, {0}))"),
    "aten.hardsigmoid.default": form("tl.where({0} < -3, 0, tl.where({0} > 3, 1, ({0} + 3.0) / 6.0))"),
    "aten.hardswish.default": form("{0} * tl.where({0} < -3, 0, tl.where({0} > 3, 6, {0} + 3.0)) / 6.0"),
    "aten.hardtanh.default": _hardtanh,
    "aten.clamp.default": _bounds,
    "aten.clamp.Tensor": _bounds,
    "aten.clamp_min.default": lambda call: _clamped(call, call.arg(1, "min"), None),
    "aten.clamp_max.default": lambda call: "tl.where({0} > {1}, {1}, {0})".format(
        call.text(0), literal(call.arg(1, "max"))
    ),
    "aten.leaky_relu.default": _leaky_relu,
    "aten.prelu.default": _prelu,
    "aten.elu.default": _elu,
    "aten.celu.default": lambda call: "tl.where({0} > 0, {0}, {1} * {2}({0} / {1}))".format(
        call.text(0), literal(call.number(1, "alpha", 1.0)), call.function("_expm1")
    ),
    "aten.selu.default": _selu,
    "aten.gelu.default": _gelu,
    "aten.softplus.default": _softplus,
    "aten.mish.default": _mish,
    "aten.log_sigmoid.default": lambda call: "tl.where({0} < 0, {0}, 0) - {1}(tl.exp(-tl.abs({0})))".format(
        call.text(0), call.function("_log1p")
    ),
    "aten.softsign.default": form("{0} / (1.0 + tl.abs({0}))"),
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
}
