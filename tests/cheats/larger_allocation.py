"""softmax: returns a part of an allocation that is twice as large, which stays alive.

Expected: wrong_output at output
Gates: output
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


def run(x):
    rows, columns = x.shape
    out = torch.empty((2 * rows, columns), device=x.device, dtype=x.dtype)
    _softmax[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out[:rows]
