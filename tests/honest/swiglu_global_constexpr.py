"""swiglu: a global constexpr, flat views, zeros that are overwritten."""
import torch
import triton
import triton.language as tl
import math

BLOCK: tl.constexpr = tl.constexpr(128)

@triton.jit
def silu(x):
    return x * tl.sigmoid(x)

@triton.jit
def k(a, b, c, n, s):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i * s, mask=i < n)
    y = tl.load(b + i * s, mask=i < n)
    tl.store(c + i, silu(x) * y, mask=i < n)

def run(gate, up):
    gate, up = gate.view(-1), up.reshape(-1)
    out = torch.zeros_like(gate)
    k[(math.ceil(gate.numel() / 128), )](gate, up, out, gate.numel(), gate.stride(-1))
    return out.view(-1, 48)
