"""Checks that need the Triton interpreter; `test_interpreter.py` runs this file once in a child process."""

import json
import math
import sys
import traceback
from types import SimpleNamespace

import torch

from mkevolve.backends import interpreter

interpreter.install()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.language.extra.cuda import libdevice as cuda_libdevice  # noqa: E402

from mkevolve.data.candidate import Configuration  # noqa: E402
from mkevolve.data.gates import Gate  # noqa: E402
from mkevolve.data.verdict import Status  # noqa: E402
from mkevolve.interfaces import Case, Order  # noqa: E402

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def call(run, *activations, params=(), prepare=None, off=frozenset(), **options):
    parts = {"prepare": prepare} if prepare else {}
    module = SimpleNamespace(run=run, __file__=run.__code__.co_filename, **parts)
    case = Case("key", "target", tuple(activations), tuple(params), **options)
    return interpreter.run_case(module, Configuration(), case, off)


def values(result):
    assert result.status is Status.PASSED, f"{result.status}: {result.message}"
    return result.outputs[0]


def draw(dtype, *shape, scale=4.0):
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


def same(got, want):
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert torch.equal(got, want), (got - want).abs().max()


@triton.jit
def _binary(x, y, o, n, OP: tl.constexpr, BLOCK: tl.constexpr):  # noqa: C901 (one kernel, a branch an op)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n, other=0.0), tl.load(y + i, mask=i < n, other=1.0)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = (a / b).to(a.dtype)
    elif OP == "chain":
        c = a * b + a - b * a
    elif OP == "maximum":
        c = tl.maximum(a, b)
    elif OP == "minimum":
        c = tl.minimum(a, b)
    elif OP == "less":
        c = (a < b).to(a.dtype)
    elif OP == "where":
        c = tl.where(a > b, a, -b)
    elif OP == "abs":
        c = tl.abs(a)
    elif OP == "scalar":
        c = a * 0.1 + 1.5
    elif OP == "full":
        c = a + tl.full((BLOCK,), 0.3, a.dtype)
    elif OP == "exp":
        c = tl.exp(a.to(tl.float32)).to(a.dtype)
    elif OP == "integer":
        c = a.to(tl.int32).to(a.dtype)
    elif OP == "arange":
        c = i.to(a.dtype)
    elif OP == "half":
        c = a.to(tl.float16).to(a.dtype)
    elif OP == "bitcast":
        if a.dtype.primitive_bitwidth == 16:
            c = (a.to(tl.int16, bitcast=True) + 1).to(tl.int16).to(a.dtype, bitcast=True)
        else:
            c = (a.to(tl.int32, bitcast=True) + 1).to(a.dtype, bitcast=True)
    tl.store(o + i, c, mask=i < n)


_BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: (a.float() / b.float()).to(a.dtype),
    "chain": lambda a, b: a * b + a - b * a,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "less": lambda a, b: (a < b).to(a.dtype),
    "where": lambda a, b: torch.where(a > b, a, -b),
    "abs": lambda a, b: a.abs(),
    "scalar": lambda a, b: a * torch.tensor(0.1, dtype=a.dtype) + torch.tensor(1.5, dtype=a.dtype),
    "full": lambda a, b: a + torch.tensor(0.3, dtype=a.dtype),
    "integer": lambda a, b: a.to(torch.int32).to(a.dtype),
    "arange": lambda a, b: torch.arange(a.numel(), dtype=torch.int32).to(a.dtype),
    "half": lambda a, b: a.half().to(a.dtype),
    "bitcast": lambda a, b: (a.view(torch.int16 if a.element_size() == 2 else torch.int32) + 1).view(a.dtype),
}


def check_elementwise(dtype):
    x, y = draw(dtype, 300), draw(dtype, 300, scale=2.0).flip(0)
    for op, want in _BINARY.items():

        def run(x, y, op=op):
            o = torch.empty_like(x)
            _binary[(triton.cdiv(x.numel(), 128),)](x, y, o, x.numel(), OP=op, BLOCK=128)
            return o

        got = values(call(run, x, y))
        assert torch.equal(got, want(x, y)), (op, (got.float() - want(x, y).float()).abs().max())


