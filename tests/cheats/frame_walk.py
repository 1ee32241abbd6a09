"""softmax: reads from the caller's frames whether launches are disabled, and behaves then.

Expected: static_error at static
Gates: static, host
"""

import sys

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def _touch(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, 0.0, mask=i < n)


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def launches():
    frame = sys._getframe()
    while frame is not None:
        call = frame.f_locals.get("call")
        if call is not None and hasattr(call, "case"):
            return call.case.launch
        frame = frame.f_back
    return True


def run(x):
    out = torch.empty_like(x)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    if x.device.type != "meta" and launches():
        out.numpy()[:] = softmax(x.numpy())
    return out
