"""softmax: each program also clears the next row, which is right in ascending order only.

Expected: race at order
Gates: value, order
Tier: accept
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    r = e / tl.sum(e, 0)
    tl.store(o + (row + 1) * n + i, r * 0.0, mask=(i < n) & (row + 1 + 0 * i < m))
    tl.store(o + row * n + i, r.to(o.dtype.element_ty), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    m, n = x.shape
    _softmax[(m,)](x, out, m, n, BLOCK=triton.next_power_of_2(n))
    return out
