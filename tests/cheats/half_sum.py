"""rms_norm float16: adds the squares up in float16.

Expected: precision_error at precision
Gates: precision, value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, w, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    g = tl.load(w + i, mask=i < n, other=0.0).to(tl.float32)
    r = v.to(tl.float32) / tl.sqrt(tl.sum(v * v, 0).to(tl.float32) / n + 1e-6) * g
    tl.store(o + row * n + i, r.to(tl.float16), mask=i < n)


def run(x, w):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=64)
    return out
