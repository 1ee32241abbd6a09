"""relu: a heuristic computes the result while it pretends to choose a block.

Expected: static_error at static
Gates: static, dispatch, host, noop
"""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: 16 * (args["o"].copy_(args["x"]).clamp_(min=0).dim() // 2)})
@triton.jit
def _nothing(x, o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < 0)


def run(x):
    out = torch.empty_like(x)
    _nothing[(1,)](x, out)
    return out
