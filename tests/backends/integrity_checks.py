"""What a call of a candidate may not do, seen by the interpreter; `test_interpreter.py` runs this file in a
child process. What ends the process (a touch of shut pages) is tested through a backend.
"""

import atexit
import gc
import json
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import interpreter_checks as base
import numpy as np
import torch
import triton
import triton.language as tl
from interpreter_checks import call, copy, draw, same, values

from mkevolve.backends import interpreter
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Order

SOURCE = Path(__file__).read_text().splitlines()


@triton.jit
def _erf(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.erf(tl.load(x + i, mask=i < n)), mask=i < n)


def erf(x, *_):
    o = torch.empty_like(x)
    _erf[(1,)](x, o, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return o


def check_torch_calls_inside_a_launch_are_the_interpreters_own():
    x = draw(torch.float32, 20)
    same(values(call(erf, x)), torch.erf(x))  # the interpreter calls torch.erf


COMPUTE = {
    "aten.add": lambda x, o: x + 1,
    "aten.mm": lambda x, o: x @ x,
    "aten.copy_": lambda x, o: o.copy_(x),
    "aten.fill_": lambda x, o: o.fill_(0.0),
    "aten._to_copy": lambda x, o: x.double(),
    "aten.clone": lambda x, o: x.t().contiguous(),
    "aten._softmax": lambda x, o: torch.ops.aten._softmax(x, -1, False),
    "aten._local_scalar_dense": lambda x, o: float(x[0, 0]),
    "aten.zeros.out": lambda x, o: torch.zeros((4, 4), out=o),
    "aten.random_": lambda x, o: o.random_(),
    "aten.arange": lambda x, o: torch.arange(4),
    "aten.is_same_size": lambda x, o: torch.ops.aten.is_same_size(x, x),
    "aten.equal": lambda x, o: torch.equal(x, x),
}


def check_torch_compute_of_run_is_refused_by_name_before_and_after_a_launch():
    for name, compute in COMPUTE.items():
        for first in (True, False):

            def run(x, compute=compute, first=first):
                o = torch.empty_like(x)
                if first:
                    compute(x, o)
                o = copy(x)
                compute(x, o)
                return o

            result = call(run, draw(torch.float32, 4, 4))
            assert result.status is Status.STATIC_ERROR, (name, result)
            assert name in result.message, (name, result.message)


def check_allocations_and_views_are_allowed():
    def run(x):
        for made in (
            torch.zeros(3), torch.ones(2, 2), torch.full((2,), 7), torch.empty_strided((2, 2), (4, 1)),
            x.new_empty(3), x.new_zeros(3), x.new_ones(1), x.new_full((2,), 1.0), torch.zeros_like(x),
            torch.full_like(x, 2.0), x.new_empty_strided((2,), (3,)), torch.empty_permuted((2, 3), (1, 0)),
        ):  # fmt: skip
            made.view(-1) if made.is_contiguous() else made.t()
        return copy(x.t().t().unsqueeze(0)[0].expand(4, 4).detach().as_strided((4, 4), (4, 1)))

    x = draw(torch.float32, 4, 4)
    same(values(call(run, x)), x)


@triton.jit
def _poke(x, at):
    tl.store(x + at, tl.load(x + at) * 2 + 1)


def poking(position, at):
    def run(*tensors):
        o = copy(tensors[0])
        _poke[(1,)](tensors[position], at)
        return o

    return run


def check_writes_to_inputs_are_found_by_their_bytes():
    x, w = draw(torch.float32, 3, 5), draw(torch.float32, 2, 4)
    activation = call(poking(0, 7), x, params=(w,))
    assert (activation.inputs_changed, activation.tensor, activation.index) == (("x0",), "x0", (1, 2))
    raw = call(poking(1, 5), x, params=(w,))
    assert (raw.inputs_changed, raw.index) == (("q0",), (1, 1))
    made = call(poking(1, 5), x, params=(w,), prepare=lambda w: w.t().contiguous())
    assert (made.inputs_changed, made.index) == (("q0",), (2, 1))
    # nothing is equal to a NaN, but its bytes are
    nan = torch.full((4,), float("nan"))
    assert call(copy, nan).inputs_changed == ()
    assert call(poking(0, 2), nan).inputs_changed == ()  # NaN * 2 + 1: the same bits again
    negative = call(lambda x: _flip(x), torch.zeros(4))
    assert negative.inputs_changed == ("x0",)  # -0.0 is equal to 0.0


@triton.jit
def _negate(x):
    tl.store(x + 1, tl.load(x + 1) * -1.0)


def _flip(x):
    o = copy(x)
    _negate[(1,)](x)
    return o


def check_gaps_between_elements_hold_poison_and_are_compared():
    x = draw(torch.float32, 4, 12)[:, :8]  # 4 elements of no tensor after each row

    def peeks(x):
        o = x.new_empty(16)
        base._copy[(1,)](x.as_strided((16,), (1,)), o, 16, BLOCK=16)
        return o

    seen = values(call(peeks, x))
    assert seen[8:12].isnan().all()
    same(seen[12:], x[1, :4])
    written = call(poking(0, 10), x, poison=1)
    assert (written.inputs_changed, written.index) == (("x0",), (0, 7))
    rows = torch.arange(6.0).reshape(2, 1, 3).expand(2, 4, 3)
    got = call(lambda x: copy(x.select(1, 0).as_strided((6,), (1,))), rows)
    same(values(got), torch.arange(6.0))


def check_margins_are_compared():
    def run(x):
        o = torch.empty_like(x)
        _through_the_back(o)
        return o

    result = call(run, torch.zeros(4), off=frozenset({Gate.HOST}))
    assert result.status is Status.OUT_OF_BOUNDS
    assert "around t0" in result.message


def _through_the_back(tensor):
    import ctypes

    ctypes.memset(tensor.data_ptr() + 16, 0, 4)


ALLOCATIONS = {
    "empty": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype),
    "zeros": lambda x: torch.zeros(x.shape, dtype=x.dtype),
    "ones": lambda x: torch.ones(x.shape, dtype=x.dtype),
    "full": lambda x: torch.full(x.shape, 1, dtype=x.dtype),
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda x: x.new_zeros(x.shape),
    "new_full": lambda x: x.new_full(x.shape, 1),
    "new_ones": lambda x: x.new_ones(x.shape),
    "new_empty": lambda x: x.new_empty(x.shape),
}