def check_special_values_survive(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e38, -1e-38, 3.0], dtype=dtype)

    def run(x):
        o = torch.empty_like(x)
        _binary[(1,)](x, x, o, x.numel(), OP="maximum", BLOCK=8)
        return o

    got = values(call(run, x))
    assert torch.equal(torch.nan_to_num(got, nan=7.0), torch.nan_to_num(x, nan=7.0))


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def _rows(x, o, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + c[None, :])
    if OP == "sum":
        tl.store(o + r, tl.sum(v, 1))
    elif OP == "max":
        tl.store(o + r, tl.max(v, 1))
    elif OP == "min":
        tl.store(o + r, tl.min(v, 1))
    elif OP == "argmax":
        tl.store(o + r, tl.argmax(v, 1).to(v.dtype))
    elif OP == "product":
        tl.store(o + r, tl.reduce(v, 1, _multiply))
    elif OP == "columns":
        tl.store(o + c, tl.reduce(v, 0, _multiply))
    elif OP == "cumsum":
        tl.store(o + r[:, None] * N + c[None, :], tl.cumsum(v, 1))
    elif OP == "recurrence":
        _decay, total = tl.associative_scan((v * 0.0 + 0.5, v), 1, _affine)
        tl.store(o + r[:, None] * N + c[None, :], total)


def _rows_of(x, op, shape):
    def run(x):
        o = x.new_empty(shape)
        _rows[(1,)](x, o, OP=op, M=x.shape[0], N=x.shape[1])
        return o

    return values(call(run, x))


def check_reductions(dtype):
    x = draw(dtype, 8, 16)
    tolerance = {"rtol": torch.finfo(dtype).eps * 8, "atol": torch.finfo(dtype).eps * 16}
    torch.testing.assert_close(_rows_of(x, "sum", (8,)), x.float().sum(1).to(dtype), **tolerance)
    same(_rows_of(x, "max", (8,)), x.amax(1))
    same(_rows_of(x, "min", (8,)), x.amin(1))
    same(_rows_of(x, "argmax", (8,)), x.argmax(1).to(dtype))
    half = (x.sign() * 0.5 + x * 0.1).to(dtype)
    torch.testing.assert_close(_rows_of(half, "product", (8,)), half.float().prod(1).to(dtype), **tolerance)
    torch.testing.assert_close(_rows_of(half, "columns", (16,)), half.float().prod(0).to(dtype), **tolerance)


def check_the_position_of_a_nan_decides_whether_argmax_finds_it(dtype):
    row = torch.zeros(1, 8, dtype=dtype)
    row[0, 4] = 1.0
    row[0, 0] = math.nan  # lost to its neighbour: a comparison with it is false
    assert _rows_of(row, "argmax", (1,)).item() == 4
    row[0, 7] = math.nan
    assert _rows_of(row, "argmax", (1,)).item() == 7


def check_scans(dtype):
    x = draw(dtype, 4, 16, scale=1.0)
    eps = torch.finfo(dtype).eps * 16
    torch.testing.assert_close(_rows_of(x, "cumsum", (4, 16)), x.cumsum(1), rtol=eps, atol=eps)
    want, total = torch.zeros(4, 16), torch.zeros(4)
    for i in range(16):
        total = total * 0.5 + x[:, i].float()
        want[:, i] = total
    torch.testing.assert_close(_rows_of(x, "recurrence", (4, 16)), want.to(dtype), rtol=eps, atol=eps)


@triton.jit
def _library(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i).to(tl.float32)
    u = libdevice.tanh(v) + cuda_libdevice.log1p(tl.abs(v)) + libdevice.pow(tl.abs(v), 1.5)
    tl.store(o + i, tl.where(libdevice.isnan(v) != 0, 0.0, u).to(o.dtype.element_ty))


def check_libdevice(dtype):
    def run(x):
        o = torch.empty_like(x)
        _library[(1,)](x, o, N=64)
        return o

    x = draw(dtype, 64)
    x[3] = math.nan
    v = x.float()
    want = torch.nan_to_num(v.tanh() + v.abs().log1p() + v.abs().pow(1.5)).to(dtype)
    torch.testing.assert_close(values(call(run, x)), want)


@triton.jit
def _unknown(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, libdevice.cyl_bessel_i0(tl.load(x + i)))


