"""The Triton interpreter's operations with bfloat16 corrected, every access checked and everything counted.

Values of type bfloat16 are float32 arrays rounded after each operation (`numerics.py`). Imports private names
of `triton.runtime.interpreter`; loaded in interpreter children only.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton.runtime import interpreter

from mkevolve.backends.interpreter_types import np_dtype, rounded, storage
from mkevolve.backends.numerics import (
    bf16_bits,
    bf16_values,
    poison,
    round_bf16,
    truncate_bf16,
    truncate_fp16,
)
from mkevolve.backends.observer import Observer

Handle = Any  # interpreter.TensorHandle
Data = npt.NDArray[Any]

_TORCH_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}

# Instructions of one element: (ordinary, special function unit).
_COSTS: dict[object, tuple[int, int]] = {
    np.divide: (2, 1), np.exp: (1, 1), np.exp2: (0, 1), np.log: (1, 1), np.log2: (0, 1), np.sqrt: (1, 1),
    np.sin: (8, 1), np.cos: (8, 1), np.fmod: (12, 1),
}  # fmt: skip
_ERF, _RSQRT = (18, 1), (0, 1)
_INTEGER_DIVISION = 12


def _is_bf16(handle: Handle) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _of(pointer: Handle, handle: Handle) -> Handle:
    """A pointer made from another: it stays in the same tensor."""
    if pointer.attr:
        handle.attr = pointer.attr
    return handle


class Operations(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """Takes the place of the interpreter's builder; `observer` is set while a launch runs."""

    observer: Observer
    pattern: int = 0  # poison of masked lanes without `other`
    divided: tuple[int, ...] = ()  # marks of the last integer division

    def get_bf16(self, value: float) -> Handle:
        return interpreter.TensorHandle(round_bf16(np.array([value], np.float32)), tl.bfloat16)

    def create_addptr(self, ptr: Handle, offset: Handle) -> Handle:
        return _of(ptr, super().create_addptr(ptr, offset))

    def create_splat(self, ret_ty: Any, arg: Handle) -> Handle:
        return _of(arg, super().create_splat(ret_ty, arg))

    def create_broadcast(self, arg: Handle, shape: Any) -> Handle:
        return _of(arg, super().create_broadcast(arg, shape))

    def create_expand_dims(self, arg: Handle, axis: int) -> Handle:
        return _of(arg, super().create_expand_dims(arg, axis))

    def create_load(self, ptr: Handle, _0: object, _1: object, is_volatile: object) -> Handle:
        return self._load(ptr, None, None)

    def create_masked_load(
        self, ptrs: Handle, mask: Handle, other: Handle | None, *_hints: object, **_more: object
    ) -> Handle:
        return self._load(ptrs, mask if isinstance(mask, np.ndarray) else mask.data, other)

    def _load(self, ptrs: Handle, mask: Data | None, other: Handle | None) -> Handle:
        element = ptrs.get_element_ty()
        stored = storage(element)
        within = self.observer.touch("load", ptrs, mask, stored.itemsize)
        if other is not None:
            fill = bf16_bits(other.data) if element == tl.bfloat16 else other.data
        elif mask is not None:  # undefined on a device
            fill = np.full(ptrs.data.shape, self._undefined(element, stored), stored)
        else:
            fill = np.zeros(ptrs.data.shape, stored)
        if mask is None:
            mask = np.ones(ptrs.data.shape, np.bool_)
        if within is not None:
            mask, stray = mask & within, self._undefined(element, stored)
            fill = np.where(within, fill, stray).astype(fill.dtype)
        data = interpreter._interpreter.load(ptrs.data, mask, fill, stored)
        if element == tl.bfloat16:
            data = bf16_values(data)
        return interpreter.TensorHandle(data, element)

    def _undefined(self, element: Any, stored: np.dtype[Any]) -> Any:
        kind = "b" if element == tl.bfloat16 else "f" if element.is_floating() else "i"
        if stored == np.bool_ or isinstance(element, tl.pointer_type):
            return 0
        return np.frombuffer(poison(kind, stored.itemsize, self.pattern), stored)[0]

    def create_store(self, ptr: Handle, val: Handle, *_hints: object) -> None:
        self._store(ptr, val, None)

    def create_masked_store(self, ptrs: Handle, value: Handle, mask: Handle, *_hints: object) -> None:
        self._store(ptrs, value, mask if isinstance(mask, np.ndarray) else mask.data)

    def _store(self, ptrs: Handle, value: Handle, mask: Data | None) -> None:
        element = ptrs.get_element_ty()
        data = bf16_bits(value.data) if element == tl.bfloat16 else value.data
        within = self.observer.touch("store", ptrs, mask, data.itemsize)
        if mask is None:
            mask = np.ones(ptrs.data.shape, np.bool_)
        if within is not None:
            mask = mask & within
        interpreter._interpreter.store(ptrs.data, data, mask)
        self.observer.stored()

    def cast_impl(self, src: Handle, dst_type: Any) -> Handle:
        data = np.asarray(src.data)
        target = dst_type.scalar
        data = round_bf16(data) if target == tl.bfloat16 else data.astype(np_dtype(target))
        if target.is_floating():
            self.observer.work((1, 0), data.size)
        return interpreter.TensorHandle(data, target)

    def create_fp_to_fp(self, src: Handle, dst_type: Any, rounding_mode: Any) -> Handle:
        target, source = dst_type.scalar, src.dtype.scalar
        if target.primitive_bitwidth == 8 or source.primitive_bitwidth == 8:
            return self._float8(src, target, rounding_mode)
        if rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ and target in (tl.bfloat16, tl.float16):
            cut = truncate_bf16 if target == tl.bfloat16 else truncate_fp16
            return interpreter.TensorHandle(cut(src.data), target)
        return self.cast_impl(src, dst_type)

    def _float8(self, src: Handle, target: Any, rounding_mode: Any) -> Handle:
        source, data = src.dtype.scalar, src.data
        if source == tl.bfloat16:
            source = tl.float32
        wide = tl.float32 if target == tl.bfloat16 else target
        bits = interpreter._convert_float(data, source, wide, rounding_mode)
        return interpreter.TensorHandle(bits.view(np_dtype(wide)), target)

    def create_bitcast(self, src: Handle, dst_type: Any) -> Handle:
        data, target = src.data, dst_type.scalar
        if _is_bf16(src):
            data = bf16_bits(data)
        data = np.ascontiguousarray(data) if data.ndim else data
        if not isinstance(target, tl.pointer_type) and target == tl.bfloat16:
            return interpreter.TensorHandle(bf16_values(data), target)
        return interpreter.TensorHandle(data.view(np_dtype(target)), target)

    create_int_to_ptr = create_bitcast
    create_ptr_to_int = create_bitcast

    def binary_op(self, lhs: Handle, rhs: Handle, op: Callable[..., Data]) -> Handle:
        dtype = lhs.dtype.scalar
        data = rounded(op(lhs.data, rhs.data), dtype)
        if isinstance(dtype, tl.pointer_type) or not dtype.is_floating():
            self._index(lhs, rhs, op is np.fmod)
        else:
            self.observer.work(_COSTS.get(op, (1, 0)), data.size)
        return interpreter.TensorHandle(data, dtype)

    def create_idiv(self, lhs: Handle, rhs: Handle) -> Handle:
        handle = super().create_idiv(lhs, rhs)
        self._index(lhs, rhs, division=True)
        return handle

    def _index(self, lhs: Handle, rhs: Handle, division: bool) -> None:
        """Count integer work on blocks: the quotient and the remainder of one division come together, 64-bit
        integers take two instructions, predicates and scalars none worth counting.
        """
        left = np.asarray(lhs.data)
        if left.size == 1 or left.dtype == np.bool_:
            return
        if division:
            key = (left.size, int(left.flat[0]), int(left.flat[-1]), int(np.asarray(rhs.data).flat[0]))
            if key == self.divided:
                return
            self.divided = key
        words = 2 if left.itemsize == 8 else 1
        self.observer.indexing(left.size, _INTEGER_DIVISION if division else words)

    def ternary_op(self, lhs: Handle, rhs: Handle, other: Handle, op: Callable[..., Data]) -> Handle:
        dtype = other.dtype.scalar
        data = rounded(op(lhs.data, rhs.data, other.data), dtype)
        self.observer.work((1, 0), data.size)
        return interpreter.TensorHandle(data, dtype)

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        dtype = z.dtype.scalar
        exact = np.float32 if z.data.dtype == np.float16 else np.float64
        data = x.data.astype(exact) * y.data.astype(exact) + z.data
        self.observer.work((1, 0), data.size)
        return interpreter.TensorHandle(rounded(data.astype(z.data.dtype), dtype), dtype)

    def unary_op(self, arg: Handle, op: Callable[[Data], Data]) -> Handle:
        data = rounded(op(arg.data), arg.dtype)
        self.observer.work(_COSTS.get(op, (1, 0)), data.size)
        return interpreter.TensorHandle(data, arg.dtype.scalar)

    def create_fabs(self, arg: Handle) -> Handle:
        return self.unary_op(arg, np.abs)

    def create_erf(self, arg: Handle) -> Handle:
        data = np.ascontiguousarray(arg.data)
        result = torch.erf(torch.from_numpy(data)).numpy().reshape(arg.data.shape)
        self.observer.work(_ERF, data.size)
        return interpreter.TensorHandle(rounded(result, arg.dtype), arg.dtype.scalar)

    def create_rsqrt(self, arg: Handle) -> Handle:
        self.observer.work(_RSQRT, arg.data.size)
        return interpreter.TensorHandle(rounded(1 / np.sqrt(arg.data), arg.dtype), arg.dtype.scalar)

    def create_dot(self, a: Handle, b: Handle, d: Handle, *_precision: object) -> Handle:
        """In float64, rounded once: a BLAS adds float32 in an order that depends on the place in the block,
        and two programs that compute the same element would store different bits, which no device does.
        """
        left, right = (self._operand(h) for h in (a, b))
        wide = d.data.dtype if left.dtype.kind in "iu" else np.float64
        result = np.matmul(left.astype(wide, copy=False), right.astype(wide, copy=False))
        result = rounded((result + d.data.astype(wide, copy=False)), d.dtype)
        self._count_dot(a, left.shape, right.shape)
        return interpreter.TensorHandle(result.astype(d.data.dtype, copy=False), d.dtype.scalar)

    def _operand(self, handle: Handle) -> Data:
        dtype = handle.dtype.scalar
        if dtype.primitive_bitwidth == 8 and dtype.is_floating():
            bits = interpreter._convert_float(handle.data, dtype, tl.float16, None)
            return np.asarray(bits.view(np.float16))
        return np.asarray(handle.data)

    def _count_dot(self, a: Handle, left: tuple[int, ...], right: tuple[int, ...]) -> None:
        observer = self.observer
        if observer.counting and observer.counter is not None:
            name = str(a.dtype.scalar)
            batch = int(np.prod(left[:-2]))
            observer.counter.dot(_TORCH_NAMES.get(name, name), left[-2], right[-1], left[-1], batch)

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
        element = ptr.get_element_ty()
        within = self.observer.touch("atomic", ptr, None, storage(element).itemsize)
        if within is not None and not within.all():  # this atomic takes no mask
            return interpreter.TensorHandle(np.zeros_like(val.data), element)
        if not element.is_floating() or element.primitive_bitwidth != 16:
            return super().create_atomic_cas(ptr, cmp, val, sem, scope)
        mask = np.ones(ptr.data.shape, np.bool_)
        expected = np.broadcast_to(cmp.data, ptr.data.shape)

        def exchange(old: Data, new: Data, lanes: Data) -> Data:
            return np.where(old == expected.reshape(-1)[lanes], new, old)

        return self._serial(ptr, val, mask, exchange)

    def create_atomic_rmw(
        self, rmw: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any
    ) -> Handle:
        element = ptr.get_element_ty()
        within = self.observer.touch("atomic", ptr, mask.data, storage(element).itemsize)
        if within is not None:
            mask = interpreter.TensorHandle(mask.data & within, tl.int1)
        if not element.is_floating() or element.primitive_bitwidth != 16:
            return super().create_atomic_rmw(rmw, ptr, val, mask, sem, scope)
        ops = interpreter._ir.ATOMIC_OP
        table = {ops.FADD: np.add, ops.ADD: np.add, ops.MAX: np.fmax, ops.MIN: np.fmin}
        table |= {ops.XCHG: lambda _old, new: new}
        if rmw not in table:
            raise ValueError(f"atomic {rmw} on {element}")
        combine = table[rmw]
        return self._serial(ptr, val, mask.data, lambda old, new, _lanes: combine(old, new))

    def _serial(
        self, ptr: Handle, val: Handle, mask: Data, combine: Callable[[Data, Data, Data], Data]
    ) -> Handle:
        """Read, combine and write 16-bit floats lane after lane; lanes of one address in order."""
        element = ptr.get_element_ty()
        pointers = ptr.data.reshape(-1)
        values = np.broadcast_to(val.data, ptr.data.shape).reshape(-1)
        result = np.zeros(pointers.size, values.dtype)
        left = np.flatnonzero(np.broadcast_to(mask, ptr.data.shape).reshape(-1))
        bf16 = element == tl.bfloat16
        while left.size:
            _, first = np.unique(pointers[left], return_index=True)
            lanes = left[np.sort(first)]
            there, every = pointers[lanes], np.ones(lanes.size, np.bool_)
            raw = np.zeros(lanes.size, np.uint16 if bf16 else np.float16)
            raw = interpreter._interpreter.load(there, every, raw, raw.dtype)
            old = bf16_values(raw) if bf16 else raw
            new = rounded(np.asarray(combine(old, values[lanes], lanes)), element)
            interpreter._interpreter.store(there, bf16_bits(new) if bf16 else new.astype(np.float16), every)
            result[lanes] = old
            left = np.setdiff1d(left, lanes, assume_unique=True)
        return interpreter.TensorHandle(result.reshape(ptr.data.shape), element)
