"""Runs candidates in the Triton interpreter: values, order of instances, integrity, traffic.

Lives in a child process that was started with `TRITON_INTERPRET=1`. `install` changes the interpreter of
this process for good; `run_case` then calls an imported candidate once.
"""

import dataclasses
import itertools
import time
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from mkevolve.backends import (
    interpreter_launch,
    interpreter_libdevice,
    interpreter_ops,
    interpreter_scans,
    interpreter_speed,
    interpreter_syntax,
    interpreter_types,
    results,
    torch_state,
)
from mkevolve.backends.allocations import Allocations
from mkevolve.backends.fault import CandidateFault, candidate_line, describe
from mkevolve.backends.interpreter_launch import Call, activated
from mkevolve.backends.memory import Memory, OutOfBoundsError, detached_copy
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult

_calls = itertools.count()
_last: Memory | None = None  # of the call before
_compared: "weakref.WeakSet[Callable[..., object]]" = weakref.WeakSet()  # what was called twice: a `prepare`


def install(sealed: bool = True) -> None:
    """Correct and instrument this process's Triton interpreter; call it before candidates are imported.

    With `sealed`, functions that are replaced afterwards count as changed state: in a process of ours.
    """
    torch.set_num_threads(1)
    builder = interpreter.interpreter_builder
    builder.__class__ = interpreter_ops.Operations
    builder.observer = interpreter_launch.IDLE
    # Its assertions do nothing outside debug mode, but quadruple the work of integer arithmetic.
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter._get_np_dtype = interpreter_types.np_dtype
    interpreter._validate_np_data_size = interpreter_types.fits
    interpreter_libdevice.install()
    interpreter_syntax.install()
    interpreter.ReduceOps = interpreter_scans.Reduction
    interpreter.ScanOps = interpreter_scans.Scan
    interpreter_launch.install()
    interpreter_speed.install()
    # Once for good: the interpreter would patch and restore the language at every call of a jit function.
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # Triton 3.6 converts an array of one element, which numpy 2.4 refuses.
    tl.tensor.__index__ = lambda tensor: int(tensor.handle.data.item())
    if sealed:
        interpreter_launch.watch_functions()


def run_case(
    module: ModuleType, configuration: Configuration, case: Case, off: frozenset[Gate] = frozenset()
) -> CaseResult:
    """Call `prepare` (where there is one) and `run` of an imported candidate on copies of the case's tensors.

    Gates in `off` are not enforced. Never raises for a fault of the candidate.
    """
    global _last
    start = time.perf_counter()
    if _last is not None:
        _last.shut()  # for what the candidate may have kept of it
    memory = Memory(case.poison, track=case.instances is not None, serial=next(_calls))
    _last = memory if Gate.HOST not in off else None

    def allocate(tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        if tensor.device.type != "cpu":
            message = f"run allocates on {tensor.device}: write device=x.device"
            raise CandidateFault(Status.STATIC_ERROR, message)
        return memory.allocate(tensor, filled and case.launch)  # no-op replay: what is filled is poisoned too

    call = Call(case, off, memory, Allocations(allocate, Gate.DISPATCH in off))
    with torch.no_grad(), np.errstate(all="ignore"):
        before = torch_state.snapshot()
        result = _outcome(module, configuration, call)
        changed = (*before.restore(), *interpreter_launch.replaced())
    if result.status is not Status.PASSED:
        return result
    written = (*memory.changes(), *(call.weights.changes() if call.weights is not None else ()))
    name, index = written[0] if written else ("", ())
    return dataclasses.replace(
        result,
        inputs_changed=tuple(name for name, _ in written),
        state_changed=changed,
        traffic=tuple(call.traffic),
        launches=call.launches,
        seconds=time.perf_counter() - start,
        tensor=name,
        index=index,
    )


def _outcome(module: ModuleType, configuration: Configuration, call: Call) -> CaseResult:
    path = str(module.__file__)
    try:
        return _run(module, configuration, call)
    except CandidateFault as fault:
        return CaseResult(fault.status, fault.message, tensor=fault.tensor, index=fault.index)
    except OutOfBoundsError as fault:
        at = () if fault.index is None else (fault.index,)
        line = candidate_line(fault, path)
        message = f"line {line}: {fault}" if line else str(fault)
        return CaseResult(Status.OUT_OF_BOUNDS, message, tensor=fault.tensor, index=at)
    except Exception as fault:  # noqa: BLE001 (the candidate's own code ran)
        return CaseResult(Status.RUNTIME_ERROR, describe(fault, path))


def _run(module: ModuleType, configuration: Configuration, call: Call) -> CaseResult:
    memory = call.memory
    params = _prepare(module, call)
    inputs = [memory.place(f"x{i}", x) for i, x in enumerate(call.case.activations)]
    inputs += [memory.place(f"q{i}", q) for i, q in enumerate(params)]
    with activated(call):
        returned = module.run(*inputs, **dict(configuration.settings))
    damaged = () if Gate.BOUNDS in call.off else memory.damaged()
    if damaged:
        raise CandidateFault(Status.OUT_OF_BOUNDS, f"the memory around {', '.join(damaged)} was written")
    outputs = results.outputs(returned, memory, Gate.OUTPUT not in call.off)
    if memory.sampled:
        # of a large tensor that is mostly poison only the elements leave this process: no copy
        written = tuple(memory.written(o) for o in outputs)
        return CaseResult(Status.PASSED, outputs=tuple(outputs), written=written)
    return CaseResult(Status.PASSED, outputs=tuple(detached_copy(o) for o in outputs))


def _prepare(module: ModuleType, call: Call) -> tuple[torch.Tensor, ...]:
    """What `prepare` makes of the parameters; twice for the first case of a process, to compare."""
    if not hasattr(module, "prepare"):
        return call.case.params
    made = _prepared(module, call, call.case.poison)
    if module.prepare not in _compared and Gate.REPEAT not in call.off:
        _compared.add(module.prepare)
        differs = results.same_bytes(made, _prepared(module, call, call.case.poison + 1))
        if differs is not None:
            message = f"value {differs} that prepare returns differs from call to call"
            raise CandidateFault(Status.NONDETERMINISTIC, message)
    return made


def _prepared(module: ModuleType, call: Call, poison: int) -> tuple[torch.Tensor, ...]:
    memory = Memory(poison, track=False)
    params = [memory.place(f"p{i}", p) for i, p in enumerate(call.case.params)]
    made = results.prepared(module.prepare(*params), Gate.OUTPUT not in call.off)
    call.weights = memory
    changed = () if Gate.INPUT in call.off else memory.changes()
    if changed:
        name, index = changed[0]
        raise CandidateFault(Status.INPUT_WRITTEN, f"prepare writes to its parameter {name} at {list(index)}")
    return made
