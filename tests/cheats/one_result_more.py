"""relu: returns a second result that nobody asked for.

Expected: wrong_output at output
Gates: output, value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out, more = torch.empty_like(x), torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    _relu[(triton.cdiv(x.numel(), 512),)](x, more, x.numel(), BLOCK=512)
    return out, more
