"""Jit functions that generated sources define for themselves, where tl has none or an inexact one."""

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
