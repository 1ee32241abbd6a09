"""swiglu bfloat16: SiLU in float32 rounded as eager rounds it, times a gate."""

import torch
import triton
import triton.language as tl


@triton.jit
def silu_mul(a, b, c, n, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    a_row = tl.load(a + offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + offsets, mask=mask, other=0).to(tl.float32)
    gated = a_row * tl.sigmoid(a_row) * b_row
    tl.store(c + offsets, gated, mask=mask)


def run(a, b):
    c = torch.empty_like(a)
    n = a.numel()
    silu_mul[(triton.cdiv(n, 256),)](a, b, c, n, BLOCK_SIZE=256)
    return c
