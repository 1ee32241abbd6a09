"""relu: inline assembly, which nobody can interpret or read.

Expected: static_error at static
Gates: static
Without: runtime_error
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    r = tl.inline_asm_elementwise("max.NaN.f32 $0, $1, 0f00000000;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, r, mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
