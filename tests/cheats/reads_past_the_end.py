"""relu: loads without a mask, and so the memory of whatever lies behind the input.

Expected: out_of_bounds at bounds
Gates: bounds
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
