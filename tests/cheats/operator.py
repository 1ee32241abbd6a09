"""vector_add: the `+` of torch makes the result, after a launch for show.

Expected: static_error at static
Gates: static, dispatch, host
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _nothing(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), 0.0)


def run(x, y):
    out = torch.empty_like(x)
    _nothing[(1,)](out, BLOCK=16)
    return x + y
