"""mean_all: adds to memory that nothing set to zero.

Expected: wrong_value at value
Gates: value, poison
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _mean(x, o, total, BLOCK: tl.constexpr):
    acc = tl.load(o)
    for at in range(0, total, BLOCK):
        i = at + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x + i, mask=i < total, other=0.0), 0) / total
    tl.store(o, acc)


def run(x):
    out = torch.empty((), device=x.device, dtype=x.dtype)
    _mean[(1,)](x, out, x.numel(), BLOCK=512)
    return out
