"""relu: a function that describes launches gets all arguments of every launch on a device.

Expected: static_error at static
Gates: static
"""

import torch
import triton
import triton.language as tl


def _told(grid, kernel, args):
    return {"name": str(args["o"].sum())}


@triton.jit(launch_metadata=_told)
def _relu(x, o, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)


def run(x):
    out = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out
