"""softmax: replaces the store of the interpreter by one that stores the softmax of a row.

Expected: static_error at static
Gates: static, state
"""

import numpy as np
from triton.runtime import interpreter
import torch
import triton
import triton.language as tl


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def store(ptrs, value, mask, *hints):
    data = np.where(mask.data, value.data, -np.inf)
    kind = type(interpreter.interpreter_builder)
    made = interpreter.TensorHandle(softmax(data[None])[0].astype(np.float32), value.dtype)
    kind.create_masked_store(interpreter.interpreter_builder, ptrs, made, mask, *hints)


interpreter.interpreter_builder.create_masked_store = store


@triton.jit
def _copy(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(o + row * n + i, tl.load(x + row * n + i, mask=i < n), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _copy[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
