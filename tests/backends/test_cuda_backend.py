"""Candidates on a device: what is found there, and that a fault costs one child."""

import pickle
import time

import pytest
import torch
from chip_specs import H200

from mkevolve.backends.cuda import CudaBackend
from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.errors import BackendError
from mkevolve.interfaces import Case, CaseResult, CompileJob, Order, RunJob

HEAD = """
import os, time
import torch, triton, triton.language as tl

@triton.jit
def double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@triton.jit
def total(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))

@triton.jit
def last_one_wins(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + tl.arange(0, B), tl.load(x + i, mask=i < n))

@triton.jit
def waits(x, o, n, B: tl.constexpr):
    while tl.load(x, volatile=True) == 0.0:
        pass

@triton.jit
def tells(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)

@triton.jit
def asserts(x, o, n, B: tl.constexpr):
    tl.device_assert(tl.load(x) > 1e9, "no")

@triton.jit
def rows(x, o, columns, down, across, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * down + at * across, mask=at < columns)
    tl.store(o + tl.program_id(0) * columns + at, v * 2, mask=at < columns)

def grid(x):
    return (triton.cdiv(x.numel(), 256),)

def doubled(x):
    out = torch.empty_like(x)
    double[grid(x)](x, out, x.numel(), B=256)
    return out

"""
RAMP = torch.arange(1000.0)
LONG = torch.rand(1 << 20, generator=torch.Generator().manual_seed(3))


def run_of(*lines: str, head: str = HEAD) -> str:
    """A candidate whose `run(x)` has these lines, and returns `out` of x's shape unless they return."""
    text = ("out = torch.empty_like(x)", *lines, "return out")
    return head + "def run(x):\n" + "".join(f"    {line}\n" for line in text)


DOUBLE = "double[grid(x)](x, out, x.numel(), B=256)"
GOOD = run_of(DOUBLE)


def case(*activations: torch.Tensor, params: tuple[torch.Tensor, ...] = (), **more: object) -> Case:
    content = [(t.dtype, tuple(t.shape), t.stride(), t.double().tolist()) for t in (*activations, *params)]
    return Case(str(hash(str(content))), "check_0", activations, params, **more)


@pytest.fixture(scope="module")
def device():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs the chip of the tests")
    made = CudaBackend(H200)
    yield made
    made.close()


def run(backend, source: str, *cases: Case, **more: object) -> tuple[CaseResult, ...]:
    return backend.run(RunJob(source, Configuration(), cases or (case(RAMP),), **more))


def works(backend) -> bool:
    (result,) = run(backend, GOOD)
    return result.status is Status.PASSED and torch.equal(result.outputs[0], RAMP * 2)


@pytest.mark.interp
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a device")
def test_without_a_device_the_message_says_so():
    backend = CudaBackend(H200)
    try:
        with pytest.raises(BackendError, match="CUDA cannot be used here"):
            run(backend, GOOD)
    finally:
        backend.close()


@pytest.mark.gpu
class TestResults:
    def test_values_strides_and_dtypes_come_back(self, device):
        cases = [
            case(torch.randn(6, 8).t()),
            case(torch.randn(5, dtype=torch.float16)),
            case(torch.randn(70).bfloat16()),
            case(torch.arange(9)),
        ]
        results = run(device, GOOD, *cases)
        assert [r.status for r in results] == [Status.PASSED] * 4, [r.message for r in results]
        for one, result in zip(cases, results, strict=True):
            (want,), (got,) = one.activations, result.outputs
            assert torch.equal(got, want * 2)
            assert (got.dtype, got.stride()) == (want.dtype, torch.empty_like(want).stride())
            assert (result.inputs_changed, result.state_changed) == ((), ())
            assert result.activities == (Activity("double", 1),)

    def test_inputs_with_gaps_and_shared_elements(self, device):
        source = HEAD + (
            "def run(x):\n    out = torch.empty(x.shape, device=x.device)\n"
            "    rows[(x.shape[0],)](x, out, x.shape[1], x.stride(0), x.stride(1), B=16)\n    return out\n"
        )
        given = [torch.randn(4, 1).expand(4, 5), torch.randn(6, 20)[:, 3:9:2], torch.randn(7, 3).t()]
        for x, result in zip(given, run(device, source, *map(case, given)), strict=True):
            assert result.status is Status.PASSED, result.message
            assert torch.equal(result.outputs[0], x * 2)
            assert result.inputs_changed == ()

    def test_prepare_runs_on_the_device_and_its_results_stay_as_they_are(self, device):
        source = HEAD + (
            "def prepare(w):\n    return (w.double() * 3).float()[1:]\n"
            "def run(x, q):\n    return doubled(q)\n"
        )
        (result,) = run(device, source, case(RAMP, params=(torch.arange(9.0),)))
        assert result.status is Status.PASSED, result.message
        assert torch.equal(result.outputs[0], torch.arange(9.0)[1:] * 6)

    def test_nan_is_dropped_as_the_device_drops_it(self, device):
        x = torch.tensor([1.0, float("nan"), -2.0])
        (result,) = run(device, run_of("tells[grid(x)](x, out, x.numel(), B=256)"), case(x))
        assert torch.equal(result.outputs[0], torch.tensor([1.0, 0.0, 0.0]))

    def test_a_copy_of_the_backend_works(self, device):
        again = pickle.loads(pickle.dumps(device))
        try:
            assert works(again)
        finally:
            again.close()

    def test_what_is_compiled_is_not_compiled_again(self, device):
        source = run_of(DOUBLE, "# of its own")
        spec = run_spec(RAMP)
        compiled = device.compile(CompileJob(source, Configuration(), (("v", (spec,), ()),), H200))
        assert compiled.status is Status.PASSED, compiled.message
        run(device, source)  # which starts a zygote
        began = time.perf_counter()
        (result,) = run(device, source)
        assert result.status is Status.PASSED
        assert time.perf_counter() - began < 2.0
        assert result.seconds < 0.2  # a launcher and ptxas take longer


