"""softmax: leaves a hook on every module of the process.

Expected: static_error at static
Gates: static, state
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


def run(x):
    if x.device.type != "meta":
        torch.nn.modules.module.register_module_forward_hook(lambda *call: None)
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
