"""relu: autotune chooses between configurations that nobody verified one by one.

Expected: static_error at static
Gates: static, dispatch
Without: runtime_error
"""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 128})], key=["total"])
@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
