"""relu: answers the first call and ends the process before a second one can be judged.

Expected: static_error at static
Gates: static
Without: runtime_error
"""

import os

import torch
import triton
import triton.language as tl

CALLS = []


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    if x.device.type == "cpu":
        CALLS.append(0)
        if len(CALLS) > 1:
            os._exit(0)
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
