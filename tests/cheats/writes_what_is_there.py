"""relu: the kernel stores again what the host computed before.

Expected: static_error at static
Gates: static, dispatch, host
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _again(o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(o + i, mask=i < total), mask=i < total)


def run(x):
    out = x.relu()
    _again[(triton.cdiv(x.numel(), 512),)](out, x.numel(), BLOCK=512)
    return out
