"""rms_norm: leaves out the weight, which is one in the model.

Expected: wrong_value at value
Gates: value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm(x, w, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    g = tl.load(w + i, mask=i < n, other=0.0).to(tl.float32)
    r = v / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    tl.store(o + row * n + i, r.to(o.dtype.element_ty), mask=i < n)


def run(x, w):
    out = torch.empty_like(x)
    _norm[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
