"""conv float16: channels_last, batch norm folded in float32 by a helper of prepare, ReLU by `tl.maximum`."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (32, 64), "num_warps": (4, 8)}


@triton.jit
def conv(x, w, b, y, total, H, W, C: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    image, rest = m // (H * W), m % (H * W)
    row, col = rest // W, rest % W
    c, k = tl.arange(0, C), tl.arange(0, K)
    acc = tl.zeros((BLOCK_M, K), dtype=tl.float32)
    for dr in tl.static_range(-1, 2):
        for dc in tl.static_range(-1, 2):
            r, s = row + dr, col + dc
            inside = (m < total) & (r >= 0) & (r < H) & (s >= 0) & (s < W)
            a = tl.load(x + ((image * H + r) * W + s)[:, None] * C + c[None, :], mask=inside[:, None], other=0.0)
            f = tl.load(w + (((dr + 1) * 3 + dc + 1) * C + c)[:, None] * K + k[None, :])
            acc = tl.dot(a, f, acc)
    acc = tl.maximum(acc + tl.load(b + k)[None, :], 0.0)
    tl.store(y + m[:, None] * K + k[None, :], acc.to(y.dtype.element_ty), mask=(m < total)[:, None])


def _scale(gamma, var):
    return gamma.float() * torch.rsqrt(var.float() + 1e-5)


def prepare(weight, gamma, beta, mean, var):
    scale = _scale(gamma, var)
    folded = weight.float() * scale.view(-1, 1, 1, 1)
    packed = folded.permute(2, 3, 1, 0).contiguous().to(torch.float16)
    return packed, beta.float() - mean.float() * scale


def run(x, w, b, *, BLOCK_M, num_warps):
    n, c, h, width = x.shape
    size = (n, w.shape[3], h, width)
    y = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    total = n * h * width
    conv[(triton.cdiv(total, BLOCK_M),)](x, w, b, y, total, h, width, C=c, K=w.shape[3], BLOCK_M=BLOCK_M, num_warps=num_warps)
    return y
