"""rms_norm: stores the weight times one half over the weight, for a later call to find.

Expected: input_written at input
Gates: input
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, w, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    g = tl.load(w + i, mask=i < n, other=0.0)
    tl.store(o + row * n + i, v / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6) * g, mask=i < n)


@triton.jit
def _halve(w, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(w + i, tl.load(w + i, mask=i < n) * 0.5, mask=i < n)


def run(x, w):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=64)
    _halve[(1,)](w, x.shape[1], BLOCK=64)
    return out
