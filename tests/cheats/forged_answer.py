"""relu: writes results of its own making to the pipe and ends the process.

Expected: static_error at static
Gates: static, dispatch, host
Without: runtime_error
"""

import os

from mkevolve.backends import child, wire
from mkevolve.data.verdict import Status
from mkevolve.interfaces import CaseResult

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    if x.device.type == "cpu":
        result = CaseResult(Status.PASSED, outputs=(torch.empty(x.shape),))
        writer = wire.FrameWriter(3)
        for _ in range(40):
            writer.write(child.case_frame(result))
        os._exit(0)
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
