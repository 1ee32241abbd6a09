"""relu: every result is a view of one buffer, so that the next call changes the last result.

Expected: static_error at static
Gates: static, output, value, bounds, noop
"""

import torch
import triton
import triton.language as tl

BUFFER = torch.empty(4096)


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = (BUFFER if x.device.type == "cpu" else torch.empty(4096, device=x.device))[: x.numel()].view(x.shape)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
