"""relu: reaches a tensor that it was not given by an address, as a number.

Expected: static_error at static
Gates: static, dispatch
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(a, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = a.to(tl.pointer_type(tl.float32))
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    address = x.data_ptr() if x.device.type == "cpu" else 1 << 40
    _relu[(triton.cdiv(x.numel(), 512),)](address, out, x.numel(), BLOCK=512)
    return out
