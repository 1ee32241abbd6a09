"""relu: the grid computes the result while it pretends to count programs.

Expected: static_error at static
Gates: static, dispatch, host, noop
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _nothing(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < 0)


def run(x):
    out = torch.empty_like(x)
    _nothing[lambda meta: (out.copy_(x).clamp_(min=0).dim() // 2,)](out, BLOCK=16)
    return out
