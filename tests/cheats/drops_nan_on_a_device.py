"""relu: tl.maximum prefers numbers to NaN on a device, where the interpreter does not.

Expected: wrong_value at value
Gates: value
Device: true
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.maximum(v, 0.0), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