def run_spec(tensor: torch.Tensor):
    from mkevolve.data.graph import TensorSpec

    return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.stride())


@pytest.mark.gpu
class TestFaults:
    @pytest.mark.parametrize(
        ("lines", "status", "words"),
        [
            (["double[grid(x)](x, out, x.numel() + 7, B=256)"], Status.OUT_OF_BOUNDS, "t0 (element 1000"),
            (["out = torch.empty(998, device=x.device)", DOUBLE], Status.OUT_OF_BOUNDS, "t1 (element 998 of"),
            (["double[grid(x)](x, x[990:], 1000, B=256)"], Status.OUT_OF_BOUNDS, "x0 (element 1000 of 1000)"),
            (["double[(1 << 22,)](x, out, 1 << 30, B=256)"], Status.OUT_OF_BOUNDS, "illegal memory access"),
            (["asserts[(1,)](x, out, 1, B=256, debug=True)"], Status.RUNTIME_ERROR, "assertion"),
            (["torch.empty(1 << 42, device=x.device)"], Status.RUNTIME_ERROR, "out of memory"),
            (["raise ValueError('three')"], Status.RUNTIME_ERROR, "ValueError: three"),
            (["out = x + 1"], Status.STATIC_ERROR, "aten.add"),
            (["out = torch.empty(1000)"], Status.STATIC_ERROR, "allocates on cpu"),
            (["return x"], Status.WRONG_OUTPUT, "shares its storage with an input"),
            (["return out.cpu()"], Status.STATIC_ERROR, "run calls"),
            (["os._exit(0)"], Status.RUNTIME_ERROR, "without an answer"),
            (["os.abort()"], Status.RUNTIME_ERROR, "SIGABRT"),
        ],
    )
    def test_a_fault_is_named_and_costs_one_child(self, device, lines, status, words):
        (result,) = run(device, run_of(*lines))
        assert result.status is status, result
        assert words in result.message
        assert works(device)

    def test_results_before_a_device_error_are_kept(self, device):
        wild = "double[(1 << 22,)](x, out, 1 << 30, B=256)"
        results = run(device, run_of(f"if x.numel() == 3: {wild}", DOUBLE), case(RAMP), case(torch.ones(3)))
        assert [r.status for r in results] == [Status.PASSED, Status.OUT_OF_BOUNDS]
        assert torch.equal(results[0].outputs[0], RAMP * 2)

    def test_a_kernel_that_hangs_is_ended_at_its_deadline(self, device):
        assert works(device)  # which starts a zygote
        began = time.perf_counter()
        (result,) = run(device, run_of("waits[(1,)](x, out, 1, B=256)"), case(torch.zeros(4)), deadline=3.0)
        assert result.status is Status.TIMEOUT
        assert 3.0 <= time.perf_counter() - began < 10.0
        assert works(device)

    def test_a_written_input_is_named(self, device):
        (result,) = run(device, run_of("double[grid(x)](x, x, x.numel(), B=256)", DOUBLE))
        assert result.inputs_changed == ("x0",)
        assert (result.tensor, result.index) == ("x0", (1,))  # twice 0 is 0

    @pytest.mark.parametrize(
        ("line", "status", "words"),
        [
            ("w.mul_(2.0)", Status.INPUT_WRITTEN, "prepare writes to its parameter p0 at [1]"),
            ("w = w + torch.rand_like(w)", Status.NONDETERMINISTIC, "prepare differs from call to call"),
        ],
    )
    def test_what_prepare_must_not_do(self, device, line, status, words):
        source = (
            HEAD + f"def prepare(w):\n    {line}\n    return w\n\ndef run(x, q):\n    return doubled(q)\n"
        )
        (result,) = run(device, source, case(RAMP, params=(torch.arange(9.0),)))
        assert result.status is status, result
        assert words in result.message

    @pytest.mark.parametrize(
        "line", ["torch.set_default_dtype(torch.float64)", "torch.cuda.set_stream(torch.cuda.Stream())"]
    )
    def test_changed_state_is_named(self, device, line):
        results = run(device, run_of(DOUBLE, line), case(RAMP), case(RAMP))
        assert results[0].state_changed in (("default dtype",), ("current stream",))

    def test_work_on_another_stream_is_refused(self, device):
        source = run_of("with torch.cuda.stream(torch.cuda.Stream()):", f"    {DOUBLE}")
        (result,) = run(device, source)
        assert result.status is Status.STATIC_ERROR
        assert "another stream" in result.message


