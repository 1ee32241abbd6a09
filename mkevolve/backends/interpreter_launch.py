"""Launches in the Triton interpreter: which program instances run, in which order, on which memory.

Everything that a candidate launches comes through `GridExecutor.__call__`, which `install` replaces: a
candidate has no name of its own for it. Loaded in interpreter children only.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.runtime import interpreter

from mkevolve.backends import interpreter_ops, interpreter_scans, torch_state
from mkevolve.backends.allocations import Allocations
from mkevolve.backends.decoys import swapped
from mkevolve.backends.fault import CandidateFault
from mkevolve.backends.memory import Memory, OutOfBoundsError
from mkevolve.backends.observer import OWNER, AbandonedError, Observer
from mkevolve.backends.sampling import choose, ordered
from mkevolve.backends.seal import Seal, seal
from mkevolve.backends.traffic import LaunchCounter
from mkevolve.data.gates import Gate
from mkevolve.data.measurement import Traffic
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case

COUNTED = 16  # programs of a launch whose traffic is counted where all of them run

IDLE = Observer(None)
_plain_launch = interpreter.GridExecutor.__call__


@dataclass(slots=True)
class Call:
    """One call of `run`: its memory, what watches its torch calls, and its launches so far."""

    case: Case
    off: frozenset[Gate]
    memory: Memory
    watch: Allocations
    quiet: torch_state.Snapshot = field(default_factory=lambda: torch_state.snapshot(torch_state.INTRUDERS))
    weights: Memory | None = None  # what `prepare` was given
    launches: int = 0
    programs: int = 0
    traffic: list[Traffic] = field(default_factory=list)


_active: Call | None = None
_seal: Seal | None = None


def install() -> None:
    """Take over the launches of this process."""
    interpreter.GridExecutor.__call__ = _launch
    interpreter.InterpretedFunction.__call__ = _call_device_function


def watch_functions() -> None:
    """From now on `replaced` says what was replaced."""
    global _seal
    _seal = seal()


def replaced() -> tuple[str, ...]:
    """Functions of torch, of Triton and of ours that are not what they were."""
    if _seal is None:
        return ()
    builder = interpreter.interpreter_builder
    own = {name for name in vars(builder) if name.startswith("create_")}
    if type(builder) is not interpreter_ops.Operations:
        own.add("__class__")
    return (*_seal.broken(), *(f"interpreter_builder.{name}" for name in sorted(own)))


@contextmanager
def activated(call: Call) -> Iterator[None]:
    """Let launches belong to this call. Host code cannot touch the memory of its tensors meanwhile."""
    global _active  # the patched interpreter has no other way to know which call it serves
    _active = call
    memories = [m for m in (call.memory, call.weights) if m is not None]
    if Gate.HOST not in call.off:
        for memory in memories:
            memory.shut()
    depth = torch_state.depth()
    try:
        with call.watch:
            yield
    finally:
        left = torch_state.leave_modes(*depth)
        _active = None
        for memory in memories:
            memory.open()
    if left and Gate.STATE not in call.off:
        raise CandidateFault(Status.STATE_CHANGED, "changes torch modes: enters one and does not leave it")


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    """Takes the place of `GridExecutor.__call__`: runs the chosen program instances in the chosen order.

    A launch outside a call of ours (in a process whose user has kernels too) runs as it would have.
    """
    call = _active
    if call is None:
        _plain_launch(self, *args, **kwargs)
        return
    names = [n for n in self.arg_names if n in kwargs]
    bound = dict(zip(self.arg_names, args, strict=False)) | {n: kwargs[n] for n in names}
    values = _bind(self, bound, call.memory)
    grid = self.grid(bound) if callable(self.grid) else self.grid
    grid = tuple(int(g) for g in grid) + (1,) * (3 - len(grid))
    call.launches += 1
    if not call.case.launch or 0 in grid:
        return
    intruders = () if Gate.STATE in call.off else (*call.quiet.restore(), *replaced())
    if intruders:
        raise CandidateFault(Status.STATE_CHANGED, f"changes {', '.join(intruders)} before a launch")
    with _interpreting(call):
        _interpret(self.fn, values, grid, call)


@contextmanager
def _interpreting(call: Call) -> Iterator[None]:
    """The interpreter's own torch calls are none of the candidate's, and its accesses are allowed."""
    call.watch.suspended = True
    call.memory.open()
    try:
        with swapped(call.memory) if call.case.decoy else nullcontext():
            yield
    finally:
        interpreter.interpreter_builder.observer = IDLE
        interpreter_scans.watch(None)
        call.watch.suspended = False
        if Gate.HOST not in call.off:
            call.memory.shut()


def _bind(executor: Any, bound: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """The kernel's arguments as the interpreter wants them; defaults are left to Python.

    A pointer knows the tensor that it belongs to: what is computed from it may not leave that tensor.
    """
    values = {}
    for name, value in bound.items():
        constant = name in executor.constexprs
        values[name] = value if constant else interpreter._implicit_cvt(value)
        if isinstance(value, torch.Tensor) and not constant:
            values[name].handle.attr = {OWNER: memory.find(value)}
    return values


def _interpret(fn: Any, values: dict[str, Any], grid: tuple[int, ...], call: Call) -> None:
    case, builder = call.case, interpreter.interpreter_builder
    total = grid[0] * grid[1] * grid[2]
    rng = random.Random(f"{case.seed}/{call.launches}")
    chosen = choose(grid, case.instances, rng)
    observer = builder.observer = Observer(call.memory, Gate.BOUNDS not in call.off)
    builder.pattern = case.poison
    interpreter_scans.watch(observer)
    observer.sampled = len(chosen) < total
    counter = observer.counter = LaunchCounter(fn.__name__, total)
    builder.set_grid_dim(*grid)
    order = ordered(chosen, case.order, rng)
    observer.before = call.programs
    for ran, instance in enumerate(order):
        observer.tainted = False
        observer.stamp = call.programs = call.programs + 1
        builder.divided = ()
        observer.counting = observer.sampled or ran < COUNTED
        counter.program += observer.counting
        place = _place(instance, grid)
        builder.set_grid_idx(*place)
        try:
            with suppress(AbandonedError):
                fn(**values)
        except OutOfBoundsError as error:
            error.program = place
            raise
    if observer.sampled:
        call.memory.mark_partial()
    call.traffic.append(counter.result())
    race = observer.race
    if race is not None and Gate.ORDER not in call.off:
        second, first = (_place(order[s - observer.before - 1], grid) for s in (race.second, race.first))
        index, name, line = race.region.index(race.byte), race.region.name, race.line(fn.__code__.co_filename)
        does = "reads" if race.kind == "load" else "stores another value to"
        what = f"program {second} {does} {name} at {list(index)}, which program {first} of this launch stores"
        raise CandidateFault(Status.RACE, f"line {line}: they race: {what}", name, index)


def _place(instance: int, grid: tuple[int, ...]) -> tuple[int, int, int]:
    return instance % grid[0], instance // grid[0] % grid[1], instance // (grid[0] * grid[1])


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes the place of `InterpretedFunction.__call__`: no patching, and exceptions keep their type."""
    kwargs.pop("_semantic", None)
    return self.rewrite()(*args, **kwargs)
