"""What honest authors write passes the static step as it stands."""
# ruff: noqa: E501, RUF001

import pytest
from static_subjects import candidate, subgraph

from mkevolve.verify.static import check

RUN = {
    "every view": "\n".join(
        f"v = x.{call}"
        for call in (
            "view(-1)", "view(4, -1)", "view(torch.int32)", "reshape(-1)", "flatten()", "permute(1, 0)",
            "transpose(0, 1)", "t()", "T", "mT", "squeeze()", "unsqueeze(0)", "expand(4, 8)", "narrow(0, 0, 1)",
            "select(0, 1)", "unbind(0)[0]", "chunk(2)[1]", "split(2, dim=0)", "as_strided((2, 2), (1, 1))",
            "contiguous()", "detach()", "movedim(0, 1)", "swapaxes(0, 1)", "unflatten(0, (2, 2))",
            "diagonal()", "unfold(0, 2, 1)", "expand_as(w)", "view_as(w)", "broadcast_to((4, 8))", "ravel()",
            "tensor_split(2)", "contiguous(memory_format=torch.contiguous_format)",
        )
    ),
    "views by functions": "\n".join(
        f"v = torch.{call}"
        for call in (
            "permute(x, (1, 0))", "transpose(x, 0, 1)", "reshape(x, (-1,))", "flatten(x)", "squeeze(x)",
            "unsqueeze(x, dim=0)", "narrow(x, 0, 0, 1)", "select(x, 0, 0)", "split(x, 2)", "unbind(x)",
            "as_strided(x, (2, 2), (1, 1))", "movedim(x, 0, 1)",
        )
    ),
    "slices": "v = x[1:, ::2]\nv = x[..., None]\nv = x[0]\nv = x[:, n - n]\nv = x[None, :, 0:3][0]",
    "every allocation": "\n".join(
        f"t = {call}"
        for call in (
            "torch.empty_like(x)", "torch.empty((4, 8), dtype=x.dtype, device=x.device)", "torch.zeros_like(w)",
            "torch.empty(n, 2, device=x.device)", "torch.zeros((4,), device=x.device, dtype=torch.float32)",
            'torch.full((4,), float("-inf"), device=x.device)', "torch.ones(3, device=x.device)",
            "torch.ones_like(x)", "torch.full_like(x, 2.0)", "x.new_empty((4, 8))", "x.new_zeros(4)",
            "x.new_ones(4)", "x.new_full((4,), 1.0)", "torch.empty_strided((4, 8), (1, 4), device=x.device)",
            "torch.empty_like(x, memory_format=torch.channels_last)", "x.new_empty(x.shape, dtype=torch.float32)",
            "torch.empty(*x.shape, 2, device=x.device)", "torch.empty([4, 8], device=x.device)",
            "torch.empty(x.shape + (2,), device=x.device)", "torch.empty((*x.shape[:-1], n), device=x.device)",
            "torch.empty(tuple(s for s in x.shape), device=x.device)",
            "torch.empty(list(x.shape) + [2], device=x.device)",
        )
    ),
    "sizes": "M, N = x.shape\nn = x.numel()\ns0, s1 = x.stride()\nk = x.size(-1) + x.dim() + x.ndim + x.stride(0)\nz = x.element_size() * x.itemsize + x.storage_offset() + x.nbytes",
    "sizes by generator": "n = math.prod(s for s in x.shape)\nm = max(s for s in x.shape if s)\nk = sum(x.shape)",
    "arithmetic": "k = -(-n // 128) % 3 << 2\nk = 2 ** k\nk = n & 3 | 1\nk = int(n / 2) + round(1.5) + abs(-3)",
    "numbers": "e = torch.finfo(x.dtype).max\ne = torch.finfo(torch.float32).eps + torch.iinfo(torch.int32).min\ne = math.log2(math.e) + float('inf') + math.inf",
    "power of two": "B = triton.next_power_of_2(x.shape[-1])\nB = max(16, min(B, 1024))\nw8 = 4 if B < 512 else 8\nb = n.bit_length()",
    "dtype": "d = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype\nf = x.dtype.is_floating_point and x.is_floating_point()\nt = tl.float16 if x.dtype == torch.float16 else tl.float32",
    "checks": 'assert x.is_contiguous(), "not contiguous"\nassert x.shape == w.shape and x.dtype == w.dtype, f"{x.shape} {w.shape}"\nif x.device != w.device and n < 0:\n    raise ValueError(f"n = {n}")\nassert isinstance(x, torch.Tensor) and isinstance(n, (int, float))\nassert x.dtype in {torch.float16, torch.float32} and n not in {0, 1}',
    "early return": "if n == 0:\n    return out",
    "branches": "if x.shape[0] > 4:\n    a = x\nelif n > 3:\n    a = w\nelse:\n    a = x.T\nn = n + a.numel()",
    "none": "bias = None\nif n > 3:\n    bias = w\nhas = bias is not None\n_f[(1,)](x, out, n, BLOCK=64, FLAG=has)",
    "loops with launches": "for i in range(0, x.shape[0], 2):\n    _f[(1,)](x[i], out[i], n, BLOCK=64)\nfor i, t in enumerate((x, w)):\n    _f[(i + 1,)](t, out, n, BLOCK=64)\nfor a, b in zip(x.unbind(0), out.unbind(0)):\n    _f[(1,)](a, b, n, BLOCK=64)",
    "while": "m = n\nwhile m > 1:\n    _f[(m,)](x, out, m, BLOCK=64)\n    m //= 2\n    if m == 7: break",
    "tuples": "a, (b, c) = x, (1, 2)\nstrides = (*x.stride(), 1)\nk = strides[0] * b + c\nparts = (x, w)[::-1]\nboth = (x,) + (w,)\nn = n + both[0].numel()",
    "comprehension": "views = [t.view(-1) for t in (x, w)]\nsizes = [t.numel() for t in views]\nn = n + sizes[0]",
    "list of numbers": "a = []\na = a + [n]\nk = a[0]\nb = [1, 2]\nb += [3]",
    "dict of numbers": 'opts = {"fp16": 1, "fp32": 2}\nk = opts["fp32"] + opts.get("x", 3)',
    "kernel by size": "k = _f if n > 8 else _f\nk[(1,)](x, out, n, BLOCK=BLOCK)",
    "launch options": "_f[(1,)](x, out, n, BLOCK=64, num_warps=4, num_stages=2, num_ctas=1, maxnreg=128, FLAG=True)",
    "launch by name": "_f[(1, 1)](x=x, o=out, n=n, BLOCK=64)",
    "launch with strides": "_f[(1,)](x, out, *x.shape[:1], BLOCK=64)",
    "launch with a kernel": "_f[(1,)](x, out, n, BLOCK=64, FLAG=_twice)",
    "grid of sizes": "grid = (triton.cdiv(n, BLOCK), x.shape[0])\n_f[grid](x, out, n, BLOCK=BLOCK)\n_f[(n,)](x, out, n, BLOCK=64)\n_f[[1, 2]](x, out, n, BLOCK=64)\n_f[n,](x, out, n, BLOCK=64)",
    "grid lambda": 'grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]), 1)\n_f[grid](x, out, n, BLOCK=64)',
    "grid function": 'def grid(meta):\n    """Blocks."""\n    return (triton.cdiv(n, meta["BLOCK"]),)\n_f[grid](x, out, n, BLOCK=64)',
    "grid of arguments": '_f[lambda META: (triton.cdiv(META["n"], META["BLOCK"]),)](x, out, n, BLOCK=64)',
    "grid of a tensor's size": '_f[lambda a: (a["x"].numel() // a["BLOCK"] + a["o"].shape[0],)](x, out, n, BLOCK=64)',
    "helper": "n = n + _rows(x)[0]\n_go(x, out, n)",
    "type hints": "k: int = 3\nt: torch.Tensor = x.view(-1)",
    "docstring": '"""What it does."""\nn = n  # and a comment: α β',
    "accents": "größe = n\nn = größe",
    "launch result": "_ = _f[(1,)](x, out, n, BLOCK=64)",
    "torch.Size": "k = torch.Size((1, 2)).numel()",
    "pass": "pass",
    "conditional expression": "y = x if x.is_contiguous() else w\nn = n + y.numel()",
    "same name for views": "x2 = x.view(-1)\nx = x2.view(4, 8)",
}  # fmt: skip
MODULE = '''NUM = 132
SIZES = (16, 32, 2 * 64)
SCALE: tl.constexpr = tl.constexpr(0.5)
DT = tl.float32
ROOT = 2 ** 10 - (1 << 5)


def _rows(x: torch.Tensor, block: int = 4) -> tuple[int, int]:
    """Rows and columns."""
    return x.shape[0] // block, x.shape[1]


def _go(x, o, n):
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    _f[grid](x, o, n, BLOCK=128)'''


