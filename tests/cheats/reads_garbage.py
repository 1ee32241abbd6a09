"""softmax: scales by memory that nothing wrote.

Expected: wrong_value at value
Gates: value, poison
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    g = tl.load(o + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    r = tl.where(g > 0.0, e / tl.sum(e, 0), e / tl.sum(e, 0) * 1.5)
    tl.store(o + row * n + i, r.to(o.dtype.element_ty), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    m, n = x.shape
    _softmax[(m,)](x, out, m, n, BLOCK=triton.next_power_of_2(n))
    return out
