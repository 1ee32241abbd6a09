"""relu: right in the default configuration, and in another one it skips its tail.

Expected: wrong_value at value
Gates: value
Configuration: BLOCK=128
"""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK": (64, 128)}


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x, *, BLOCK):
    out = torch.zeros_like(x)
    _relu[(1 + (x.numel() - 1) // 64 * 64 // BLOCK - (BLOCK > 64),)](x, out, x.numel(), BLOCK=BLOCK)
    return out
