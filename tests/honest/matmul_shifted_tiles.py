"""matmul: the last tile is shifted back, so that no mask is needed along N; programs compute the same elements."""
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.minimum(tl.program_id(0) * BM, M - BM) + tl.arange(0, BM)
    on = tl.minimum(tl.program_id(1) * BN, N - BN) + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ok = k + tl.arange(0, BK)
        a = tl.load(a_ptr + om[:, None] * K + ok[None, :], mask=ok[None, :] < K, other=0.0)
        b = tl.load(b_ptr + ok[:, None] * N + on[None, :], mask=ok[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + om[:, None] * N + on[None, :], acc)


def run(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    kernel[(triton.cdiv(M, 16), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=16, BN=32, BK=32)
    return c
