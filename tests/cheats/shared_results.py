"""max_and_index: both results lie in one allocation, so that a write to one can reach the other.

Expected: wrong_output at output
Gates: output, value, order
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _max(x, o, at, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    best, index = tl.max(v, 0, return_indices=True)
    nan = tl.max((v != v).to(tl.int32), 0)
    first = tl.min(tl.where(v != v, i, BLOCK), 0)
    tl.store(o + row, tl.where(nan > 0, float("nan"), best))
    tl.store(at + row, tl.where(nan > 0, first, index))


def run(x):
    m, n = x.shape
    both = torch.empty((2 * m,), device=x.device, dtype=torch.int64)
    values = both[m:].view(torch.float32)[:m]
    _max[(m,)](x, values, both[:m], n, BLOCK=128)
    return values, both[:m]
