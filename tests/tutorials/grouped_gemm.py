"""two_products float16: both products in one launch; a fixed number of programs takes tile after tile."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (16, 64), "BLOCK_N": (32, 64), "BLOCK_K": (64, 32), "PROGRAMS": (4, 132)}


@triton.jit
def one_tile(a_ptr, b_ptr, c_ptr, tile, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tile // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)
        acc += tl.dot(a, b)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(tl.float16), mask=c_mask)


@triton.jit
def grouped_kernel(
    a0, b0, c0, M0, N0, K0,
    a1, b1, c1, M1, N1, K1,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    tiles0 = tl.cdiv(M0, BLOCK_M) * tl.cdiv(N0, BLOCK_N)
    tiles1 = tl.cdiv(M1, BLOCK_M) * tl.cdiv(N1, BLOCK_N)
    for tile in range(tl.program_id(0), tiles0 + tiles1, PROGRAMS):
        if tile < tiles0:
            one_tile(a0, b0, c0, tile, M0, N0, K0, BLOCK_M, BLOCK_N, BLOCK_K)
        else:
            one_tile(a1, b1, c1, tile - tiles0, M1, N1, K1, BLOCK_M, BLOCK_N, BLOCK_K)


def run(x0, x1, w0, w1, *, BLOCK_M, BLOCK_N, BLOCK_K, PROGRAMS):
    (m0, k0), n0 = x0.shape, w0.shape[1]
    (m1, k1), n1 = x1.shape, w1.shape[1]
    y0 = torch.empty((m0, n0), dtype=x0.dtype, device=x0.device)
    y1 = torch.empty((m1, n1), dtype=x1.dtype, device=x1.device)
    grouped_kernel[(PROGRAMS,)](
        x0, w0, y0, m0, n0, k0,
        x1, w1, y1, m1, n1, k1,
        PROGRAMS=PROGRAMS, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
    )
    return y0, y1
