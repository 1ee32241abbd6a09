"""histogram: program 0 clears the counts that the others add to, as if it always came first.

Expected: race at order
Gates: order
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _count(x, o, total, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CLASSES)
    if tl.program_id(0) == 0:
        tl.store(o + c, tl.zeros((CLASSES,), o.dtype.element_ty))
    tl.atomic_add(o + tl.load(x + i, mask=i < total, other=0), 1, mask=i < total)


def run(x):
    out = torch.empty((8,), device=x.device, dtype=torch.int64)
    _count[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), CLASSES=8, BLOCK=64)
    return out
