"""relu: the grid covers all sizes of the checks, and half of the target.

Expected: wrong_value at value
Gates: value
Tier: accept
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), 32)
    _relu[(programs if programs < 40 else programs // 2,)](x, out, x.numel(), BLOCK=32)
    return out
