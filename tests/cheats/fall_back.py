"""relu: a launch that fails is hidden by a result of torch.

Expected: static_error at static
Gates: static, dispatch, host
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _fails(x, o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) + BLOCK.missing)


def run(x):
    out = torch.empty_like(x)
    try:
        _fails[(1,)](x, out, BLOCK=16)
    except Exception:
        out = x.relu()
    return out
