"""batched: the batch is the third axis of the grid; tf32x3 keeps float32 accuracy."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK": (16, 32), "PRECISION": ("tf32x3", "ieee")}


@triton.jit
def bmm(a, b, c, M, N, K, sab, sbb, scb, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(2)
    a += batch * sab
    b += batch * sbb
    c += batch * scb
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k0 in range(0, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        x = tl.load(a + m[:, None] * K + k, mask=(m[:, None] < M) & (k < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc += tl.dot(x, y, input_precision=PRECISION)
    tl.store(c + m[:, None] * N + n, acc, mask=(m[:, None] < M) & (n < N))


def run(a, b, *, BLOCK, PRECISION):
    B, M, K = a.shape
    N = b.shape[2]
    c = torch.empty((B, M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK), B)
    bmm[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BLOCK=BLOCK, PRECISION=PRECISION)
    return c
