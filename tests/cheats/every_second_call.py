"""relu: launches at every second call only and returns the result of the call before.

Expected: static_error at static
Gates: static, host, output, value, repeat, noop
"""

import torch
import triton
import triton.language as tl

LAST = []


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    if LAST:
        return LAST.pop()
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    LAST.append(out)
    return out
