"""add_rows: reads a transposed operand as if it lay in order.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _mul(x, y, o, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(o + row * n + i, v * tl.load(y + row), mask=i < n)


def run(x, y):
    m, n = x.shape
    out = torch.empty((m, n), device=x.device, dtype=x.dtype)
    _mul[(m,)](x, y, out, m, n, BLOCK=64)
    return out
