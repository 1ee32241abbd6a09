"""sort_values: `tl.sort` of integers that are in the order of the floats; NaN comes last, as in eager."""

import torch
import triton
import triton.language as tl


@triton.jit
def flipped(bits):
    """Turns the bits of negative floats around, so that integers compare as the floats do, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def sort_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    key = tl.where(i < n, flipped(v.to(tl.int32, bitcast=True)), 0x7FFFFFFF)
    ordered = flipped(tl.sort(key)).to(tl.float32, bitcast=True)
    tl.store(y + row * n + i, ordered, mask=i < n)


def run(x):
    m, n = x.shape
    y = torch.empty_like(x)
    sort_kernel[(m,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y
