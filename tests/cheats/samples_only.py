"""relu: does the first, the last and every fourth block of a large launch, as a test by samples might.

Expected: wrong_value at value
Gates: value
Tier: accept
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    done = (p % 4 == 0) | (p == tl.num_programs(0) - 1) | (tl.num_programs(0) < 16)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=(i < total) & done)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
    return out
