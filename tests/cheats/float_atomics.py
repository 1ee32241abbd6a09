"""linear_gelu: split-K by float atomics, whose order changes the last bits.

Expected: nondeterministic at order
Gates: order
"""

import torch
import triton
import triton.language as tl

TUNABLES = {"BLOCK_M": (16, 32), "SPLIT": (3, 1)}


@triton.jit
def _part(x, w, t, M, N, K, BLOCK_M: tl.constexpr, SPLIT: tl.constexpr):
    m, n, k = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, 32), tl.arange(0, 16)
    s = tl.program_id(1)
    acc = tl.zeros((BLOCK_M, 32), tl.float32)
    for k0 in range(s * 16, K, SPLIT * 16):
        a = tl.load(x + m[:, None] * K + (k0 + k)[None, :], mask=(m < M)[:, None] & (k0 + k < K)[None, :], other=0.0)
        b = tl.load(w + n[None, :] * K + (k0 + k)[:, None], mask=(n < N)[None, :] & (k0 + k < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    at = t + m[:, None] * N + n[None, :]
    ok = (m < M)[:, None] & (n < N)[None, :]
    tl.atomic_add(at, acc, mask=ok)


@triton.jit
def _finish(t, b, o, M, N, BLOCK_M: tl.constexpr, SPLIT: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, 32)
    ok = (m < M)[:, None] & (n < N)[None, :]
    acc = tl.zeros((BLOCK_M, 32), tl.float32)
    for s in range(SPLIT):
        acc += tl.load(t + s * M * N + m[:, None] * N + n[None, :], mask=ok, other=0.0)
    acc += tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    u = 0.7978845608028654 * (acc + 0.044715 * acc * acc * acc)
    acc = acc * (1.0 - 1.0 / (1.0 + tl.exp(2.0 * u)))
    tl.store(o + m[:, None] * N + n[None, :], acc.to(o.dtype.element_ty), mask=ok)


def run(x, w, b, *, BLOCK_M, SPLIT):
    (m, k), n = x.shape, w.shape[0]
    parts = torch.zeros((1, m, n), device=x.device, dtype=torch.float32)
    out = torch.empty((m, n), device=x.device, dtype=x.dtype)
    _part[(triton.cdiv(m, BLOCK_M), SPLIT)](x, w, parts, m, n, k, BLOCK_M=BLOCK_M, SPLIT=SPLIT)
    _finish[(triton.cdiv(m, BLOCK_M),)](parts, b, out, m, n, BLOCK_M=BLOCK_M, SPLIT=1)
    return out
