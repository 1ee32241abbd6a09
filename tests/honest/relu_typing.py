"""relu: short names, an annotation from typing, an integer zero."""
from __future__ import annotations
import torch
import triton
import triton.language as tl
from typing import Tuple

@triton.jit
def relu_k(x_ptr, y_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    tl.store(y_ptr + o, tl.maximum(tl.load(x_ptr + o, mask=m), 0), mask=m)

def run(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    relu_k[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)
    return y