def check_without_launches_every_allocation_holds_two_different_poisons():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool):
        x = torch.zeros(3, 5).to(dtype)
        for name, make in ALLOCATIONS.items():
            still = [values(call(lambda x, m=make: m(x), x, launch=False, poison=p)) for p in (0, 1)]
            bits = [s.view(torch.int8 if s.dtype == torch.bool else s.dtype) for s in still]
            assert not (bits[0] == bits[1]).any(), (name, dtype)
            filled = values(call(lambda x, m=make: m(x), x)) if "empty" not in name else None
            assert filled is None or not all(torch.equal(s, filled) for s in still), (name, dtype)


@triton.jit
def _count(o):
    tl.store(o, 1.0)


def check_the_launch_is_disabled_where_no_name_of_the_candidate_reaches():
    launch = _count[(1,)]  # made before, kept by the candidate

    def run(x):
        flag = x.new_zeros(1)
        launch(flag)
        _count.run(flag, grid=(1,), warmup=False) if not hasattr(_count, "rewrite") else _count[(1,)](flag)
        return flag

    assert values(call(run, torch.zeros(1))).item() == 1.0
    assert values(call(run, torch.zeros(1), launch=False)).isnan().all()
    assert call(run, torch.zeros(1), launch=False).launches == 2


def check_an_exception_and_none_without_launches_are_told_apart_from_results():
    def raises(x):
        raise ValueError("nothing ran")

    failed, nothing = (
        call(raises, torch.zeros(3), launch=False),
        call(lambda x: None, torch.zeros(3), launch=False),
    )
    assert (failed.status, nothing.status) == (Status.RUNTIME_ERROR, Status.WRONG_OUTPUT)
    assert "result 0 is a NoneType" in nothing.message


def check_launches_read_decoys():
    x, w = draw(torch.float32, 40), draw(torch.float32, 3)
    same(values(call(copy, x, decoy=True)), x.flip(0) * 0.75)
    assert call(copy, x, decoy=True).inputs_changed == ()
    same(values(call(copy, torch.arange(5), decoy=True)), torch.arange(5).flip(0))
    same(values(call(copy, params=(w,), decoy=True)), w.flip(0) * 0.75)
    keeps = call(lambda x, w: copy(w), x, params=(w,), decoy=True)
    same(values(keeps), w)  # parameters stay where there are activations


