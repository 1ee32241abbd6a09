"""scaled_int8: GemLite style, dequantised in the loop, split over K in groups."""
import torch
import triton
import triton.language as tl


@triton.jit
def dequantize(b, scales, acc_dtype: tl.constexpr):
    return b.to(acc_dtype) * scales.to(acc_dtype)


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, scales_ptr, M, N, K: tl.constexpr, group_size: tl.constexpr,
         stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_meta_g, stride_meta_n,
         acc_dtype: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):
    pid = tl.program_id(axis=0)
    grid_n = tl.cdiv(N, BLOCK_SIZE_N)
    pid_m, pid_n = pid // grid_n, pid % grid_n
    offs_m = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_n = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    a_mask = offs_m[:, None] < M
    b_mask = offs_n[None, :] < N
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=acc_dtype)
    for k in tl.range(0, tl.cdiv(K, BLOCK_SIZE_K), 1, num_stages=2, loop_unroll_factor=1):
        a = tl.load(a_ptrs, mask=a_mask, other=0., eviction_policy="evict_last")
        b = tl.load(b_ptrs, mask=b_mask, other=0, eviction_policy="evict_first")
        k_m = (k * BLOCK_SIZE_K) // group_size
        scales = tl.load(scales_ptr + k_m * stride_meta_g + offs_n[None, :] * stride_meta_n, mask=b_mask, other=0.)
        b = dequantize(b, scales, acc_dtype)
        acc = tl.dot(a, b, acc=acc, out_dtype=acc_dtype, input_precision="ieee")
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    c_ptrs = c_ptr + (offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn)
    tl.store(c_ptrs, acc, mask=a_mask & b_mask)


def run(x, w_q, scales):
    M, K, N = x.shape[0], x.shape[1], w_q.shape[1]
    output = torch.empty((M, N), device=w_q.device, dtype=x.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_SIZE_M"]) * triton.cdiv(N, meta["BLOCK_SIZE_N"]),)
    gemm[grid](x, w_q, output, scales, M, N, K, K // scales.shape[0], x.stride(0), x.stride(1), w_q.stride(0), w_q.stride(1),
               output.stride(0), output.stride(1), scales.stride(0), scales.stride(1), acc_dtype=tl.float32, BLOCK_SIZE_M=16, BLOCK_SIZE_N=32, BLOCK_SIZE_K=16)
    return output
