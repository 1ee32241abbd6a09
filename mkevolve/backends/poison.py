"""What memory holds that nothing wrote: values that stand out, or values like any other."""

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from mkevolve.backends.numerics import POISON_PATTERNS, bf16_bits, poison, round_bf16

Bytes = npt.NDArray[np.uint8]

_POOL = 1 << 12  # elements
_INTEGERS = 8
_seed = 0


def spoil(target: Bytes, like: torch.Tensor, pattern: int) -> None:
    """Fill bytes with what stands out in a tensor's dtype: a NaN, or something huge."""
    kind, width = _kind(like)
    word = np.frombuffer(poison(kind, width, pattern), dtype=f"u{width}")
    target.view(word.dtype)[:] = word


def unfilled(target: Bytes, like: torch.Tensor, pattern: int) -> None:
    """Fill a new allocation: in every second pattern with numbers like any other, see `draw_for`.

    A candidate that knows poison by its looks, and does otherwise there, is then wrong.
    """
    kind, width = _kind(like)
    if kind == "?" or pattern % POISON_PATTERNS == 0:
        spoil(target, like, pattern)
        return
    words, pool = target.view(f"u{width}"), _plausible(kind, width, _seed)
    whole = words.size - words.size % _POOL
    words[:whole].reshape(-1, _POOL)[:] = pool
    words[whole:] = pool[: words.size - whole]


def _kind(like: torch.Tensor) -> tuple[str, int]:
    """The kind of `numerics.poison` and the bytes of one number."""
    width = like.element_size() // (2 if like.dtype.is_complex else 1)
    if like.dtype == torch.bool:
        return "?", width
    if like.dtype == torch.bfloat16:
        return "b", width
    return ("f" if like.dtype.is_floating_point or like.dtype.is_complex else "i"), width


def draw_for(source: bytes) -> None:
    """Draw the numbers for this candidate from now on: the same in every run, and none that a file can know,
    since they depend on all of it.
    """
    global _seed  # of this process, which serves one candidate
    _seed = int.from_bytes(hashlib.sha256(source).digest()[:8])


@functools.cache
def _plausible(kind: str, width: int, seed: int) -> npt.NDArray[Any]:
    """The bits of numbers around 0, small where they are whole."""
    rng = np.random.default_rng(seed)
    if kind == "i":
        return np.asarray(rng.integers(0, _INTEGERS, _POOL), dtype=f"u{width}")
    values = rng.standard_normal(_POOL)
    if kind == "b":
        return np.asarray(bf16_bits(round_bf16(values.astype(np.float32))))
    if width == 1:  # float8: numbers around 1 of both signs, in every format in use
        signs = rng.choice([0, 0x80], _POOL)
        return np.asarray(rng.integers(0x30, 0x40, _POOL) | signs, dtype=np.uint8)
    return np.asarray(values.astype(f"f{width}").view(f"u{width}"))