def check_address_and_content_vary_apart():
    seen = {}
    for number in range(24):
        content = number % 3
        x, where = torch.full((300,), float(content)), []

        def run(x, where=where):
            where.append((x.data_ptr(), id(x)))
            return copy(x)

        result = call(run, x, poison=number % 2)
        same(values(result), x)
        seen.setdefault(where[0][0], set()).add(content)
    assert len(seen) >= 4, "one content comes to several addresses"
    assert all(len(contents) > 1 for contents in list(seen.values())[:3]), "an address sees several contents"


def check_many_calls_give_the_bits_of_the_first():
    one, other = draw(torch.float16, 64, 64), draw(torch.float16, 8, 16)
    first = values(call(lambda x: base._rows_outside(x), one[:8, :16].contiguous()))
    for _ in range(10):
        same(values(call(lambda x: base._rows_outside(x), one[:8, :16].contiguous())), first)
        call(lambda x: base._rows_outside(x), other)


def check_memory_of_earlier_calls_is_shut():
    kept = []

    def run(x):
        kept.append(x)
        return copy(x)

    call(run, torch.zeros(4))
    call(copy, torch.zeros(4))
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        kept[0].numpy().sum()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV


def _grad_off():
    torch._C._set_grad_enabled(True)


CHANGES = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "float32 matmul precision": lambda: torch.set_float32_matmul_precision("high"),
    "backend flags": lambda: setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    "grad mode": _grad_off,
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(not torch.is_anomaly_enabled()),
    "autocast": lambda: torch.set_autocast_enabled("cpu", not torch.is_autocast_enabled("cpu")),
    "deterministic algorithms": lambda: torch._C._set_deterministic_algorithms(True),
    "module hooks": lambda: torch.nn.modules.module.register_module_forward_hook(lambda *a: None),
    "number of torch threads": lambda: torch.set_num_threads(3),
    "flushing of denormal numbers": lambda: torch.set_flush_denormal(True),
    "torch random state": lambda: torch.manual_seed(77),
    "numpy random state": lambda: np.random.seed(5),
    "python random state": lambda: random.seed(5),
    "environment": lambda: os.environ.__setitem__("MKEVOLVE_TEST", str(len(os.environ))),
    "working folder": lambda: os.chdir("/"),
    "warning filters": lambda: warnings.simplefilter("ignore"),
    "signal handlers": lambda: signal.signal(signal.SIGUSR1, lambda *a: None),
    "tracing": lambda: sys.setprofile(lambda *a: None),
    "garbage collector": lambda: gc.callbacks.append(lambda *a: None),
    "import system": lambda: sys.path.append("/tmp"),
    "exit handlers": lambda: atexit.register(lambda: None),
    "threads": lambda: threading.Thread(target=threading.Event().wait, args=(5.0,), daemon=True).start(),
}


def check_each_change_of_global_state_is_named():
    folder = os.getcwd()
    for name, change in CHANGES.items():

        def run(x, change=change):
            o = copy(x)
            change()
            return o

        result = call(run, torch.zeros(4))
        sys.setprofile(None)
        torch.set_flush_denormal(False)
        torch.set_num_threads(1)
        assert name in result.state_changed, (name, result)
        assert result.state_changed in ((name,), (name, "torch modes")), (name, result)
    os.chdir(folder)
    assert call(copy, torch.zeros(4)).state_changed == ()


def check_torch_modes_left_are_named():
    from torch.overrides import TorchFunctionMode

    def run(x):
        o = copy(x)
        TorchFunctionMode().__enter__()
        return o

    result = call(run, torch.zeros(4))
    assert result.status is Status.STATE_CHANGED
    assert "torch modes" in result.message


def check_a_default_device_and_an_inference_mode_left_are_named():
    def sets_device(x):
        o = copy(x)
        torch.set_default_device("meta")
        return o

    result = call(sets_device, torch.zeros(4))
    torch.set_default_device(None)
    assert result.status is Status.STATE_CHANGED, result
    assert torch.empty(1).device.type == "cpu"

    def infers(x):
        o = copy(x)
        guards.append(torch._C._InferenceMode(True))
        return o

    guards, pid = [], os.fork()  # no later call would find this thread as it was
    if pid == 0:
        named = "inference mode" in call(infers, torch.zeros(4)).state_changed
        os._exit(0 if named else 1)
    assert os.waitpid(pid, 0)[1] == 0


