"""positive: a boolean result, from a comparison."""

import torch
import triton
import triton.language as tl


@triton.jit
def at_least(a, b, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n, other=0) >= tl.load(b + i, mask=i < n, other=0), mask=i < n)


def run(a, b):
    out = torch.empty(a.shape, dtype=torch.bool, device=a.device)
    at_least[(triton.cdiv(a.numel(), 256),)](a, b, out, a.numel(), BLOCK=256)
    return out
