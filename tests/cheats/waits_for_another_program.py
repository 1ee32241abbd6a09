"""relu: each program waits for the one before it, which a device need not have started.

Expected: timeout at order
Gates: order
Deadline: 1.5
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, o, turn, total, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    while tl.atomic_add(turn, 0) < p:
        pass
    v = tl.load(x + i, mask=i < total, other=0.0)
    tl.store(o + i, tl.where(v < 0.0, 0.0, v), mask=i < total)
    tl.atomic_add(turn, 1)


def run(x):
    out = torch.empty_like(x)
    turn = torch.zeros((1,), device=x.device, dtype=torch.int32)
    block = triton.next_power_of_2(triton.cdiv(x.numel(), 2))
    _relu[(triton.cdiv(x.numel(), block),)](x, out, turn, x.numel(), BLOCK=block)
    return out
