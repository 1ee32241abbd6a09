"""rms_norm: `prepare` adds noise to the weight, small enough for the tolerance.

Expected: static_error at static
Gates: static, repeat
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


def prepare(w):
    return w * (1.0 + 1e-7 * torch.rand(w.shape, generator=torch.Generator().manual_seed(id(w))))


def run(x, w):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=64)
    return out
