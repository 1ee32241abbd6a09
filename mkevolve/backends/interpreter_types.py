"""How Triton's types are held while they are interpreted; imports private names of its interpreter."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from mkevolve.backends.numerics import round_bf16

Data = npt.NDArray[Any]

_np_dtype: Callable[[Any], "np.dtype[Any]"] = interpreter._get_np_dtype


def storage(element: Any) -> np.dtype[Any]:
    """The dtype of an element in memory."""
    return np.dtype(np.uint16 if element == tl.bfloat16 else _np_dtype(element))


@functools.cache
def _scalar_dtype(scalar: Any) -> "np.dtype[Any]":
    return np.dtype(np.float32 if scalar == tl.bfloat16 else _np_dtype(scalar))


def np_dtype(dtype: Any) -> "np.dtype[Any]":
    """The dtype of values under interpretation; replaces Triton's, which keeps bfloat16 as raw bits."""
    scalar = dtype.scalar
    return np.dtype(np.uint64) if isinstance(scalar, tl.pointer_type) else _scalar_dtype(scalar)


def fits(data: Data, dtype: Any) -> bool:
    """Whether an array may stand for a Triton type; replaces Triton's check."""
    return isinstance(dtype.scalar, tl.pointer_type) or data.itemsize <= np_dtype(dtype).itemsize


def rounded(data: Data, dtype: Any) -> Data:
    """Give an operation's result the precision of its type."""
    if dtype.scalar == tl.bfloat16:
        return data if data.dtype == np.bool_ else round_bf16(data)
    return data if fits(data, dtype) else data.astype(np_dtype(dtype))
