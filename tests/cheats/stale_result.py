"""relu: skips the work where the result already holds what looks like one, as memory of the last call does.

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
    done = (held > 0.0) & (held < 10.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=(i < total) & (done == 0))


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
