"""softmax: an operator is called by its overload packet.

Expected: static_error at static
Gates: static, dispatch, host, noop
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _touch(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, 0.0, mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    torch.ops.aten._softmax.out(x, -1, False, out=out)
    return out
