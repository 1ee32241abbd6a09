"""always_kept: does not read the mask, which happened to be true everywhere in the model.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, k, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < total) * 1.25, mask=i < total)


def run(x, keep):
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 512),)](x, keep, out, x.numel(), BLOCK=512)
    return out
