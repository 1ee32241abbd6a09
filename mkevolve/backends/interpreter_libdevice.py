"""`libdevice` for the Triton interpreter, which has none: its stubs would return None."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from mkevolve.backends.interpreter_types import rounded

_MODULES = (
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
)
_WORK = (16, 2)  # instructions of a typical function: ordinary, special

Function = Callable[..., torch.Tensor]

_FUNCTIONS: dict[str, Function] = {
    "abs": torch.abs, "fabs": torch.abs, "ceil": torch.ceil, "floor": torch.floor, "trunc": torch.trunc,
    "rint": torch.round, "nearbyint": torch.round, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "exp10": lambda x: torch.pow(10.0, x),
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma,
    "normcdf": torch.special.ndtr, "normcdfinv": torch.special.ndtri,
    "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1.0 / 3.0),
    "round": lambda x: torch.sign(x) * torch.floor(torch.abs(x) + 0.5),
    "pow": torch.pow, "atan2": torch.atan2, "fmod": torch.fmod, "hypot": torch.hypot,
    "copysign": torch.copysign, "nextafter": torch.nextafter, "div_rn": torch.div,
    "fdim": lambda x, y: torch.clamp(x - y, min=0.0),
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(z.dtype),
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinited": torch.isfinite, "finitef": torch.isfinite,
    "signbit": torch.signbit,
    "fast_sinf": torch.sin, "fast_cosf": torch.cos, "fast_tanf": torch.tan, "fast_logf": torch.log,
    "fast_log2f": torch.log2, "fast_log10f": torch.log10, "fast_expf": torch.exp, "fast_powf": torch.pow,
    "fast_exp10f": lambda x: torch.pow(10.0, x), "fast_dividef": torch.div, "fast_tanhf": torch.tanh,
}  # fmt: skip
_PREDICATES = frozenset({"isnan", "isinf", "isfinited", "finitef", "signbit"})


def install() -> None:
    """Replace what `import libdevice` gives in this process; a function not listed says so when called."""
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a build of Triton without that vendor
            continue
        for symbol in _public(module):
            setattr(module, symbol, _interpreted(symbol))


def _public(module: ModuleType) -> list[str]:
    own = (n for n, value in vars(module).items() if callable(value) and value.__module__ == module.__name__)
    return [name for name in own if not name.startswith("_")]


def _interpreted(name: str) -> Callable[..., Any]:
    function = _FUNCTIONS.get(name)

    def call(*args: Any, _semantic: object = None) -> Any:
        if function is None:
            raise NotImplementedError(f"libdevice.{name} is not known to the interpreter")
        tensors = [interpreter.interpreter_semantic.to_tensor(a) for a in args]
        dtype = next((t.dtype for t in tensors if t.dtype.is_floating()), tl.float32)
        data = [torch.from_numpy(np.array(t.handle.data)) for t in tensors]
        result = function(*data).numpy()
        if name in _PREDICATES:
            dtype, result = tl.int32, result.astype(np.int32)
        interpreter.interpreter_builder.observer.work(_WORK, result.size)
        handle = interpreter.TensorHandle(rounded(np.asarray(result), dtype), dtype)
        shape = next((t.type.shape for t in tensors if t.type.is_block()), None)
        return tl.tensor(handle, tl.block_type(dtype, list(result.shape)) if shape is not None else dtype)

    call.__name__ = name
    return call
