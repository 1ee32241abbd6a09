"""relu: registers an operator of its own under the name of one of torch's.

Expected: static_error at static
Gates: static
"""

import torch
import triton
import triton.language as tl

LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("hardswish", lambda x: x, "CPU")


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
