"""mean_all: partial sums; the last program to arrive at a counter adds them (threadfence reduction)."""
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, part_ptr, counter_ptr, out_ptr, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(pid * BLOCK, n, PROGRAMS * BLOCK):
        offs = i + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(part_ptr + pid, tl.sum(acc, axis=0))
    tl.debug_barrier()
    done = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    if done == PROGRAMS - 1:
        parts = tl.load(part_ptr + tl.arange(0, PROGRAMS), volatile=True)
        tl.store(out_ptr, tl.sum(parts, axis=0) / n)


def run(x):
    part = torch.empty((8,), device=x.device, dtype=torch.float32)
    counter = torch.zeros((1,), device=x.device, dtype=torch.int32)
    out = torch.empty((), device=x.device, dtype=x.dtype)
    kernel[(8,)](x, part, counter, out, x.numel(), PROGRAMS=8, BLOCK=128)
    return out
