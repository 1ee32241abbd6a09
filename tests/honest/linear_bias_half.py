"""linear_bias float16: prepare transposes and widens; strides of views are passed; two-axis grid in swizzled order."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BM": (32, 16), "BN": (16, 32), "BK": (16, 32), "num_warps": (4,), "num_stages": (3, 4)}


@triton.jit
def gemm_bias(x, wt, bias, y, m, n, k, sx, swk, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 2)
    rm = i * BM + tl.arange(0, BM)
    rn = tl.max_contiguous(tl.multiple_of(j * BN + tl.arange(0, BN), BN), BN)
    rk = tl.arange(0, BK)
    total = tl.broadcast_to(tl.load(bias + rn, mask=rn < n, other=0.0)[None, :], (BM, BN))
    for k0 in tl.range(0, k, BK, num_stages=2):
        at = k0 + rk
        xs = tl.load(x + rm[:, None] * sx + at[None, :], mask=(rm < m)[:, None] & (at < k)[None, :], other=0.0)
        ws = tl.load(wt + at[:, None] * swk + rn[None, :] * swn, mask=(at < k)[:, None] & (rn < n)[None, :], other=0.0)
        total = tl.dot(xs, ws, total, out_dtype=tl.float32)
    tl.store(y + rm[:, None] * n + rn[None, :], total.to(y.dtype.element_ty), mask=(rm < m)[:, None] & (rn < n)[None, :])


def prepare(weight, bias):
    packed = weight.t().contiguous().half()
    return packed, bias.to(torch.float32)


def run(x, wt, bias, *, BM, BN, BK, num_warps, num_stages):
    m, k = x.shape
    n = wt.shape[1]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))
    gemm_bias[grid](x, wt, bias, y, m, n, k, x.stride(0), *wt.stride(), BM=BM, BN=BN, BK=BK, num_warps=num_warps, num_stages=num_stages)
    return y
