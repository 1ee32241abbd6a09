"""softmax: a thread computes while a launch has the pages open.

Expected: static_error at static
Gates: static, state, sandbox
"""

import threading

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def _touch(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, 0.0, mask=i < n)


def softmax(rows):
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def run(x):
    out = torch.empty_like(x)
    if x.device.type == "meta":
        _touch[(triton.cdiv(x.numel(), 1024),)](out, x.numel(), BLOCK=1024)
        return out
    begun = threading.Event()

    def compute():
        import sys

        begun.wait()
        while not any(f.f_code.co_name == "_interpret" for f in _stack(sys._current_frames()[main])):
            pass
        out.numpy()[:] = softmax(x.numpy())

    main = threading.get_ident()
    thread = threading.Thread(target=compute)
    thread.start()
    begun.set()
    other = torch.empty_like(x)
    for _ in range(400):
        _touch[(1,)](other, 1, BLOCK=1)
        if not thread.is_alive():
            break
    return out


def _stack(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back
