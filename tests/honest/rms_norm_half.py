"""rms_norm float16: `tl.rsqrt`, early return on no rows, a row count rounded up on the host."""

import torch
import triton
import triton.language as tl

EPS = 1e-6


@triton.jit
def rms(x_ptr, w_ptr, y_ptr, rows, cols, eps: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row >= rows:
        return
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    w = tl.load(w_ptr + i, mask=i < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + i, (x * scale * w).to(y_ptr.dtype.element_ty), mask=i < cols)


def run(x, weight):
    y = torch.empty_like(x)
    rows, cols = x.shape
    if rows == 0:
        return y
    rms[(triton.cdiv(rows, 4) * 4,)](x, weight, y, rows, cols, EPS, BLOCK=triton.next_power_of_2(cols))
    return y
