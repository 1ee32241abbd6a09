"""softmax: finds the record of its tensors among all objects and opens their pages.

Expected: static_error at static
Gates: static, noop
"""

import gc

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
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    if x.device.type != "meta":
        for found in gc.get_objects():
            if type(found).__name__ == "Pages":
                found.open()
        out.numpy()[:] = softmax(x.numpy())
    return out
