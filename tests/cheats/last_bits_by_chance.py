"""relu: the last bit of the result is another one at the first call than later.

Expected: static_error at static
Gates: static, repeat
"""

import torch
import triton
import triton.language as tl

CALLS = []


@triton.jit
def _relu(x, o, by, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0) * by
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    CALLS.append(0)
    out = torch.empty_like(x)
    by = 1.0 + 1.2e-7 * (len(CALLS) == 1)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, by, x.numel(), BLOCK=512)
    return out
