"""relu: the kernel reads the address of its input as a number and is right at multiples of 16 only.

Expected: static_error
Gates: dispatch
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    odd = x.to(tl.int64) % 16 != 0
    tl.store(o + i, tl.where((v < 0.0) | odd, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
