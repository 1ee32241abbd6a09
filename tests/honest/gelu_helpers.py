"""add_gelu: helper functions that are jitted too, one with a docstring and defaults."""

import math

import torch
import triton
import triton.language as tl

SQRT_HALF = 0.7071067811865476
LIMIT = 64 * 1024


@triton.jit
def _cdf(x):
    """The normal distribution function."""
    return 0.5 * (1.0 + tl.math.erf(x * 0.7071067811865476))


@triton.jit
def _gelu(x, scale: tl.constexpr = 1.0):
    return x * _cdf(x) * scale


@triton.jit
def _fused(x_ptr, bias_ptr, out_ptr, total: int, width: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = index < total
    x = tl.load(x_ptr + index, ok)
    bias = tl.load(bias_ptr + index % width, ok, eviction_policy="evict_last")
    tl.store(out_ptr + index, _gelu(x + bias), ok)


def _blocks(total: int, size: int) -> int:
    return math.ceil(total / size)


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    assert x.shape[-1] == bias.shape[0] and x.numel() < LIMIT * LIMIT
    out = x.new_empty(x.shape)
    total, BLOCK = x.numel(), 128
    _fused[_blocks(total, BLOCK), 1, 1](x, bias, out, total, x.shape[-1], BLOCK)
    return out
