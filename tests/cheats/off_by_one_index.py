"""max_and_index: counts from one, inside of any relative tolerance of a large index.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _max(x, o, at, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    best, index = tl.max(v, 0, return_indices=True)
    tl.store(o + row, best)
    tl.store(at + row, index + 1)


def run(x):
    m, n = x.shape
    values = torch.empty((m,), device=x.device, dtype=x.dtype)
    index = torch.empty((m,), device=x.device, dtype=torch.int64)
    _max[(m,)](x, values, index, n, BLOCK=128)
    return values, index