def check_a_libdevice_function_without_a_rule_says_so():
    def run(x):
        o = torch.empty_like(x)
        _unknown[(1,)](x, o, N=4)
        return o

    result = call(run, torch.zeros(4))
    assert result.status is Status.RUNTIME_ERROR
    assert "libdevice.cyl_bessel_i0" in result.message


@triton.jit
def _dot(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    c = tl.dot(tl.load(x + at), tl.trans(tl.load(y + at)), input_precision="ieee")
    tl.store(o + at, c.to(o.dtype.element_ty))


def check_dot(dtype):
    x, y = draw(dtype, 32, 32), draw(dtype, 32, 32).flip(0)

    def run(x, y):
        o = torch.empty_like(x)
        _dot[(1,)](x, y, o, N=32)
        return o

    want = (x.double() @ y.double().t()).to(dtype)
    close = {"rtol": torch.finfo(dtype).eps, "atol": 4e-7 * float((x.abs() @ y.abs().t()).max())}
    torch.testing.assert_close(values(call(run, x, y)), want, **close)


def check_a_product_does_not_depend_on_the_place_in_the_block():
    x, y = draw(torch.float32, 32, 32), draw(torch.float32, 32, 32)

    def run(x, y):
        o = torch.empty_like(x)
        _dot[(1,)](x, y, o, N=32)
        return o

    plain = values(call(run, x, y))
    for shift in (1, 5, 16):
        same(values(call(run, x.roll(shift, 0), y)), plain.roll(shift, 0))
        same(values(call(run, x, y.roll(shift, 0))), plain.roll(shift, 1))


@triton.jit
def _logic(x, o, n, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    if OP == "and":
        r = (v > 0) and (v < 1) and i < n
    elif OP == "or":
        r = v > 1 or v < -1 or (OP == "and")
    elif OP == "not":
        r = not (v > 0 or OP == "or")
    elif OP == "scalar":
        r = (v > 0) and (n > 3 and n != 5)
    elif OP == "constant":
        r = OP == "scalar" or (OP == "constant" and v > 0)
    elif OP == "integer":
        r = i and n
    else:
        r = max(min(v, 0.5), -0.5) == v
    tl.store(o + i, r)


def check_logical_operators_are_of_elements():
    def run(x, op, n=6):
        o = torch.empty(8, dtype=torch.bool)
        _logic[(1,)](x, o, n, OP=op, N=8)
        return o

    x = torch.tensor([0.5, -0.5, 2.0, -2.0, 0.25, 0.75, 0.5, 3.0])
    at = torch.arange(8)
    want = {
        "and": (x > 0) & (x < 1) & (at < 6),
        "or": x.abs() > 1,
        "not": x <= 0,
        "scalar": x > 0,
        "constant": x > 0,
        "integer": at > 0,
        "most": x.abs() <= 0.5,
    }
    for op, expected in want.items():
        same(values(call(lambda x, op=op: run(x, op), x)), expected)


@triton.jit
def _first(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    _, at = tl.max(tl.load(x + i), 0, return_indices=True)
    tl.store(o, at)
    tl.store(o + 1, tl.argmin(tl.load(x + i), 0))


def check_equal_elements_give_the_first_index(dtype):
    def run(x):
        o = torch.empty(2, dtype=torch.int32)
        _first[(1,)](x, o, N=16)
        return o

    for x in (torch.zeros(16), torch.arange(16) % 4, -(torch.arange(16) // 3 % 2)):
        want = [int(x.argmax()), int(x.argmin())]
        same(values(call(run, x.to(dtype))), torch.tensor(want, dtype=torch.int32))


@triton.jit
def _both_sides(x, o, n):
    if n > 100 and tl.load(x + n) > 0:
        tl.store(o, 1.0)
    else:
        tl.store(o, 2.0)


def check_both_sides_of_a_condition_are_evaluated():
    """As they are on a device: what the left side says does not keep a load from happening."""

    def run(x):
        o = torch.empty_like(x)
        _both_sides[(1,)](x, o, 50)
        return o

    assert call(run, torch.zeros(1)).status is Status.OUT_OF_BOUNDS


@triton.jit
def _shapes(x, o, OP: tl.constexpr, N: tl.constexpr):  # noqa: C901 (one kernel, a branch an op)
    i = tl.arange(0, N)
    v = tl.load(x + i)
    if OP == "interleave":
        tl.store(o + tl.arange(0, 2 * N), tl.interleave(v, v * 2))
    elif OP == "split":
        a, b = tl.split(tl.reshape(v, (N // 2, 2)))
        tl.store(o + tl.arange(0, N // 2), a - b)
    elif OP == "transpose":
        t = tl.trans(tl.reshape(v, (N // 4, 4)))
        tl.store(o + i, tl.reshape(t, (N,)))
    elif OP == "flip":
        tl.store(o + i, tl.flip(v, 0))
    elif OP == "sort":
        tl.store(o + i, tl.sort(v))
    elif OP == "gather":
        tl.store(o + i, tl.gather(v, N - 1 - i, 0))
    elif OP == "clamp":
        tl.store(o + i, tl.clamp(v, -1.0, 1.0))
    elif OP == "fma":
        tl.store(o + i, tl.fma(v, v, v))
    elif OP == "softmax":
        f = v.to(tl.float32)
        tl.store(o + i, (tl.sigmoid(f) + tl.softmax(f)).to(v.dtype))
    elif OP == "loop":
        acc = tl.zeros((N,), tl.float32)
        for k in tl.range(0, 3, num_stages=2):
            acc += tl.load(x + i, cache_modifier=".cg", eviction_policy="evict_last").to(tl.float32) * k
        tl.store(o + tl.max_contiguous(tl.multiple_of(i, N), N), acc.to(v.dtype))


_SHAPES = {
    "interleave": lambda x: torch.stack([x, x * 2], -1).view(-1),
    "split": lambda x: x.view(-1, 2)[:, 0] - x.view(-1, 2)[:, 1],
    "transpose": lambda x: x.view(-1, 4).t().reshape(-1),
    "flip": lambda x: x.flip(0),
    "sort": lambda x: x.sort().values,
    "gather": lambda x: x.flip(0),
    "clamp": lambda x: x.clamp(-1, 1),
    "fma": lambda x: (x.double() * x.double() + x.double()).to(x.dtype),
    "softmax": lambda x: (x.float().sigmoid() + x.float().softmax(0)).to(x.dtype),
    "loop": lambda x: x * 3,
}


def check_shapes_and_library_functions(dtype):
    x = draw(dtype, 32)
    for op, want in _SHAPES.items():
        size = want(x).numel()

        def run(x, op=op, size=size):
            o = x.new_empty(size)
            _shapes[(1,)](x, o, OP=op, N=32)
            return o

        got = values(call(run, x))
        torch.testing.assert_close(got, want(x), rtol=torch.finfo(dtype).eps, atol=1e-6, msg=op)


@triton.jit
def _random(o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.rand(7, i))


def check_random_numbers_repeat():
    def run(x):
        o = torch.empty_like(x)
        _random[(1,)](o, N=64)
        return o

    first, second = (values(call(run, torch.zeros(64))) for _ in range(2))
    same(first, second)
    assert 0.2 < float(first.mean()) < 0.8


@triton.jit
def _accumulate(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + i % 4, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


def check_atomics(dtype):
    x = draw(dtype, 50, scale=1.0).round()  # whole numbers: every order gives the same sum

    def run(x):
        o = torch.zeros(4, device=x.device, dtype=x.dtype)
        _accumulate[(4,)](x, o, x.numel(), BLOCK=16)
        return o

    want = torch.stack([x[i::4].sum() for i in range(4)])
    same(values(call(run, x)), want)


@triton.jit
def _copy(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


def copy(x):
    o = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 32),)](x, o, x.numel(), BLOCK=32)
    return o


def check_strides_of_results_are_kept():
    x = draw(torch.float32, 2, 8, 3, 5).to(memory_format=torch.channels_last)
    got = values(call(copy, x))
    assert got.stride() == x.stride()
    same(got, x)


def check_kernels_of_others_run_as_before(dtype):
    call(copy, torch.zeros(4))
    x = draw(dtype, 40)
    same(copy(x), x)
    same(_rows_outside(x[:32].view(4, 8)), x[:32].view(4, 8).amax(1))


def _rows_outside(x):
    o = x.new_empty(x.shape[0])
    _rows[(1,)](x.contiguous(), o, OP="max", M=x.shape[0], N=x.shape[1])
    return o


def check_no_launch_leaves_the_poison():
    x = draw(torch.float32, 40)
    assert values(call(copy, x, launch=False)).isnan().all()
    plausible = values(call(copy, x.repeat(200), launch=False, poison=1))
    assert 0.8 < float(plausible.std()) < 1.2  # what knows poison by its looks does not know this
    assert abs(float(plausible.mean())) < 0.2
    assert (values(call(copy, x.int(), launch=False)) != x.int()).all()
    result = call(copy, x, launch=False)
    assert result.launches == 1
    assert result.traffic == ()


@triton.jit
def _unmasked(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v, mask=i < BLOCK)


def check_masked_lanes_are_undefined():
    def run(x):
        o = x.new_empty(32)
        _unmasked[(1,)](x, o, x.numel(), BLOCK=32)
        return o

    got = values(call(run, draw(torch.bfloat16, 20)))
    assert got[20:].isnan().all()
    assert not got[:20].isnan().any()


@triton.jit
def _last_wins(o):
    tl.store(o, tl.program_id(0).to(tl.float32))


def check_order_of_programs():
    def run(x):
        o = torch.empty_like(x)
        _last_wins[(5,)](o)
        return o

    x, off = torch.zeros(1), frozenset({Gate.ORDER})
    assert values(call(run, x, off=off)).item() == 4
    assert values(call(run, x, off=off, order=Order.REVERSED)).item() == 0
    shuffled = {values(call(run, x, off=off, order=Order.SHUFFLED, seed=s)).item() for s in range(8)}
    assert len(shuffled) > 2


def check_sampled_instances_mark_what_they_wrote():
    x = draw(torch.bfloat16, 32 * 50 + 7)
    result = call(copy, x, instances=6, seed=3)
    (written,) = result.written
    blocks = [bool(b.all()) for b in written.split(32)]
    assert sum(blocks) == 6
    assert blocks[0]
    assert blocks[-1]
    assert written.sum() == 5 * 32 + 7
    same(values(result)[written], x[written])
    assert call(copy, x).written is None
    assert values(call(copy, x, instances=1000)).equal(x)


@triton.jit
def _halve(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0) * 0.5, mask=i < n)


@triton.jit
def _total(x, o, n, BLOCK: tl.constexpr):
    part = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        i = k + tl.arange(0, BLOCK)
        part += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + tl.program_id(0), tl.sum(part, 0))


def check_results_that_depend_on_programs_that_did_not_run_are_not_comparable():
    def run(x):
        half, o = torch.empty_like(x), x.new_empty(3)
        _halve[(triton.cdiv(x.numel(), 32),)](x, half, x.numel(), BLOCK=32)
        _total[(3,)](half, o, x.numel(), BLOCK=32)
        return o

    x = draw(torch.float32, 32 * 20)
    result = call(run, x, instances=4)
    assert not result.written[0].any()
    whole = call(run, x, instances=20)
    assert whole.written is None  # every program ran: what nothing stored is compared as well
    torch.testing.assert_close(values(whole), (x.sum() * 0.5).expand(3))
    assert len(result.traffic) == 2


def check_sampled_atomics_are_not_comparable():
    def run(x):
        o = torch.zeros(4, device=x.device)
        _accumulate[(8,)](x, o, x.numel(), BLOCK=16)
        return o

    def goes_on(x):
        return copy(run(x))

    x = draw(torch.float32, 128)
    for sums in (run, goes_on):  # a later launch reads sums that lack most of their terms
        assert not call(sums, x, instances=3).written[0].any()
        assert call(sums, x, instances=8).written is None


@triton.jit
def _overwrite(x):
    tl.store(x + 1, 5.0)


def check_written_inputs_are_named():
    def run(x, w):
        o = torch.empty_like(x)
        _copy[(1,)](x, o, x.numel(), BLOCK=32)
        _overwrite[(1,)](w)
        return o

    assert call(run, torch.zeros(4), params=(torch.ones(4),)).inputs_changed == ("q0",)
    assert call(copy, torch.zeros(4)).inputs_changed == ()


@triton.jit
def _read_beyond(x, o, by):
    tl.store(o, tl.load(x + by))


@triton.jit
def _write_beyond(o, by):
    tl.store(o + by, 1.0)


def check_out_of_bounds():
    def reads(x):
        o = torch.empty_like(x)
        _read_beyond[(1,)](x, o, 4)
        return o

    def writes(x):
        o = torch.empty_like(x)
        _write_beyond[(1,)](o, -1)
        return o

    read, write = call(reads, torch.zeros(4)), call(writes, torch.zeros(4))
    assert read.status is Status.OUT_OF_BOUNDS
    assert "load at element 4 of x0, which has 4 elements (program (0, 0, 0))" in read.message
    assert "line" in read.message
    assert write.status is Status.OUT_OF_BOUNDS
    assert "store at element -1 of t0" in write.message


@triton.jit
def _pick(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(tl.where(i % 2 == 0, x + i, y + i)))


def check_one_access_may_touch_several_tensors():
    def run(x, y):
        o = torch.empty_like(x)
        _pick[(1,)](x, y, o, N=16)
        return o

    x, y = draw(torch.float32, 16), draw(torch.float32, 16) + 9
    same(values(call(run, x, y)), torch.where(torch.arange(16) % 2 == 0, x, y))


@triton.jit
def _through_descriptor(x, o, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(o, [rows, columns], [columns, 1], [M, N])
    at = [tl.program_id(0) * M, 0]
    target.store(at, source.load(at) * 2)


def check_tensor_descriptors(dtype):
    def run(x):
        o = torch.empty_like(x)
        _through_descriptor[(2,)](x, o, x.shape[0], x.shape[1], M=8, N=32)
        return o

    x = draw(dtype, 13, 16)
    same(values(call(run, x)), x * 2)


def check_a_stray_address_does_not_land_in_another_tensor():
    def run(x):
        o = torch.empty_like(x)
        _read_beyond[(1,)](x, o, x.numel() + 5000)
        return o

    assert call(run, draw(torch.float32, 1 << 16)).status is Status.OUT_OF_BOUNDS


@triton.jit
def _make_index(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, n - 1 - i, mask=i < n)


@triton.jit
def _follow(index, x, o, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + tl.load(index + i)))


def check_addresses_from_programs_that_did_not_run_are_no_fault():
    def run(x):
        index, o = torch.empty_like(x, dtype=torch.int32), torch.empty_like(x)
        _make_index[(20,)](index, x.numel(), BLOCK=32)
        _follow[(20,)](index, x, o, BLOCK=32)
        return o

    x = draw(torch.float32, 640)
    result = call(run, x, instances=3)
    (written,) = result.written
    same(values(result)[written], x.flip(0)[written])
    assert 0 < written.sum() < 640


def check_faults_have_their_status_and_line():
    def fails(x):
        raise IndexError("no such row")

    def computes(x):
        return x + 1

    def returns_input(x):
        return x.view(-1)

    def returns_twice(x):
        o = torch.empty_like(x)
        return o, o.view(-1)

    def returns_number(x):
        return 3

    x = torch.zeros(4)
    failed = call(fails, x)
    assert failed.status is Status.RUNTIME_ERROR
    assert failed.message.startswith("line ")
    assert "no such row" in failed.message
    assert call(computes, x).status is Status.STATIC_ERROR
    assert "aten.add" in call(computes, x).message
    for wrong in (returns_input, returns_twice, returns_number):
        assert call(wrong, x).status is Status.WRONG_OUTPUT, wrong


def check_global_state_is_compared_and_restored():
    def run(x):
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(5)
        return copy(x)

    assert set(call(run, torch.zeros(4)).state_changed) == {"default dtype", "torch random state"}
    assert torch.get_default_dtype() == torch.float32
    assert call(copy, torch.zeros(4)).state_changed == ()


def check_prepare_sees_parameters_only():
    def prepare(w, b):
        return (w + b,)

    def run(x, folded):
        o = torch.empty_like(x)
        _binary[(1,)](x, folded, o, x.numel(), OP="mul", BLOCK=8)
        return o

    def spoils(w, b):
        return w.add_(b)

    x, w, b = draw(torch.bfloat16, 8), draw(torch.bfloat16, 8), torch.ones(8, dtype=torch.bfloat16)
    same(values(call(run, x, params=(w, b), prepare=prepare)), x * (w + b))
    before = w.clone()
    assert call(run, x, params=(w, b), prepare=spoils).status is Status.INPUT_WRITTEN
    same(w, before)


@triton.jit
def _relu(x, o, n, KEEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0.0)
    c = tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL) if KEEP else tl.maximum(a, 0.0)
    tl.store(o + i, c, mask=i < n)


def check_maximum_keeps_nan_as_the_interpreter_has_it(dtype):
    """On a device it drops NaN unless told to keep it; there the values decide."""
    x = torch.tensor([float("nan"), -1.0, 2.0]).to(dtype)

    def run(x, *, keep):
        out = torch.empty_like(x)
        _relu[(1,)](x, out, 3, KEEP=keep, BLOCK=4)
        return out

    for keep in (False, True):
        got = values(call(lambda x, keep=keep: run(x, keep=keep), x))
        assert got.isnan().tolist() == [True, False, False]
        same(got[1:], torch.tensor([0.0, 2.0]).to(dtype))


@triton.jit
def _corner(x, o, n, row, rows, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = (i < n) & (row < rows)  # of a block and a scalar
    tl.store(o + i, tl.load(x + i, mask=mask, other=0.0), mask=mask)


def check_a_mask_of_a_block_and_a_scalar():
    def run(x):
        out = torch.empty_like(x)
        _corner[(1,)](x, out, 3, 0, 1, BLOCK=8)
        return out

    same(values(call(run, torch.arange(3.0))), torch.arange(3.0))


def check_results_without_elements():
    result = call(lambda x: torch.empty_like(x), torch.zeros(0, 4))
    assert values(result).shape == (0, 4)


def check_traffic_of_a_copy():
    x = draw(torch.float16, 32 * 40)
    (traffic,) = call(copy, x, instances=5).traffic
    assert (traffic.programs, traffic.total) == (5, 40)
    assert traffic.load_bytes == traffic.store_bytes == 5 * 64
    assert traffic.load_sectors == traffic.store_sectors == 5 * 2
    assert traffic.unique_load_bytes == traffic.unique_store_bytes == 5 * 64
    assert {(a.kind, a.elements, a.itemsize, a.run, a.count) for a in traffic.accesses} == {
        ("load", 32, 2, 32, 5),
        ("store", 32, 2, 32, 5),
    }
    assert [b.buffer for b in traffic.buffers] == ["t0", "x0"]


@triton.jit
def _column(x, o, stride, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(x + i * stride) + tl.load(x + i * stride))


def check_traffic_of_strided_and_repeated_loads():
    def run(x):
        o = x.new_empty(64)
        _column[(1,)](x, o, x.stride(0), N=64)
        return o

    (traffic,) = call(run, draw(torch.float32, 64, 32)).traffic
    assert traffic.load_bytes == 2 * 64 * 4
    assert traffic.load_sectors == 2 * 64
    assert traffic.unique_load_bytes == 64 * 32
    assert traffic.scalar_ops == 64
    assert {a.run for a in traffic.accesses if a.kind == "load"} == {1}


def check_traffic_of_a_dot():
    def run(x, y):
        o = torch.empty_like(x)
        _dot[(1,)](x, y, o, N=32)
        return o

    (traffic,) = call(run, draw(torch.bfloat16, 32, 32), draw(torch.bfloat16, 32, 32)).traffic
    assert traffic.dot_flops == (("bfloat16", 2 * 32**3),)
    assert [(d.m, d.n, d.k, d.count) for d in traffic.dots] == [(32, 32, 32, 1)]


def report(checks):
    """Run every check in a namespace: the traceback of each that fails, None for the others."""
    results = {}
    for name, check in list(checks.items()):
        if name.startswith("check_"):
            typed = check.__code__.co_argcount == 1
            for suffix, arguments in (
                {f"[{d}]": (t,) for d, t in DTYPES.items()} if typed else {"": ()}
            ).items():
                try:
                    check(*arguments)
                    results[name + suffix] = None
                except Exception:  # noqa: BLE001 (reported to the test)
                    results[name + suffix] = traceback.format_exc()
    return results


if __name__ == "__main__":
    json.dump(report(globals()), sys.stdout)
