"""conv: the left border reads its neighbour row.

Expected: out_of_bounds at bounds
Gates: value, bounds, poison
"""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (32, 64), "BLOCK_K": (32, 16), "num_warps": (4, 8), "num_stages": (3, 2, 4)}


@triton.jit
def _conv(x, w, b, o, N, H, W, CI: tl.constexpr, CO: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, PREC: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n, r = m // (H * W), m % (H * W)
    h, c = r // W, r % W
    co, kc = tl.arange(0, CO), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, CO), tl.float32)
    for t in range(9):
        ih, iw = h + t // 3 - 1, c + t % 3 - 1
        ok = (m < N * H * W) & (ih >= 0) & (ih < H)  & (iw < W)
        base = ((n * H + ih) * W + iw) * CI
        for c0 in tl.static_range(0, CI, BLOCK_K):
            a = tl.load(x + base[:, None] + (c0 + kc)[None, :], mask=ok[:, None], other=0.0)
            k = tl.load(w + (t * CI + c0 + kc)[:, None] * CO + co[None, :])
            acc = tl.dot(a, k, acc, input_precision=PREC)
    acc = acc + tl.load(b + co)[None, :]
    acc = tl.where(acc < 0.0, 0.0, acc)
    tl.store(o + m[:, None] * CO + co[None, :], acc.to(o.dtype.element_ty), mask=(m < N * H * W)[:, None])


def prepare(weight, gamma, beta, mean, var):
    scale = gamma.double() / (var.double() + 1e-5).sqrt()
    packed = (weight.double() * scale[:, None, None, None]).permute(2, 3, 1, 0).reshape(-1, weight.shape[0])
    return packed.to(weight.dtype).contiguous(), (beta.double() - mean.double() * scale).float()


def run(x, packed, bias, *, BLOCK_M, BLOCK_K, num_warps, num_stages):
    n, ci, h, w = x.shape  # channels_last strides
    co = packed.shape[1]
    out = torch.empty((n, h, w, co), device=x.device, dtype=x.dtype)
    _conv[(triton.cdiv(n * h * w, BLOCK_M),)](x, packed, bias, out, n, h, w, CI=ci, CO=co, BLOCK_M=BLOCK_M, BLOCK_K=BLOCK_K, PREC="ieee", num_warps=num_warps, num_stages=num_stages)
    return out.permute(0, 3, 1, 2)
