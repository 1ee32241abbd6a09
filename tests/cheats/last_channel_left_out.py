"""layer_norm: the mask ends one column early.

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
    d = tl.where(i < n, v - tl.sum(v, 0) / n, 0.0)
    g, s = tl.load(w + i, mask=i < n, other=0.0), tl.load(b + i, mask=i < n, other=0.0)
    r = d / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5) * g + s
    tl.store(o + row * n + i, r, mask=i < n - 1)


def run(x, w, b):
    out = torch.zeros_like(x)
    _norm[(x.shape[0],)](x, w, b, out, x.shape[1], BLOCK=64)
    return out
