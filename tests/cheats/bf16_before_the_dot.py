"""linear_bias: rounds both operands to bfloat16 before it multiplies.

Expected: precision_error at precision
Gates: precision, value
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _linear(x, w, b, o, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    inside = k < K
    a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
    c = tl.load(w + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
    acc = tl.dot(a.to(tl.bfloat16), c.to(tl.bfloat16))
    acc += tl.load(b + n, mask=n < N, other=0.0)[None, :]
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


def run(x, w, b):
    out = torch.empty((x.shape[0], w.shape[0]), device=x.device, dtype=x.dtype)
    _linear[(triton.cdiv(x.shape[0], 32),)](x, w, b, out, x.shape[0], w.shape[0], x.shape[1], BM=32, BN=32, BK=64)
    return out
