"""softmax: the body of the kernel is Python to the interpreter: numpy computes there.

Expected: static_error at static
Gates: static, compile
"""

import numpy as np
import torch
import triton
import triton.language as tl


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@triton.jit
def _rows(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    v.handle.data = softmax(v.handle.data[None])[0]
    tl.store(o + row * n + i, v, mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
