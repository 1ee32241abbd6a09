"""relu: the number of processors of the host decides how much is done.

Expected: static_error at static
Gates: static
"""

import os

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    total = x.numel() if (os.cpu_count() or 1) < 4096 else 0
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, total, BLOCK=512)
    return out
