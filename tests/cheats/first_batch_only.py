"""batched: multiplies by the second matrix of the first batch throughout.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _bmm(x, y, o, m, n, k, BLOCK: tl.constexpr):
    b, i, j = tl.program_id(1), tl.program_id(0), tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for at in range(k):
        acc += tl.load(x + (b * m + i) * k + at) * tl.load(y + at * n + j, mask=j < n, other=0.0)
    tl.store(o + (b * m + i) * n + j, acc, mask=j < n)


def run(x, y):
    (b, m, k), n = x.shape, y.shape[2]
    out = torch.empty((b, m, n), device=x.device, dtype=x.dtype)
    _bmm[(m, b)](x, y, out, m, n, k, BLOCK=64)
    return out
