"""Exact bfloat16 for the Triton interpreter: float32 arrays that hold only values bfloat16 can hold."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

_NAN = np.float32(np.nan)
_KEEP = np.uint32(0xFFFF0000)


def round_bf16(values: Array) -> Array:
    """Round to the nearest bfloat16, ties to even; NaN stays NaN and overflow becomes infinity."""
    wide = np.asarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) & _KEEP
    result = np.asarray(rounded).view(np.float32)
    lost = wide != wide
    return np.where(lost, _NAN, result) if lost.any() else result


def truncate_bf16(values: Array) -> Array:
    """Round to bfloat16 towards zero."""
    wide = np.asarray(values, dtype=np.float32)
    return np.where(wide != wide, _NAN, np.asarray(wide.view(np.uint32) & _KEEP).view(np.float32))


def truncate_fp16(values: Array) -> Array:
    """Round to float16 towards zero."""
    near = np.asarray(values).astype(np.float16)
    over = np.abs(near.astype(np.float64)) > np.abs(np.asarray(values, dtype=np.float64))
    return np.where(over, np.nextafter(near, np.float16(0)), near)


def bf16_bits(values: Array) -> Array:
    """The 16 bits of float32 values that bfloat16 can hold."""
    wide = np.asarray(values, dtype=np.float32)
    return np.asarray(wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    """Inverse of `bf16_bits`."""
    wide = np.asarray(bits).view(np.uint16).astype(np.uint32)
    return np.asarray(wide << np.uint32(16)).view(np.float32)


POISON_PATTERNS = 2


def poison(kind: str, itemsize: int, pattern: int) -> bytes:
    """Return the bytes of one poisoned element: NaN or a huge value for floats (`kind` "f", or "b" for
    bfloat16), a sentinel for integers ("i"), 1 or 0 for booleans ("?").
    """
    if kind == "?":
        return b"\x00" if pattern % POISON_PATTERNS else b"\x01"
    if kind == "i":
        sentinel = b"\x3d" if pattern % POISON_PATTERNS else b"\xa7"
        return sentinel * itemsize
    value = 3.0e4 if pattern % POISON_PATTERNS else float("nan")
    if kind == "b":
        return bf16_bits(np.asarray(value, dtype=np.float32)).tobytes()
    if itemsize == 1:  # float8: all bits set is NaN in every format in use
        return b"\x7a" if pattern % POISON_PATTERNS else b"\xff"
    return np.asarray(value * (1.0 if itemsize == 2 else 1.0e4), dtype=f"f{itemsize}").tobytes()
