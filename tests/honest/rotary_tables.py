"""rotary: both halves of each head in one program, with a loop that is unrolled."""

import torch
import triton
import triton.language as tl


@triton.jit
def rotate(x, cos, sin, y, L, rows, HALF: tl.constexpr, ROWS: tl.constexpr):
    d = tl.arange(0, HALF)
    for r in tl.static_range(ROWS):
        row = tl.program_id(0) * ROWS + r
        ok = (row < rows) & (d < HALF)
        at = (row % L) * HALF + d
        c = tl.load(cos + at, mask=ok)
        s = tl.load(sin + at, mask=ok)
        low = tl.load(x + row * 2 * HALF + d, mask=ok)
        high = tl.load(x + row * 2 * HALF + HALF + d, mask=ok)
        tl.store(y + row * 2 * HALF + d, low * c - high * s, mask=ok)
        tl.store(y + row * 2 * HALF + HALF + d, high * c + low * s, mask=ok)


def run(x, cos, sin):
    b, h, length, d = x.shape
    y = torch.empty_like(x)
    rows = b * h * length
    rotate[(triton.cdiv(rows, 4),)](x, cos, sin, y, length, rows, HALF=d // 2, ROWS=4)
    return y