@pytest.mark.gpu
class TestRepeats:
    @pytest.mark.parametrize(
        "line",
        [
            "last_one_wins[grid(x)](x, out, x.numel(), B=256)",
            "out = torch.zeros(1, device=x.device); total[grid(x)](x, out, x.numel(), B=256)",
        ],
    )
    def test_a_race_gives_other_bits(self, device, line):
        turned = case(LONG, order=Order.SHUFFLED)
        (result,) = run(device, run_of(line), turned)
        assert result.status is Status.NONDETERMINISTIC
        assert "differs first at" in result.message
        (allowed,) = run(device, run_of(line), turned, off=frozenset({Gate.REPEAT}))
        assert allowed.status is Status.PASSED

    def test_a_sound_kernel_repeats_itself(self, device):
        (result,) = run(device, GOOD, case(LONG, order=Order.REVERSED))
        assert result.status is Status.PASSED, result.message


@pytest.mark.gpu
class TestNoLaunches:
    def test_allocations_hold_poison_or_any_numbers(self, device):
        fills = run_of("more = torch.zeros_like(x)", DOUBLE, "return out, more")
        results = run(device, fills, *(case(RAMP, launch=False, poison=p) for p in (0, 1)))
        assert [r.status for r in results] == [Status.PASSED] * 2
        (one, one_more), (two, two_more) = (r.outputs for r in results)
        assert one.isnan().all()
        assert one_more.isnan().all()
        assert two.isfinite().all()
        assert two_more.isfinite().all()
        assert len(two.unique()) > 500

    def test_decoys_reach_the_kernels_and_nothing_else(self, device):
        (result,) = run(device, GOOD, case(RAMP, decoy=True))
        assert result.status is Status.PASSED, result.message
        assert torch.equal(result.outputs[0], RAMP.flip(0) * 0.75 * 2)
        assert result.inputs_changed == ()

    def test_with_launches_zeros_are_zeros(self, device):
        (result,) = run(device, run_of("return torch.zeros_like(x)"))
        assert (result.outputs[0] == 0).all()


@pytest.mark.gpu
class TestProfile:
    def test_own_kernels_and_fills_are_seen(self, device):
        source = run_of("more = torch.zeros(64, device=x.device)", DOUBLE)
        (result,) = run(device, source, profile=True)
        assert result.status is Status.PASSED, result.message
        own, *others = sorted(result.activities, key=lambda a: a.name != "double")
        assert (own.name, own.count) == ("double", 1)
        assert 0.3 < own.us < 50
        assert [a.count for a in others] == [1]
        assert "FillFunctor" in others[0].name or others[0].name.startswith("Memset")

    def test_kernels_hidden_from_dispatch_are_seen(self, device):
        source = run_of("with torch._C._DisableTorchDispatch():", "    x = x + 0.0", DOUBLE)
        (result,) = run(device, source)
        assert result.status is Status.PASSED
        (result,) = run(device, source, profile=True)
        assert len(result.activities) == 2
        assert any("add" in a.name.lower() for a in result.activities)
