"""softmax: torch computes while dispatch modes are off, so that none of them sees it.

Expected: static_error at static
Gates: static, host, noop
"""

from torch.utils._python_dispatch import _disable_current_modes
import torch
import triton
import triton.language as tl


@triton.jit
def _touch(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, 0.0, mask=i < n)


def run(x):
    out = torch.empty_like(x)
    _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
    if x.device.type != "meta":
        with _disable_current_modes():
            out.copy_(torch.softmax(x, -1))
    return out
