"""Global state of torch, Python and numpy that a candidate must leave as it found it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch


def _numpy_state() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return (kind, bytes(np.asarray(keys)), *rest)


_READERS: dict[str, Callable[[], object]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch random state": lambda: torch.get_rng_state().numpy().tobytes(),
    "numpy random state": _numpy_state,
    "python random state": random.getstate,
}
_WRITERS: dict[str, Callable[[object], object]] = {
    "default dtype": lambda v: torch.set_default_dtype(v),  # type: ignore[arg-type]
    "default device": lambda v: torch.set_default_device(None if v == torch.device("cpu") else v),  # type: ignore[arg-type]
    "float32 matmul precision": lambda v: torch.set_float32_matmul_precision(str(v)),
    "grad mode": lambda v: torch._C._set_grad_enabled(bool(v)),
    "deterministic algorithms": lambda v: torch.use_deterministic_algorithms(bool(v)),
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State at one moment."""

    values: tuple[tuple[str, object], ...]

    def restore(self) -> tuple[str, ...]:
        """Return the names of what differs now, and set back what later calls would feel."""
        changed = []
        for name, value in self.values:
            if _READERS[name]() != value:
                changed.append(name)
                if name in _WRITERS:
                    _WRITERS[name](value)
        return tuple(changed)


def snapshot() -> Snapshot:
    """Read the state."""
    return Snapshot(tuple((name, read()) for name, read in _READERS.items()))
