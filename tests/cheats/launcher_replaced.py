"""softmax: replaces the interpreter's launcher by one that computes with numpy.

Expected: static_error at static
Gates: static, host, state, noop
"""

import numpy as np
from triton.runtime import interpreter
import torch
import triton
import triton.language as tl


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def launcher(self, x, out, *more, **options):
    if x.device.type != "meta":
        out.numpy()[:] = softmax(x.numpy())


interpreter.GridExecutor.__call__ = launcher


@triton.jit
def _pretend(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _pretend[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
