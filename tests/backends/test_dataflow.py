"""What the IR of small kernels shows of precision and of offsets; compiled for a chip that is not here."""

import pytest
from test_recorder import H200, compiled, plan, spec

from mkevolve.data.graph import TensorSpec
from mkevolve.data.plan import Cast
from mkevolve.data.verdict import Status

pytestmark = pytest.mark.interp

HEAD = """import torch
import triton
import triton.language as tl


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def f(x, w, o, n, K, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i[:, None] * B + i[None, :])
    u = tl.load(w + i[:, None] * B + i[None, :])
BODY
    tl.store(o + i, tl.max(v, 1))


def run(x, w):
    o = torch.empty(32, dtype=torch.float32, device=x.device)
    f[(1,)](x, w, o, x.numel(), x.shape[0], B=32)
    return o
"""


def launch(backend, body, dtype="float16"):
    text = HEAD.replace("BODY", "\n".join(f"    {line}" for line in body.split("\n")))
    found = plan(backend, text, [spec(32, 32, dtype=dtype)] * 2).launches[0]
    lines = text.splitlines()
    return found, lambda part: next(i for i, line in enumerate(lines, 1) if part in line)


def test_casts_to_fewer_bits_are_listed_once_a_line(backend):
    body = (
        "v = v.to(tl.float16).to(tl.float32)\nv = v + u.to(tl.bfloat16)\nv = v.to(tl.float64).to(tl.float32)"
    )
    found, line = launch(backend, body, "float32")
    assert set(found.casts) == {
        Cast("float32", "float16", line("v.to(tl.float16)")),
        Cast("float32", "bfloat16", line("tl.bfloat16")),
    }
    bits = "b = (v.to(tl.int32, bitcast=True) >> 16).to(tl.int16)"
    body = f"{bits}\nv = b.to(tl.bfloat16, bitcast=True).to(tl.float32) + u"
    found, line = launch(backend, body, "float32")
    assert found.casts == (Cast("int16", "bfloat16", line("tl.bfloat16")),)
    found, _ = launch(backend, "v = v.to(tl.float64) + u + (n + i[None, :]).to(tl.float32)", "float32")
    assert [(c.source, c.result) for c in found.casts] == [("float64", "float32")]  # at the store


IN_HALF = """s = tl.sum(v, 1)  # reduction
c = tl.cumsum(v, 1)  # scan
tl.atomic_add(x + i, tl.max(u, 1))  # atomic addition
d = tl.reduce(u, 1, _add)  # reduction
r0, r1, r2, r3, r4, r5, r6, r7, r8 = v, v, v, v, v, v, v, v, v
for k in range(K):
    r0 += u  # loop
for k in range(K):
    r1 = r1 * 0.5 + u  # loop
for k in range(K):
    r2 = (r2.to(tl.float32) + u).to(tl.float16)  # loop
for k in range(K):
    r3 += tl.dot(v, u).to(tl.float16)  # loop
for k in range(K):
    for j in range(K):
        r4 += u  # loop
for k in range(K):
    if k > 3:
        r5 += u  # loop
k = 0
while k < K:
    r6 += u  # loop
    k += 1
for k in range(K):
    r7 = _add(r7, u * 0.25)  # loop
for k in range(K):
    r8 = tl.where(u > 0, r8 - u, r8)  # loop
v = s[:, None] + d[:, None] + c + r0 + r1 + r2 + r3 + r4 + r5 + r6 + r7 + r8"""

NO_SUM = """v = tl.reduce(v, 1, _larger)[:, None] + u
w32 = (v + tl.sum(u.to(tl.float32), 1)[:, None]).to(tl.float16)
r0, r1, r2, r3 = v, v, v, v
for k in range(K):
    r0 = tl.maximum(r0, u)
wide = v.to(tl.float32)
for k in range(K):
    wide += u
acc = tl.dot(v, u)
for k in range(K):
    acc = tl.dot(v, u, acc)
for k in range(K):
    r1 = tl.load(x + k + i)[:, None] + u
for k in range(K):
    r2 = -r2 * u
k = 0
while k < K:
    k += 1
    r3 = u * 2.0
v = w32 + r0 + wide.to(tl.float16) + acc.to(tl.float16) + r1 + r2 + r3 + k"""


def test_every_sum_in_half_is_found(backend):
    found, _ = launch(backend, IN_HALF)
    lines = HEAD.replace("BODY", "\n".join(f"    {line}" for line in IN_HALF.split("\n"))).splitlines()
    marked = {(i, line.split("# ")[1]) for i, line in enumerate(lines, 1) if "  # " in line}
    seen = {(s.line, s.what) for s in found.sums}
    inner = next(i for i, line in enumerate(lines, 1) if line.strip() == "return a + b")
    # A function's sum is said to be in the function.
    called = next(i for i, line in enumerate(lines, 1) if "_add(r7" in line)
    assert seen == (marked - {(called, "loop")}) | {(inner, "loop")} or seen == marked
    assert {s.dtype for s in found.sums} == {"float16"}