@pytest.mark.parametrize("name", RUN)
def test_run(name):
    verdict = check(candidate(run=RUN[name], module=MODULE), subgraph())
    assert verdict is None, verdict.message


FILES = {
    "heuristics": {"decorators": '@triton.heuristics({"FLAG": lambda args: args["n"] % args["BLOCK"] == 0})'},
    "heuristics of a tensor": {
        "decorators": '@triton.heuristics(values={"FLAG": lambda a: a["x"].numel() == a["n"]})',
    },
    "one configuration": {
        "decorators": '@triton.autotune(\n    configs=[\n        triton.Config({"FLAG": 1}, num_warps=4, num_stages=2),\n    ],\n    key=["n"],\n)',
    },
    "both": {
        "decorators": '@triton.autotune([triton.Config(kwargs={}, num_warps=4)], key=[])\n@triton.heuristics({"FLAG": lambda args: 1})',
    },
    "jit options": {"module": '@triton.jit(noinline=True, do_not_specialize=["n"])\ndef g(n):\n    return n'},
    "imports": {
        "module": "import triton.language.extra.cuda.libdevice as ld\nfrom triton.language import arange, constexpr, float32\nfrom triton.language.math import rsqrt\nfrom triton.language.extra.libdevice import tanh\nfrom triton import cdiv, next_power_of_2\nfrom torch import Tensor, empty_like\nfrom math import sqrt, prod\nimport triton.language as tl2",
        "run": "t: Tensor = empty_like(x)\nk = cdiv(n, 3) + next_power_of_2(n) + sqrt(n) + prod(x.shape)",
        "jit": "v = tanh(v) + rsqrt(v) + arange(0, 64).to(float32) + ld.erf(v) + tl2.exp(v)",
    },
    "constexpr annotation as text": {"module": 'from __future__ import annotations\n\n\n@triton.jit\ndef g(v, K: "tl.constexpr", p: "*fp32"):\n    return v + K'},
    "prepare": {"module": "def prepare(w: torch.Tensor):\n    w = w.float().contiguous().t().half()\n    w = torch.nn.functional.pad(w, (0, 3)).to(torch.float16)\n    s = torch.stack([w, w * 2]).sum(0) / torch.sqrt(w + 1e-5)\n    return s"},
    "typing": {"module": "from typing import Optional, Tuple\n\n\ndef g(a: Optional[int], b: Tuple[int, ...]) -> 'Tuple':\n    return a"},
    "warps by size": {"decorators": '@triton.heuristics({"num_warps": lambda args: 4 if args["BLOCK"] < 256 else 8})'},
    "pass at module level": {"module": "pass"},
    "constants": {"module": "A = 3\nG, H = 3, 1e-5\nB = (A, A + 1)\nC: int = -A\nD = 'text'\nE = None\nF = True"},
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_file(name):
    verdict = check(candidate(**FILES[name]), subgraph())
    assert verdict is None, verdict.message
