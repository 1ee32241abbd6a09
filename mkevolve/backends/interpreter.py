"""Runs candidates in the Triton interpreter: values, order of instances, integrity, traffic.

Lives in a child process that was started with `TRITON_INTERPRET=1`. `install` changes the interpreter of
this process for good; `run_case` then calls an imported candidate once.
"""

import dataclasses
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

from mkevolve.backends import (
    interpreter_libdevice,
    interpreter_ops,
    interpreter_scans,
    interpreter_types,
    torch_state,
)
from mkevolve.backends.fault import CandidateFault, describe
from mkevolve.backends.memory import Memory, OutOfBoundsError, detached_copy
from mkevolve.backends.observer import AbandonedError, Observer
from mkevolve.backends.sampling import choose, ordered
from mkevolve.backends.traffic import LaunchCounter
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.measurement import Traffic
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult

COUNTED = 16  # programs of a launch whose traffic is counted where all of them run

_UNFILLED = frozenset(
    {"empty", "empty_strided", "empty_permuted", "empty_like", "new_empty", "new_empty_strided"}
)
_FILLED = frozenset(
    {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
)


class _Call:
    """One call of `run`: its memory and its launches so far."""

    def __init__(self, case: Case, off: frozenset[Gate]) -> None:
        self.case = case
        self.off = off
        self.memory = Memory(case.poison, track=case.instances is not None)
        self.launches = 0
        self.traffic: list[Traffic] = []
        self.interpreting = False


_active: _Call | None = None
_IDLE = Observer(None)
_plain_launch = interpreter.GridExecutor.__call__


def install() -> None:
    """Correct and instrument this process's Triton interpreter; call it before candidates are imported."""
    torch.set_num_threads(1)
    builder = interpreter.interpreter_builder
    builder.__class__ = interpreter_ops.Operations
    builder.observer = _IDLE
    # Its assertions do nothing outside debug mode, but quadruple the work of integer arithmetic.
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter._get_np_dtype = interpreter_types.np_dtype
    interpreter._validate_np_data_size = interpreter_types.fits
    interpreter_libdevice.install()
    interpreter.ReduceOps = interpreter_scans.Reduction
    interpreter.ScanOps = interpreter_scans.Scan
    interpreter.GridExecutor.__call__ = _launch
    interpreter.InterpretedFunction.__call__ = _call_device_function
    # Once for good: the interpreter would patch and restore the language at every call of a jit function.
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # Triton 3.6 converts an array of one element, which numpy 2.4 refuses.
    tl.tensor.__index__ = lambda tensor: int(tensor.handle.data.item())


def run_case(
    module: ModuleType, configuration: Configuration, case: Case, off: frozenset[Gate] = frozenset()
) -> CaseResult:
    """Call `prepare` (where there is one) and `run` of an imported candidate on copies of the case's tensors.

    Gates in `off` are not enforced. Never raises for a fault of the candidate.
    """
    start = time.perf_counter()
    call = _Call(case, off)
    before = torch_state.snapshot()
    try:
        with torch.no_grad(), np.errstate(all="ignore"):
            result = _run(module, configuration, call)
    except CandidateFault as fault:
        result = CaseResult(fault.status, fault.message)
    except OutOfBoundsError as fault:
        result = CaseResult(Status.OUT_OF_BOUNDS, describe(fault, str(module.__file__)))
    except Exception as fault:  # noqa: BLE001 (the candidate's own code ran)
        result = CaseResult(Status.RUNTIME_ERROR, describe(fault, str(module.__file__)))
    changed = before.restore()
    if result.status is not Status.PASSED:
        return result
    return CaseResult(
        status=result.status,
        outputs=result.outputs,
        written=result.written,
        inputs_changed=call.memory.inputs_changed(),
        state_changed=changed,
        traffic=tuple(call.traffic),
        launches=call.launches,
        seconds=time.perf_counter() - start,
    )


def _run(module: ModuleType, configuration: Configuration, call: _Call) -> CaseResult:
    memory = call.memory
    params = _prepare(module, call)
    inputs = [memory.place(f"x{i}", x) for i, x in enumerate(call.case.activations)]
    inputs += [memory.place(f"q{i}", q) for i, q in enumerate(params)]
    with _activated(call), _Allocations(call):
        returned = module.run(*inputs, **dict(configuration.settings))
    damaged = memory.damaged()
    if damaged:
        raise CandidateFault(Status.OUT_OF_BOUNDS, f"the memory around {', '.join(damaged)} was written")
    outputs = _outputs(returned, memory, Gate.OUTPUT not in call.off)
    if memory.sampled:
        # of a large tensor that is mostly poison only the elements leave this process: no copy
        written = tuple(memory.written(o) for o in outputs)
        return CaseResult(Status.PASSED, outputs=tuple(outputs), written=written)
    return CaseResult(Status.PASSED, outputs=tuple(detached_copy(o) for o in outputs))


def _prepare(module: ModuleType, call: _Call) -> tuple[torch.Tensor, ...]:
    if not hasattr(module, "prepare"):
        return call.case.params
    memory = Memory(call.case.poison, track=False)
    results = module.prepare(*(memory.place(f"p{i}", p) for i, p in enumerate(call.case.params)))
    results = (results,) if isinstance(results, torch.Tensor) else results
    if not isinstance(results, tuple | list) or not all(isinstance(r, torch.Tensor) for r in results):
        raise CandidateFault(Status.STATIC_ERROR, "prepare must return a tensor or a tuple of tensors")
    if Gate.INPUT not in call.off and memory.inputs_changed():
        names = ", ".join(memory.inputs_changed())
        raise CandidateFault(Status.INPUT_WRITTEN, f"prepare writes to its parameter {names}")
    return tuple(results)


def _outputs(returned: object, memory: Memory, unshared: bool) -> list[torch.Tensor]:
    outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
    seen: set[str] = set()
    tensors = []
    for number, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            raise CandidateFault(
                Status.WRONG_OUTPUT, f"result {number} is a {type(output).__name__}, not a tensor"
            )
        tensors.append(output)
        if output.numel() == 0 or not unshared:
            continue
        region = memory.find(output)
        if region is None or region.source is not None or region.name in seen:
            what = "another result" if region is not None and region.name in seen else "an input"
            raise CandidateFault(Status.WRONG_OUTPUT, f"result {number} shares its storage with {what}")
        seen.add(region.name)
    return tensors


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives every allocation of `run` poison and margins, and allows nothing else but views."""

    def __init__(self, call: _Call) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.call = call

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else the first call would import all of torch.compile: seconds in every child."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.call.interpreting:
            return result
        name = func.overloadpacket.__name__
        if name in _UNFILLED or name in _FILLED:
            return self.call.memory.allocate(result, name in _FILLED)
        returns = func._schema.returns
        if any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
            return result
        if Gate.DISPATCH in self.call.off:
            return self.call.memory.allocate(result, True) if isinstance(result, torch.Tensor) else result
        raise CandidateFault(
            Status.STATIC_ERROR, f"run calls {func}: it may only allocate, take views and launch kernels"
        )


@contextmanager
def _activated(call: _Call) -> Iterator[None]:
    global _active  # the patched interpreter has no other way to know which call it serves
    _active = call
    try:
        yield
    finally:
        _active = None


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    """Takes the place of `GridExecutor.__call__`: runs the chosen program instances in the chosen order.

    A launch outside `run_case` (in a process whose user has kernels too) runs as it would have.
    """
    call = _active
    if call is None:
        _plain_launch(self, *args, **kwargs)
        return
    names = [n for n in self.arg_names if n in kwargs]
    bound = dict(zip(self.arg_names, args, strict=False)) | {n: kwargs[n] for n in names}
    values = _bind(self, bound)
    grid = self.grid(bound) if callable(self.grid) else self.grid
    grid = tuple(int(g) for g in grid) + (1,) * (3 - len(grid))
    call.launches += 1
    if not call.case.launch or 0 in grid:
        return
    call.interpreting = True
    try:
        _interpret(self.fn, values, grid, call)
    finally:
        call.interpreting = False
        interpreter.interpreter_builder.observer = _IDLE
        interpreter_scans.watch(None)


def _bind(executor: Any, bound: dict[str, Any]) -> dict[str, Any]:
    """The kernel's arguments as the interpreter wants them; defaults are left to Python."""
    return {
        name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
        for name, value in bound.items()
    }


def _interpret(fn: Any, values: dict[str, Any], grid: tuple[int, ...], call: _Call) -> None:
    case, builder = call.case, interpreter.interpreter_builder
    total = grid[0] * grid[1] * grid[2]
    rng = random.Random(f"{case.seed}/{call.launches}")
    chosen = choose(grid, case.instances, rng)
    observer = builder.observer = Observer(call.memory)
    builder.pattern = case.poison
    interpreter_scans.watch(observer)
    observer.sampled = len(chosen) < total
    counter = observer.counter = LaunchCounter(fn.__name__, total)
    builder.set_grid_dim(*grid)
    for ran, instance in enumerate(ordered(chosen, case.order, rng)):
        observer.tainted = False
        builder.divided = ()
        observer.counting = observer.sampled or ran < COUNTED
        counter.program += observer.counting
        builder.set_grid_idx(
            instance % grid[0], instance // grid[0] % grid[1], instance // (grid[0] * grid[1])
        )
        with suppress(AbandonedError):
            fn(**values)
    if observer.sampled:
        call.memory.mark_partial()
    call.traffic.append(counter.result())


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes the place of `InterpretedFunction.__call__`: no patching, and exceptions keep their type."""
    kwargs.pop("_semantic", None)
    return self.rewrite()(*args, **kwargs)
