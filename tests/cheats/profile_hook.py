"""softmax: computes in a profile hook, which the interpreter itself calls while it runs a launch.

Expected: static_error at static
Gates: static, state
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


def run(x):
    out = torch.empty_like(x)
    if x.device.type == "meta":
        _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
        return out
    stores = []

    def hook(frame, event, argument):
        if event == "return" and frame.f_code.co_name == "_store":
            stores.append(softmax(x.numpy()))
            out.numpy()[:] = stores[-1]

    sys.setprofile(hook)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    sys.setprofile(None)
    return out