def test_float_atomics_of_any_width_are_named(backend):
    body = "tl.atomic_add(x + i, tl.max(u, 1))\ntl.atomic_max(x + i, tl.max(u, 1))"
    found, line = launch(backend, body, "float32")
    assert [(s.what, s.dtype, s.line) for s in found.sums] == [
        ("atomic addition", "float32", line("atomic_add"))
    ]


def test_what_is_no_sum_in_half(backend):
    assert launch(backend, NO_SUM)[0].sums == ()
    assert launch(backend, "for k in range(K):\n    v += u * tl.sum(v, 1)[:, None]", "float32")[0].sums == ()


OFFSETS = """import torch
import triton
import triton.language as tl


@triton.jit
def f(x, o, n, rows, stride, B: tl.constexpr):
BODY


def run(x):
    o = torch.empty_like(x)
    f[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), x.shape[0], x.stride(0), B=1024)
    return o
"""
LARGE = TensorSpec((70000, 40000), "int8", (40000, 1))  # 2.8e9 elements, of which there is only the spec
FITS = TensorSpec((50000, 40000), "int8", (40000, 1))
PROGRAM = "p = tl.program_id(0)"
WRAPS = """p = tl.program_id(0)
i = p * B + tl.arange(0, B)
tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)
for r in range(0, rows):
    i = r * stride + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))
j = tl.arange(0, B)
for r in range(0, rows):
    tl.store(o + j, tl.load(x + j))
    j += stride
i = (p << 10) + tl.arange(0, B)
tl.store(o + i, tl.load(x + i))
i = (p // 40) * stride + (p % 40) * B + tl.arange(0, B)
tl.store(o + i, tl.load(x + i))
i = (p * B).to(tl.int64) + tl.arange(0, B)
tl.store(o + i, tl.load(x + i))"""
FINE = """p = tl.program_id(0)
i = p.to(tl.int64) * B + tl.arange(0, B)
tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)
start = p.to(tl.int64) * B
i = tl.arange(0, B)
tl.store(o + start + i, tl.load(x + start + i))
q = x + tl.arange(0, B)
t = o + tl.arange(0, B)
for r in range(0, rows):
    tl.store(t, tl.load(q))
    q += stride
    t += stride
i = (p % 7) * B + tl.arange(0, B)
tl.store(o + i, tl.load(x + i))
i = tl.minimum(p, 5) * B + tl.arange(0, B)
tl.store(o + i, tl.load(x + i))"""


def offsets(backend, body, tensor):
    text = OFFSETS.replace("BODY", "\n".join(f"    {line}" for line in body.split("\n")))
    return plan(backend, text, [tensor]).launches[0].wraps, text


def test_offsets_that_outgrow_32_bits_are_found_without_such_a_tensor(backend):
    found, text = offsets(backend, WRAPS, LARGE)
    lines = text.splitlines()
    starts = {i for i, line in enumerate(lines, 1) if line.strip().startswith(("i =", "j +="))}
    for argument in ("x", "o"):
        # `p * B` is one value, so its two uses share a line.
        assert {w.line for w in found if w.argument == argument} == starts - {max(starts)}
    assert offsets(backend, WRAPS, FITS)[0] == ()


def test_offsets_that_fit(backend):
    assert offsets(backend, FINE, LARGE)[0] == ()


def test_a_compiler_error_in_tritons_own_code_names_the_candidates_line(backend):
    text = HEAD.replace("BODY", "    v = tl.max(tl.max(v, 1), axis=1)[None, :]")
    result = compiled(backend, text, [spec(32, 32)] * 2, chip=H200)
    assert result.status is Status.COMPILE_ERROR
    line = next(i for i, t in enumerate(text.splitlines(), 1) if "axis=1" in t)
    assert result.message.startswith(f"line {line}: invalid axis 1")


ADDRESSES = {
    "number": "odd = x.to(tl.int64) % 16 != 0\nv = tl.where(odd, v, u)",
    "bits": "v += (x.to(tl.int64, bitcast=True) % 16).to(tl.float32)",
    "of a block": "v += ((x + i).to(tl.int64) % 16).to(tl.float32)[None, :]",
    "cast": "v += (tl.cast(w, tl.int64) % 16).to(tl.float32)",
    "back": "q = (n + i).to(tl.int64).to(x.dtype, bitcast=True)\nv += tl.load(q)[None, :]",
    "compared": "v = tl.where(x < w, v, u)",
    "difference": "v = v + (x - w)",
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_pointer_is_no_number(backend, name):
    text = HEAD.replace("BODY", "\n".join(f"    {line}" for line in ADDRESSES[name].split("\n")))
    result = compiled(backend, text, [spec(32, 32, dtype="float32")] * 2)
    assert result.status in (Status.STATIC_ERROR, Status.COMPILE_ERROR), result
    line = next(i for i, t in enumerate(text.splitlines(), 1) if ADDRESSES[name].split("\n")[0] in t)
    assert result.message.startswith(f"line {line}: ")