def check_a_flag_that_contradicts_another_is_named():
    def run(x):
        o = copy(x)
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        return o

    result = call(run, torch.zeros(4))
    torch.backends.cuda.matmul.fp32_precision = "none"
    assert set(result.state_changed) & {"backend flags", "float32 matmul precision"}, result
    assert call(copy, torch.zeros(4)).state_changed == ()


def check_replaced_functions_are_named():
    real = torch.empty_like

    def run(x):
        o = copy(x)
        torch.empty_like = lambda *a, **k: real(*a, **k)
        return o if last else copy(x)

    for last in (True, False):
        result = call(run, torch.zeros(4))
        torch.empty_like = real
        if last:
            assert result.state_changed == ("torch.empty_like",)
        else:
            assert result.status is Status.STATE_CHANGED
            assert "torch.empty_like before a launch" in result.message

    def recodes(x):
        function = interpreter.results.plain_fault
        codes.append(function.__code__)
        o = copy(x)
        function.__code__ = (lambda value: "").__code__
        return o

    codes = []
    result = call(recodes, torch.zeros(4))
    interpreter.results.plain_fault.__code__ = codes[0]
    assert result.state_changed == ("mkevolve.backends.results.plain_fault",)
    assert call(copy, torch.zeros(4)).state_changed == ()


def check_nothing_of_a_candidate_is_called_while_a_launch_runs():
    calls = []

    def run(x):
        o = torch.empty_like(x)
        sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name))
        try:
            base._copy[(1,)](x, o, 4, BLOCK=4)
        finally:
            sys.setprofile(None)
        return o

    result = call(run, torch.zeros(4))
    assert result.status is Status.STATE_CHANGED
    assert "tracing" in result.message
    assert "_interpret" not in calls


class Subclass(torch.Tensor):
    pass


RESULTS = {
    "a subclass of torch.Tensor": lambda o: o.as_subclass(Subclass),
    "Parameter": lambda o: torch.nn.Parameter(o),
    "requires grad": lambda o: o.requires_grad_(),
    "is lazily conjugated": lambda o: torch._neg_view(o),
    "is a NoneType": lambda o: None,
    "is a dict": lambda o: {"out": o},
    "is a float": lambda o: 1.0,
    "not allocate": lambda o: torch.from_numpy(np.zeros(4, np.float32)),
    "shares its storage with another result": lambda o: (o, o[2:]),
    "keeps 16 bytes alive, of which it shows 8": lambda o: o[:2],
}


def check_results_that_are_not_what_they_show_are_refused():
    for what, make in RESULTS.items():
        result = call(lambda x, make=make: make(copy(x)), torch.zeros(4))
        assert result.status is Status.WRONG_OUTPUT, (what, result)
        assert what in result.message, (what, result.message)
        if what.startswith(("Parameter", "a subclass")):
            prepared = call(lambda x, w: copy(x), torch.zeros(4), params=(torch.ones(4),), prepare=make)
            assert prepared.status is Status.STATIC_ERROR, prepared
    shared = call(lambda x, w: w.view(-1), torch.zeros(4), params=(torch.ones(4),))
    assert "shares its storage with an input, q0" in shared.message
    meta = call(lambda x: torch.empty(4, device="meta"), torch.zeros(4))
    assert meta.status is Status.STATIC_ERROR
    assert "run allocates on meta" in meta.message
    sparse = call(lambda x: torch.empty((2, 2), layout=torch.sparse_coo), torch.zeros(4))
    assert sparse.status is Status.STATIC_ERROR
    assert "sparse" in sparse.message


def check_functorch_wrappers_are_no_results():
    def run(x):
        return torch.func.vmap(lambda row: copy(row))(x)

    assert call(run, torch.zeros(2, 4)).status is not Status.PASSED


@triton.jit
def _at(x, o, at, mask, OP: tl.constexpr):
    i = at + tl.arange(0, 4)
    keep = tl.arange(0, 4) < mask
    if OP == "load":
        tl.store(o + tl.arange(0, 4), tl.load(x + i, mask=keep, other=0.0))
    elif OP == "store":
        tl.store(x + i, 1.0, mask=keep)
    elif OP == "add":
        tl.atomic_add(x + i, 1.0, mask=keep)
    elif OP == "cas":
        tl.atomic_cas(x + at, 0.0, 1.0)
    elif OP == "xchg":
        tl.atomic_xchg(x + i, 1.0, mask=keep)


