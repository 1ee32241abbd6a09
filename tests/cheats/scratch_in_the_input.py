"""relu: uses its input as scratch memory and leaves it cleared.

Expected: input_written at input
Gates: input
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _move(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)
    tl.store(x + i, 0.0, mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _move[(triton.cdiv(x.numel(), 512),)](x.view(-1), out, x.numel(), BLOCK=512)
    return out
