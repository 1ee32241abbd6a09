"""asin: functions of libdevice."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def asin_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    x = libdevice.asin(0.9 * libdevice.sin(x))
    tl.store(y_ptr + offs, x, mask=mask)


def run(x):
    y = torch.empty_like(x)
    n = y.numel()
    asin_kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
    return y