def strays(operation, at, mask=4, **options):
    def run(x):
        o, w = torch.zeros_like(x), torch.zeros_like(x)
        _at[(1,)](w if operation != "load" else x, o, at, mask, OP=operation)
        return o

    return call(run, draw(torch.float32, 8), **options)


def check_strays_name_tensor_element_and_line():
    for operation in ("load", "store", "add", "cas", "xchg"):
        kind = operation if operation in ("load", "store") else "atomic"
        tensor = "x0" if operation == "load" else "t1"
        beyond, before = strays(operation, 8 if operation == "cas" else 6), strays(operation, -3)
        for result, index in ((beyond, 8), (before, -3)):
            assert result.status is Status.OUT_OF_BOUNDS, (operation, result)
            assert (result.tensor, result.index) == (tensor, (index,)), (operation, result)
            test = f'OP == "{operation}"'
            line = next(n for n, t in enumerate(SOURCE, 1) if t.strip().endswith(f"{test}:")) + 1
            assert result.message.startswith(f"line {line}: {kind} at element {index} of {tensor}, which"), (
                result
            )
    assert strays("load", 6, mask=2).status is Status.PASSED  # masked lanes touch nothing
    assert strays("store", 6, mask=2).status is Status.PASSED
    assert strays("load", 6, mask=3).index == (8,)


def check_strays_can_be_let_go():
    off = frozenset({Gate.BOUNDS})
    loaded = values(strays("load", 6, off=off))
    same(loaded[:2], draw(torch.float32, 8)[6:])
    assert loaded[2:4].isnan().all()
    for operation in ("store", "add", "cas"):
        result = strays(operation, -3, off=off)
        assert result.status is Status.PASSED, (operation, result)


@triton.jit
def _pass_on(x, o, n, FIRST: tl.constexpr, LAST: tl.constexpr):
    p = tl.program_id(0)
    if FIRST:
        tl.atomic_add(o + n, 1.0)
    before = tl.load(o + (p - 1), mask=p > 0, other=0.0)
    tl.store(o + p, before + tl.load(x + p))
    if LAST:
        tl.atomic_add(o + n, 1.0)


def passing_on(x, first=False, last=False):
    o = x.new_zeros(x.numel() + 1)
    _pass_on[(x.numel(),)](x, o, x.numel(), FIRST=first, LAST=last)
    return o


def check_a_load_of_what_another_program_stores_is_a_race():
    result = call(passing_on, torch.ones(5))
    assert (result.status, result.tensor, result.index) == (Status.RACE, "t0", (0,)), result
    line = SOURCE.index("    before = tl.load(o + (p - 1), mask=p > 0, other=0.0)") + 1
    assert result.message.startswith(
        f"line {line}: they race: program (1, 0, 0) reads t0 at [0], which program (0,"
    )
    # one that waits may read what another stored before it told so; an atomic on one side only is no order
    assert call(lambda x: passing_on(x, True, True), torch.ones(5)).status is Status.PASSED
    for one in ((True, False), (False, True)):
        assert call(lambda x, one=one: passing_on(x, *one), torch.ones(5)).status is Status.RACE, one
    assert call(passing_on, torch.ones(5), off=frozenset({Gate.ORDER})).status is Status.PASSED
    assert call(passing_on, torch.ones(1)).status is Status.PASSED


@triton.jit
def _overlap(x, o, n, SAME: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, 8)
    at = p * 4 + i
    v = tl.load(x + at, mask=at < n)
    tl.store(o + at, v if SAME else v + p, mask=at < n)


def check_stores_of_two_programs_to_one_element_race_where_the_values_differ():
    def run(x, same):
        o = torch.empty_like(x)
        _overlap[(3,)](x, o, x.numel(), SAME=same)
        return o

    x = draw(torch.float16, 4, 4)
    same(values(call(lambda x: run(x, True), x)), x)
    for options, first, second in (({}, 0, 1), ({"order": Order.REVERSED}, 2, 1)):
        result = call(lambda x: run(x, False), x, **options)
        assert (result.status, result.tensor) == (Status.RACE, "t0"), result
        assert f"program ({second}, 0, 0) stores another value to t0 at [" in result.message
        assert f"which program ({first}, 0, 0)" in result.message
        assert result.index == ((1, 0) if first == 0 else (2, 0))
    # also where only a few programs run
    big = draw(torch.float32, 4000)

    def many(x):
        o = torch.empty_like(x)
        _overlap[(999,)](x, o, x.numel(), SAME=False)
        return o

    assert call(many, big, instances=6).status is Status.RACE


