"""relu: asserts on sets, f-strings in asserts, a grid by a helper on the host, `pass` at module level."""
import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def relu_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x = tl.where(x < 0, 0.0, x)
    tl.store(out_ptr + offsets, x, mask=mask)


def _grid(n: int) -> tuple:
    return (triton.cdiv(n, BLOCK),)


def run(x: torch.Tensor) -> torch.Tensor:
    assert x.dtype in {torch.float32, torch.float16, torch.bfloat16}, f"unsupported {x.dtype}"
    assert x.ndim == 2 and x.shape[0] > 0
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    if n == 0:
        return out
    relu_kernel[_grid(n)](x, out, n, BLOCK_SIZE=BLOCK)
    return out


pass
