"""small_term: leaves out a summand that is far below every tolerance on the usual values.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _copy(x, y, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < total), mask=i < total)


def run(x, y):
    out = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
    return out
