"""causal_attention float16: one pass over the keys with a running maximum and sum; blocks right of the diagonal are skipped."""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (32, 64), "BLOCK_N": (16, 32), "num_warps": (4, 8), "num_stages": (2, 3)}


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale,
    stride_b, stride_h, stride_m, stride_d,
    heads, length,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):
    start_m = tl.program_id(0)
    pair = tl.program_id(1)
    base = (pair // heads) * stride_b + (pair % heads) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD)
    rows = offs_m[:, None] * stride_m + offs_d[None, :] * stride_d
    q = tl.load(q_ptr + base + rows, mask=offs_m[:, None] < length, other=0.0)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    last = tl.minimum((start_m + 1) * BLOCK_M, length)
    for start_n in range(0, last, BLOCK_N):
        cols = start_n + offs_n
        across = cols[:, None] * stride_m + offs_d[None, :] * stride_d
        k = tl.load(k_ptr + base + across, mask=cols[:, None] < length, other=0.0)
        v = tl.load(v_ptr + base + across, mask=cols[:, None] < length, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.44269504)
        s = tl.where((offs_m[:, None] >= cols[None, :]) & (cols[None, :] < length), s, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(s, 1))
        p = tl.math.exp2(s - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(tl.float16), v, acc)
        m_i = m_ij
    acc = acc / l_i[:, None]
    tl.store(o_ptr + base + rows, acc.to(o_ptr.type.element_ty), mask=offs_m[:, None] < length)


def run(q, k, v, *, BLOCK_M, BLOCK_N, num_warps, num_stages):
    batch, heads, length, head = q.shape
    o = torch.empty_like(q)
    grid = (triton.cdiv(length, BLOCK_M), batch * heads)
    attention_kernel[grid](
        q, k, v, o, head**-0.5,
        q.stride(0), q.stride(1), q.stride(2), q.stride(3),
        heads, length,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, HEAD=head, num_warps=num_warps, num_stages=num_stages,
    )
    return o
