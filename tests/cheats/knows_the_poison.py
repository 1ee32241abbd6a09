"""relu: does its work only where the result holds what verification fills fresh memory with.

Expected: nondeterministic at poison
Gates: poison
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    held = tl.load(o + i, mask=i < total, other=0.0)
    watched = (held != held) | (tl.abs(held) > 1e6)
    tl.store(o + i, tl.where(watched, tl.where(v < 0.0, 0.0, v), 0.0), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
