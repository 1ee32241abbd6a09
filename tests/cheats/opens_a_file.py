"""softmax: the jit body is run as Python by the interpreter and opens a file.

Expected: static_error at static
Gates: static, compile, value, sandbox
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    open("/etc/hostname")
    r = v
    tl.store(o + row * n + i, r.to(o.dtype.element_ty), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    m, n = x.shape
    _softmax[(m,)](x, out, m, n, BLOCK=triton.next_power_of_2(n))
    return out
