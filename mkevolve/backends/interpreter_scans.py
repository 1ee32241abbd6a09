"""Reductions and scans of the Triton interpreter: bfloat16 rounded, user combiners in log2(n) steps."""

from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from mkevolve.backends.numerics import round_bf16
from mkevolve.backends.observer import Observer

Data = npt.NDArray[Any]


_ARG_COMBINES = (
    tl.standard._argmin_combine_tie_break_left,
    tl.standard._argmax_combine_tie_break_left,
)


def _wrap(data: Data, dtype: Any) -> Any:
    """An array as a tensor of `tl`, rounded to its type."""
    if dtype.scalar == tl.bfloat16:
        data = round_bf16(data)
    handle = interpreter.TensorHandle(data.astype(interpreter._get_np_dtype(dtype.scalar)), dtype.scalar)
    return tl.core.tensor(
        handle, tl.block_type(dtype.scalar, list(data.shape)) if data.shape else dtype.scalar
    )


def _combine(function: Any, left: list[Data], right: list[Data], dtypes: list[Any]) -> list[Data]:
    a = [_wrap(d, t) for d, t in zip(left, dtypes, strict=True)]
    b = [_wrap(d, t) for d, t in zip(right, dtypes, strict=True)]
    result = function(*a, *b)
    parts = list(result) if isinstance(result, tuple | tl.core.tuple) else [result]
    return [np.broadcast_to(p.handle.data, d.shape) for p, d in zip(parts, left, strict=True)]


def _part(data: list[Data], axis: int, where: slice) -> list[Data]:
    at = (slice(None),) * axis + (where,)
    return [d[at] for d in data]


class _Counted:
    """Shared by both: what watches, set once by `install`."""

    observer: Observer | None = None


def _count(data: Data, steps: int) -> None:
    if _Counted.observer is not None:
        _Counted.observer.reduction(data.size, steps)


def watch(observer: Observer | None) -> None:
    """Count the work of reductions and scans for this observer."""
    _Counted.observer = observer


class Reduction(interpreter.ReduceOps):  # type: ignore[misc]
    """`tl.reduce`: a tree over neighbouring pairs where the combine function is a user's."""

    def to_tensor(self, ret: Any, dtype: Any) -> Any:
        return super().to_tensor(_rounded(ret, dtype), dtype)

    def apply_impl(self, input: Any) -> Any:  # noqa: A002 (the overridden name)
        _count(input[0].handle.data, 1)
        if self.combine_fn == tl.standard._elementwise_max:
            return self.min_max(input[0], val_reduce_op=np.fmax.reduce)
        if self.combine_fn == tl.standard._elementwise_min:
            return self.min_max(input[0], val_reduce_op=np.fmin.reduce)
        if self.combine_fn in _ARG_COMBINES:  # numpy's own would find a NaN wherever it stands
            return self.generic_reduce(input)
        return super().apply_impl(input)

    def generic_reduce(self, input: Any) -> Any:  # noqa: A002
        parts, axis = self.unravel(input, self.axis)
        dtypes = [p.dtype for p in parts]
        data = [np.asarray(p.handle.data) for p in parts]
        rank = input[0].handle.data.ndim
        while data[0].shape[axis] > 1:
            left, right = _part(data, axis, slice(0, None, 2)), _part(data, axis, slice(1, None, 2))
            data = _combine(self.combine_fn, left, right, dtypes)
        packed = [d.squeeze(axis) for d in data]
        if self.keep_dims:
            packed = [
                d.reshape((1,) * rank) if self.axis is None else np.expand_dims(d, axis) for d in packed
            ]
        return [self.to_tensor(d if d.shape else d.item(), t) for d, t in zip(packed, dtypes, strict=True)]


class Scan(interpreter.ScanOps):  # type: ignore[misc]
    """`tl.associative_scan`: doubling steps where the combine function is a user's."""

    def to_tensor(self, ret: Any, dtype: Any) -> Any:
        return super().to_tensor(_rounded(ret, dtype), dtype)

    def apply_impl(self, input: Any) -> Any:  # noqa: A002
        _count(input[0].handle.data, 2)
        return super().apply_impl(input)

    def generic_scan(self, input: Any) -> Any:  # noqa: A002
        dtypes = [p.dtype for p in input]
        data = [np.asarray(p.handle.data) for p in input]
        length = data[0].shape[self.axis]
        position = np.arange(length).reshape([-1 if a == self.axis else 1 for a in range(data[0].ndim)])
        step = 1
        while step < length:
            earlier = [np.roll(d, step, axis=self.axis) for d in data]
            combined = _combine(self.combine_fn, earlier, data, dtypes)
            data = [np.where(position < step, d, c) for d, c in zip(data, combined, strict=True)]
            step *= 2
        return [self.to_tensor(d, t) for d, t in zip(data, dtypes, strict=True)]


def _rounded(ret: Any, dtype: Any) -> Any:
    return round_bf16(np.asarray(ret)) if dtype.scalar == tl.bfloat16 else ret
