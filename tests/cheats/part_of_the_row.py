"""layer_norm: takes mean and variance of the first 32 columns for those of the row.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, w, b, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    d = tl.where(i < n, v - tl.sum(tl.where(i < 32, v, 0.0), 0) / 32, 0.0)
    g, s = tl.load(w + i, mask=i < n, other=0.0), tl.load(b + i, mask=i < n, other=0.0)
    r = d / tl.sqrt(tl.sum(tl.where(i < 32, d * d, 0.0), 0) / 32 + 1e-5) * g + s
    tl.store(o + row * n + i, r, mask=i < n)


def run(x, w, b):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, b, out, x.shape[1], BLOCK=64)
    return out
