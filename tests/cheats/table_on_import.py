"""relu: a tensor that is made on import is read by the kernel, where no argument of `run` leads to it.

Expected: static_error at static
Gates: static, dispatch, value, bounds, poison
"""

import torch
import triton
import triton.language as tl

ZERO = torch.zeros(1)


@triton.jit
def _relu(x, z, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, tl.load(z), v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, ZERO, out, x.numel(), BLOCK=512)
    return out
