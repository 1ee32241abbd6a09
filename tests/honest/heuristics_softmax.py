"""softmax float16: a heuristic chooses the block from the sizes."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["cols"])})
@triton.jit
def softmax_kernel(x_ptr, y_ptr, row_stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + offsets, mask=offsets < cols, other=-float("inf"))
    y = tl.softmax(x.to(tl.float32))
    tl.store(y_ptr + row * row_stride + offsets, y.to(tl.float16), mask=offsets < cols)


def run(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1])
    return y
