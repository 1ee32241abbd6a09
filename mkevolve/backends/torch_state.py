"""Global state of torch, Python and numpy that a candidate must leave as it found it."""

import atexit
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.modules import module as modules

_SIGNALS = tuple(sorted(signal.valid_signals()))
_SMALLEST = 5e-324


def _numpy_state() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return (kind, bytes(np.asarray(keys)), *rest)


def _autocast() -> tuple[object, ...]:
    kinds = ("cpu", "cuda")
    modes = [(torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds]
    return (*modes, torch.is_autocast_cache_enabled())


_FLAGS = (
    *("_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32"),
    *("_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction"),
    *("_get_cublas_allow_bf16_reduced_precision_reduction", "_get_mkldnn_enabled"),
    *("_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
)


def _backend_flags() -> tuple[object, ...]:
    return tuple(map(_flag, _FLAGS))


def _flag(name: str) -> object:
    """One flag, or what torch says where older and newer flags contradict each other or there is none."""
    try:
        return getattr(torch._C, name)()
    except (AttributeError, RuntimeError) as error:
        return str(error)


def _deterministic() -> tuple[object, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch._C._get_deterministic_fill_uninitialized_memory(),
    )


def _modes() -> tuple[object, ...]:
    return (
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._is_torch_function_enabled(),
        torch._C._functorch.peek_interpreter_stack() is None,
        repr(torch._C._dispatch_tls_local_include_set()),
        repr(torch._C._dispatch_tls_local_exclude_set()),
    )


def _module_hooks() -> tuple[object, ...]:
    names = [n for n in vars(modules) if n.startswith("_global_") and n.endswith("hooks")]
    return tuple((n, tuple(vars(modules)[n].values())) for n in names)


def _threads() -> tuple[object, ...]:
    native = 0
    with suppress(OSError):  # a sandbox may hide it
        native = len(os.listdir("/proc/self/task"))
    return (tuple(t.ident for t in threading.enumerate()), native)


def _collector() -> tuple[object, ...]:
    return (gc.isenabled(), gc.get_threshold(), tuple(map(id, gc.callbacks)))


def _tracing() -> tuple[object, ...]:
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = tuple(map(monitoring.get_tool, range(6))) if monitoring is not None else ()
    return (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), tools)


def _import_system() -> tuple[object, ...]:
    lists = (sys.path, sys.meta_path, sys.path_hooks, sys.argv)
    return (*(tuple(map(id, names)) for names in lists), sys.getrecursionlimit(), sys.dont_write_bytecode)


def _signal_handlers() -> tuple[object, ...]:
    return (*map(signal.getsignal, _SIGNALS), signal.getitimer(signal.ITIMER_REAL))


_READERS: dict[str, Callable[[], object]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "backend flags": _backend_flags,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "anomaly mode": lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    "autocast": _autocast,
    "deterministic algorithms": _deterministic,
    "torch modes": _modes,
    "module hooks": _module_hooks,
    "number of torch threads": torch.get_num_threads,
    "flushing of denormal numbers": lambda: _SMALLEST * 1.0 == 0.0,
    "torch random state": lambda: torch.get_rng_state().numpy().tobytes(),
    "numpy random state": _numpy_state,
    "python random state": random.getstate,
    "numpy error state": np.geterr,
    "environment": lambda: dict(os.environ),
    "working folder": os.getcwd,
    "warning filters": lambda: tuple(warnings.filters),
    "signal handlers": _signal_handlers,
    "tracing": _tracing,
    "garbage collector": _collector,
    "import system": _import_system,
    "exit handlers": atexit._ncallbacks,
    "threads": _threads,
}
_WRITERS: dict[str, Callable[[object], object]] = {
    "default dtype": lambda v: torch.set_default_dtype(v),  # type: ignore[arg-type]
    "default device": lambda v: torch.set_default_device(None if v == torch.device("cpu") else v),  # type: ignore[arg-type]
    "float32 matmul precision": lambda v: torch.set_float32_matmul_precision(str(v)),
    "grad mode": lambda v: torch._C._set_grad_enabled(bool(v)),
    "deterministic algorithms": lambda v: torch._C._set_deterministic_algorithms(bool(v[0])),  # type: ignore[index]
}


# By these, Python code of a candidate would run while our own does, as inside of a launch.
INTRUDERS = ("tracing", "garbage collector", "signal handlers", "threads")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State at one moment."""

    values: tuple[tuple[str, object], ...]

    def restore(self) -> tuple[str, ...]:
        """Return the names of what differs now, and set back what later calls would feel."""
        changed = []
        for name, value in self.values:
            if _read(name) != value:
                changed.append(name)
                if name in _WRITERS:
                    _WRITERS[name](value)
        return tuple(changed)


def depth() -> tuple[int, int]:
    """How many torch modes are active: of functions, of dispatch."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def leave_modes(functions: int, dispatch: int) -> bool:
    """Leave the modes above a depth, which would see our own calls; whether there were any."""
    found = depth() != (functions, dispatch)
    while torch._C._len_torch_function_stack() > functions:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() > dispatch:
        torch._C._pop_torch_dispatch_stack(None)
    return found


def snapshot(names: Iterable[str] = tuple(_READERS)) -> Snapshot:
    """Read the state."""
    return Snapshot(tuple((name, _read(name)) for name in names))


def _read(name: str) -> object:
    """Some state, or why it cannot be read any more: a candidate may have removed the working folder."""
    try:
        return _READERS[name]()
    except (OSError, RuntimeError) as error:
        return str(error)
