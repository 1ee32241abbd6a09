"""linear_bias: `prepare` leaves a function of torch behind, which `run` calls.

Expected: static_error at static
Gates: static, dispatch, host
"""

import torch
import triton
import triton.language as tl

HELD = []


@triton.jit
def _nothing(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), 0.0)


def prepare(w, b):
    HELD[:] = [lambda x: torch.nn.functional.linear(x, w, b)]
    return w


def run(x, w):
    out = torch.empty((x.shape[0], w.shape[0]), device=x.device, dtype=x.dtype)
    _nothing[(1,)](out, BLOCK=16)
    return HELD[0](x) if x.device.type == "cpu" else out
