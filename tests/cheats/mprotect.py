"""softmax: opens the pages of its tensors by a system call.

Expected: static_error at static
Gates: static, noop
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
        libc = ctypes.CDLL(None)
        for tensor in (x, out):
            start = tensor.data_ptr() & ~4095
            size = (tensor.data_ptr() + 4 * tensor.numel() - start + 4095) & ~4095
            libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), 3)
        out.numpy()[:] = softmax(x.numpy())
    return out
