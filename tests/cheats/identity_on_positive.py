"""positive_relu: copies its input, which the model only sends positive values of.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < total), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
