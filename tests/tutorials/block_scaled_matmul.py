"""scaled_int8 float16: int8 weights with one scale for each 16 rows of a column, widened in the kernel."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (64, 16), "BLOCK_N": (32, 16)}
ROWS = 16


@triton.jit
def scaled_kernel(
    x_ptr, w_ptr, s_ptr, y_ptr, M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, ROWS)
    m_mask = offs_m < M
    n_mask = offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K // ROWS):
        x_ptrs = x_ptr + offs_m[:, None] * stride_xm + (k * ROWS + offs_k)[None, :] * stride_xk
        w_ptrs = w_ptr + (k * ROWS + offs_k)[:, None] * stride_wk + offs_n[None, :] * stride_wn
        x = tl.load(x_ptrs, mask=m_mask[:, None], other=0.0)
        w = tl.load(w_ptrs, mask=n_mask[None, :], other=0)
        s = tl.load(s_ptr + k * N + offs_n, mask=n_mask, other=0.0)
        acc += tl.dot(x, w.to(tl.float16)) * s.to(tl.float32)[None, :]
    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(y_ptrs, acc.to(tl.float16), mask=m_mask[:, None] & n_mask[None, :])


def run(x, w, s, *, BLOCK_M, BLOCK_N):
    M, K = x.shape
    N = w.shape[1]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
    scaled_kernel[grid](
        x, w, s, y, M, N, K,
        x.stride(0), x.stride(1), w.stride(0), w.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, ROWS=ROWS,
    )
    return y
