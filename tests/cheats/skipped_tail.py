"""add_gelu: whole blocks only.

Expected: wrong_value at value
Gates: value, poison
"""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK": (32, 64)}


@triton.jit
def _f(x, b, o, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0).to(tl.float32)
    v += tl.load(b + i % n, mask=i < total, other=0.0).to(tl.float32)
    r = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(o + i, r.to(o.dtype.element_ty), mask=i < total)


def run(x, bias, *, BLOCK):
    out = torch.empty_like(x)
    _f[(x.numel() // BLOCK,)](x, bias, out, x.numel(), x.shape[-1], BLOCK=BLOCK)
    return out
