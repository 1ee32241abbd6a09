"""mean_all: program 0 clears the sum that the others add to, as if it always came first.

Expected: race at order
Gates: order
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _mean(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(o, 0.0)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < total, other=0.0), 0) / total)


def run(x):
    out = torch.empty((), device=x.device, dtype=x.dtype)
    _mean[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
