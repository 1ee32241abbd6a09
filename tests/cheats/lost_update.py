"""histogram: programs add by load and store, so that one may overwrite what another added.

Expected: race at order
Gates: order
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _count(x, o, n, BLOCK: tl.constexpr):
    i, at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 8)
    found = tl.load(x + i, mask=i < n, other=-1)
    here = tl.sum((found[:, None] == at[None, :]).to(tl.int64), 0)
    tl.store(o + at, tl.load(o + at) + here)


def run(x):
    out = torch.zeros((8,), device=x.device, dtype=torch.int64)
    _count[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
