"""x @ w.T + b, then tanh GELU, in fp32: how each precision of a product costs."""
import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (64, 128, 32), "BLOCK_N": (64, 128, 32), "BLOCK_K": (32, 16), "PREC": ("tf32x3", "ieee", "tf32"), "num_warps": (4, 8), "num_stages": (2, 3)}


@triton.jit
def _mm(x, w, b, o, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PREC: tl.constexpr):
    rm, rn, rk = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(x + rm[:, None] * K + (k + rk)[None, :], mask=(rm < M)[:, None] & (k + rk < K)[None, :], other=0.0)
        c = tl.load(w + rn[None, :] * K + (k + rk)[:, None], mask=(rn < N)[None, :] & (k + rk < K)[:, None], other=0.0)
        acc = tl.dot(a, c, acc, input_precision=PREC)
    acc += tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
    u = 0.7978845608028654 * (acc + 0.044715 * acc * acc * acc)
    acc = acc * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * u)))
    tl.store(o + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


def run(x, weight, bias, *, BLOCK_M, BLOCK_N, BLOCK_K, PREC, num_warps, num_stages):
    m, k = x.shape
    n = weight.shape[0]
    out = torch.empty((m, n), device=x.device, dtype=x.dtype)
    _mm[(triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))](x, weight, bias, out, m, n, k, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, PREC=PREC, num_warps=num_warps, num_stages=num_stages)
    return out
