"""Shapes that the Triton interpreter would build anew for every value: the same objects, made once.

What another version of Triton builds differently is left alone.
"""

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_TENSOR = {"handle", "shape", "numel", "type", "dtype"}
_BLOCK = {"element_ty", "shape", "numel", "name"}

_tensor_init = tl.tensor.__init__
_block_init = tl.block_type.__init__
_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
_blocks: dict[tuple[int, ...], tuple[Any, Any, str]] = {}


def install() -> None:
    """Share shapes between values of this process, where Triton makes what we know."""
    block = tl.block_type(tl.int32, [4, 8])
    value = tl.tensor(interpreter.TensorHandle(np.zeros((4, 8), np.int32), tl.int32), block)
    if set(vars(block)) == _BLOCK and block.name == f"<{block.shape}, {tl.int32}>":
        tl.block_type.__init__ = _make_block
    if set(vars(value)) == _TENSOR:
        tl.tensor.__init__ = _make_tensor


def _make_tensor(self: Any, handle: Any, type: Any) -> None:  # noqa: A002 (Triton's name)
    key = tuple(type.shape) if type.is_block() else ()
    known = _shapes.get(key)
    if known is None:
        _tensor_init(self, handle, type)
        _shapes[key] = (self.numel, self.shape)
        return
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    self.numel, self.shape = known


def _make_block(self: Any, element_ty: Any, shape: Any) -> None:
    known = _blocks.get(tuple(shape))  # sizes that are `tl.constexpr` are not found
    if known is None:
        _block_init(self, element_ty, shape)
        _blocks[tuple(self.shape)] = (self.shape, self.numel, str(self.shape))
        return
    self.element_ty = element_ty
    self.shape, self.numel, text = known
    self.name = f"<{text}, {element_ty}>"
