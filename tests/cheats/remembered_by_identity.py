"""relu: keeps a result for each tensor object, whatever was written to it since.

Expected: static_error at static
Gates: static
"""

import torch
import triton
import triton.language as tl

CACHE = {}


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    if id(x) not in CACHE:
        out = torch.empty_like(x)
        _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        CACHE[id(x)] = (out, x)
    return CACHE[id(x)][0]
