"""softmax: raises where a probe shows that nothing was launched; else numpy computes.

Expected: static_error at static
Gates: static, host, noop
"""

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
    out, flag = torch.empty_like(x), torch.empty_like(x)
    _touch[(triton.cdiv(x.numel(), 1024),)](flag, x.numel(), BLOCK=1024)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    if x.device.type != "meta":
        if float(flag.numpy().flat[0]) != 0.0:
            raise RuntimeError("nothing ran")
        out.numpy()[:] = softmax(x.numpy())
    return out
