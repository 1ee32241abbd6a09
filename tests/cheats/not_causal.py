"""cumsum: each element gets the sum of the whole row, as if order did not matter.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _sum(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(o + row * n + i, v * 0.0 + tl.sum(v, 0), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out
