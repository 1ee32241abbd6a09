"""softmax: fills the result on the host; the kernel stores nothing.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    r = v
    n = n * 0
    tl.store(o + row * n + i, r.to(o.dtype.element_ty), mask=i < n)


def run(x):
    out = torch.full_like(x, 1.0 / x.shape[1])
    m, n = x.shape
    _softmax[(m,)](x, out, m, n, BLOCK=triton.next_power_of_2(n))
    return out
