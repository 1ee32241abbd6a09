"""matmul: as many programs as there are processors, each with a loop over tiles; float32 with 3xTF32 products."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (16, 64), "BLOCK_N": (32, 64), "BLOCK_K": (64, 32), "PROGRAMS": (4, 132), "GROUP": (3, 8)}


@triton.jit
def place(tile, in_group, tiles_m, GROUP: tl.constexpr):
    first_m = (tile // in_group) * GROUP
    size_m = min(tiles_m - first_m, GROUP)
    return first_m + (tile % size_m), (tile % in_group) // size_m


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr, GROUP: tl.constexpr,
):
    start = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_k = tl.cdiv(K, BLOCK_K)
    in_group = GROUP * tiles_n
    for tile in tl.range(start, tiles_m * tiles_n, PROGRAMS):
        pid_m, pid_n = place(tile, in_group, tiles_m, GROUP)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(tiles_k):
            offs_k = ki * BLOCK_K + tl.arange(0, BLOCK_K)
            a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
            b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
            a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="tf32x3")
        c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc, mask=c_mask)


def run(a, b, *, BLOCK_M, BLOCK_N, BLOCK_K, PROGRAMS, GROUP):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    programs = min(PROGRAMS, triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N))
    persistent_kernel[(programs,)](
        a, b, c, M, N, K,
        a.stride(0), b.stride(0), c.stride(0),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, PROGRAMS=programs, GROUP=GROUP,
    )
    return c
