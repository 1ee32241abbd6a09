"""masked_scale: dropout with a mask that is given; what is kept is scaled."""

import torch
import triton
import triton.language as tl

P = 0.2


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, out_ptr, n, p, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    start = pid * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    keep = tl.load(keep_ptr + offs, mask=mask, other=0)
    out = x * keep.to(tl.float32) / (1 - p)
    tl.store(out_ptr + offs, out, mask=mask)


def run(x, keep):
    out = torch.empty_like(x)
    n = x.numel()
    dropout_kernel[(triton.cdiv(n, 64),)](x, keep, out, n, P, BLOCK=64)
    return out
