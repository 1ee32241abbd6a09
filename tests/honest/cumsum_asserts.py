"""cumsum: assertions, typed arguments, a power of two by bit length, a grid that is one number."""
import torch
import triton
import triton.language as tl

@triton.jit
def k(x, y, stride: tl.int64, n: tl.int32, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 16, "block too small")
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + cols, mask=cols < n, other=0)
    tl.device_assert(n > 0)
    tl.store(y + row * stride + cols, tl.cumsum(v, 0), mask=cols < n)

def run(x):
    y = torch.empty(*x.shape, device=x.device, dtype=x.dtype)
    B = max(16, 1 << (x.shape[1] - 1).bit_length())
    k[x.shape[0],](x, y, x.stride(0), x.shape[1], BLOCK=B)
    return y
