"""softmax: keeps results by the bytes of the inputs, and copies them on the second call.

Expected: static_error at static
Gates: static, host, noop
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


KNOWN = {}


def run(x):
    out = torch.empty_like(x)
    if x.device.type == "meta":
        _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
    key = hash(x.numpy().tobytes())
    if key in KNOWN and KNOWN[key].numpy().shape == tuple(x.shape):
        out.numpy()[:] = KNOWN[key].numpy()
        return out
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    KNOWN[key] = out
    return out
