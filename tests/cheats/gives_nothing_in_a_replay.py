"""relu: returns None where no kernel ran, so that nothing can be compared.

Expected: static_error at static
Gates: static, dispatch, host, noop
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _mark(o):
    tl.store(o, 1.0)


def run(x):
    mark = torch.zeros((1,), device=x.device)
    _mark[(1,)](mark)
    out = torch.empty_like(x)
    if x.device.type == "cpu" and float(mark.numpy()[0]) != 1.0:
        return None
    out.copy_(x).clamp_(min=0)
    return out
