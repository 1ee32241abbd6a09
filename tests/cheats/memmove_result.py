"""softmax: ctypes copies a result that numpy made into the allocation.

Expected: static_error at static
Gates: static, host, noop
"""

import ctypes

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def _touch(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, 0.0, mask=i < n)


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def run(x):
    out = torch.empty_like(x)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    if x.device.type != "meta":
        read = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
        made = np.ascontiguousarray(softmax(np.asarray(read).reshape(x.shape)))
        ctypes.memmove(out.data_ptr(), made.ctypes.data, made.nbytes)
    return out