@triton.jit
def _twice(x, o, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * N + tl.arange(0, N)
    tl.store(o + i, tl.load(x + i))
    tl.store(o + i, tl.load(o + i) * 2)


def check_what_a_program_or_an_earlier_launch_stored_may_be_read():
    def run(x):
        o = torch.empty_like(x)
        _twice[(4,)](x, o, N=8)
        return copy(o.flip(0)) if o.device.type == "meta" else copy(o)

    x = draw(torch.bfloat16, 32)
    same(values(call(run, x)), x * 2)


@triton.jit
def _far(x, o, stride):
    i = tl.program_id(0) * stride
    tl.store(o, tl.load(x + i * stride))


def check_offsets_that_overflow_32_bits_are_strays():
    def run(x):
        o = torch.empty_like(x)
        _far[(2,)](x, o, 46341)  # 46341 ** 2 > 2 ** 31 - 1
        return o

    result = call(run, torch.zeros(4))
    assert result.status is Status.OUT_OF_BOUNDS
    assert (result.tensor, result.index) == ("x0", (46341**2 - 2**32,)), result
    assert "program (1, 0, 0)" in result.message


@triton.jit
def _described(x, o, rows, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, N], [N, 1], [M, N])
    target = tl.make_tensor_descriptor(o, [M, N], [N, 1], [M, N])
    target.store([0, 0], source.load([0, 0]))


def check_a_descriptor_of_too_many_rows_strays():
    def run(x, rows):
        o = x.new_empty((8, 8))
        _described[(1,)](x, o, rows, M=8, N=8)
        return o

    x = draw(torch.float32, 5, 8)
    right = values(call(lambda x: run(x, 5), x))
    same(right[:5], x)
    assert (right[5:] == 0).all()
    result = call(lambda x: run(x, 6), x)
    assert (result.status, result.tensor, result.index) == (Status.OUT_OF_BOUNDS, "x0", (40,))


@triton.jit
def _by_difference(x, y, o):
    address = y.to(tl.int64) - x.to(tl.int64)
    tl.store(o, tl.load(x + address // 4))


def check_a_pointer_that_reaches_another_tensor_strays():

    def run(x, y):
        o = torch.empty_like(x)
        _by_difference[(1,)](x, y, o)
        return o

    result = call(run, torch.zeros(1), torch.ones(1))
    assert (result.status, result.tensor) == (Status.OUT_OF_BOUNDS, "x0")


def check_prepare_gives_the_same_bytes_each_time():
    x, w = torch.zeros(4), draw(torch.float32, 4)
    counter = iter(range(100))
    run = lambda x, w: copy(w)  # noqa: E731
    differs = call(run, x, params=(w,), prepare=lambda w: w + next(counter))
    assert differs.status is Status.NONDETERMINISTIC
    assert "value 0 that prepare returns" in differs.message
    keeps = {}
    kept = call(run, x, params=(w,), prepare=lambda w: keeps.setdefault("w", w.clone()))
    same(values(kept), w)
    same(values(call(run, x, params=(w,), prepare=lambda w: w.view(2, 2).t().t().view(4))), w)


def check_weights_kept_by_prepare_cannot_be_changed_later():
    kept = []

    def prepare(w):
        kept.append(w)
        return w.clone()

    def run(x, w):
        _poke[(1,)](kept[-1], 1)
        return copy(x)

    # a kernel may only touch what `run` was given
    assert call(run, torch.zeros(4), params=(torch.ones(4),), prepare=prepare).status is Status.OUT_OF_BOUNDS

    def writes(x, w):
        o = copy(x)
        kept[-1].numpy()[2] = 5.0
        return o

    off = frozenset({Gate.HOST})
    result = call(writes, torch.zeros(4), params=(torch.ones(4),), prepare=prepare, off=off)
    assert (result.inputs_changed, result.index) == (("p0",), (2,))


if __name__ == "__main__":
    json.dump(base.report(globals()), sys.stdout)
