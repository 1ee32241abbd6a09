"""softmax: keeps the first result for each shape and returns it again.

Expected: static_error at static
Gates: static, host, output, value, noop
"""

import torch
import triton
import triton.language as tl

CACHE = {}


@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


def run(x):
    if x.shape not in CACHE:
        out = torch.empty_like(x)
        _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        CACHE[x.shape] = out
    return CACHE[x.shape]
