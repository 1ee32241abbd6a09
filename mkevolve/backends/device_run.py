"""Calls a candidate on the device, in a child process: poisoned memory, watched launches, every stream waited
for, bits compared from call to call.
"""

import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType

import torch

from mkevolve.backends import device_seam, results, torch_state
from mkevolve.backends.allocations import Allocations
from mkevolve.backends.device_faults import device_fault
from mkevolve.backends.device_memory import DeviceMemory, first_difference, to_host
from mkevolve.backends.fault import CandidateFault, describe
from mkevolve.backends.memory import OutOfBoundsError
from mkevolve.backends.seal import Seal, seal
from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult, Order

REPEATS = 3  # calls of a case that asks for another order of instances, which a device does not let us choose

_seal: Seal | None = None
_compared: "weakref.WeakSet[ModuleType]" = weakref.WeakSet()  # whose `prepare` was called twice


@dataclass(slots=True)
class _Call:
    """One call of `run`: its memory, its launches by kernel, and the first fault that a launch found."""

    case: Case
    off: frozenset[Gate]
    memory: DeviceMemory
    stream: int  # that the call begins on
    watch: Allocations
    launches: dict[str, int] = field(default_factory=dict)
    fault: CandidateFault | None = None

    @contextmanager
    def launch(self, kernel: str, grid: tuple[int, int, int], stream: int) -> Iterator[bool]:
        """Count a launch and say whether it may go ahead."""
        self.launches[kernel] = self.launches.get(kernel, 0) + (0 not in grid)
        self.fault = self.fault or self._fault(kernel, stream)
        self.watch.suspended = True
        try:
            with self.memory.swapped() if self.case.decoy else nullcontext():
                yield self.case.launch
        finally:
            self.watch.suspended = False

    def _fault(self, kernel: str, stream: int) -> CandidateFault | None:
        if stream != self.stream:
            return CandidateFault(Status.STATIC_ERROR, f"kernel {kernel} is launched on another stream")
        replaced = _seal.broken() if _seal is not None and Gate.STATE not in self.off else ()
        if replaced:
            return CandidateFault(Status.STATE_CHANGED, f"changes {', '.join(replaced)} before a launch")
        return None


def install() -> None:
    """From now on functions that are replaced count as changed state; before candidates are imported."""
    global _seal
    _seal = seal()


def run_case(
    module: ModuleType, configuration: Configuration, case: Case, off: frozenset[Gate] = frozenset()
) -> CaseResult:
    """Call `prepare` (where there is one) and `run` on the device with copies of the case's tensors.

    An order other than forward means: three calls, which must give the same bits. Gates in `off` are not
    enforced. Never raises for a fault of the candidate; after a device error the process is of no more use.
    """
    start = time.perf_counter()
    before = torch_state.snapshot()
    try:
        with torch.no_grad():
            result = _run(module, configuration, case, off)
        changed = (*before.restore(), *_stream_state(), *(_seal.broken() if _seal is not None else ()))
    except Exception as fault:  # noqa: BLE001 (the candidate's own code ran)
        return blamed(fault, str(module.__file__))
    launches = sum(a.count for a in result.activities)
    return replace(result, state_changed=changed, launches=launches, seconds=time.perf_counter() - start)


def blamed(error: BaseException, path: str) -> CaseResult:
    """The result for whatever a candidate's code raised, be it the device's error."""
    match error:
        case CandidateFault():
            return CaseResult(error.status, error.message)
        case OutOfBoundsError():
            at = () if error.index is None else (error.index,)
            return CaseResult(Status.OUT_OF_BOUNDS, str(error), tensor=error.tensor, index=at)
    found = device_fault(f"{type(error).__name__}: {error}")
    return CaseResult(*(found or (Status.RUNTIME_ERROR, describe(error, path))))


def prepared(
    module: ModuleType, case: Case, off: frozenset[Gate]
) -> tuple[tuple[torch.Tensor, ...], DeviceMemory]:
    """What `prepare` makes of the case's parameters on the device, with the memory of these; the parameters
    themselves where there is none. The first call in a process is made twice, to compare.
    """
    memory, results_of = DeviceMemory(case.poison), []
    if not hasattr(module, "prepare"):
        return tuple(p.cuda() for p in case.params), memory
    for turn in range(1 if module in _compared or Gate.REPEAT in off else 2):
        memory = DeviceMemory(case.poison + turn)
        given = (memory.place(f"p{i}", p) for i, p in enumerate(case.params))
        results_of.append(results.prepared(module.prepare(*given), Gate.OUTPUT not in off))
        torch.cuda.synchronize()
        changed = () if Gate.INPUT in off else memory.changes()
        if changed:
            name, index = changed[0]
            message = f"prepare writes to its parameter {name} at {list(index)}"
            raise CandidateFault(Status.INPUT_WRITTEN, message)
    _compared.add(module)
    fault = _difference(results_of[0], results_of[-1])
    if fault:
        raise CandidateFault(Status.NONDETERMINISTIC, f"prepare differs from call to call: {fault}")
    return results_of[-1], memory


def _run(module: ModuleType, configuration: Configuration, case: Case, off: frozenset[Gate]) -> CaseResult:
    params, weights = prepared(module, case, off)
    outputs, call = _call(module, configuration, params, (case, off))
    written = {**dict(call.memory.changes()), **dict(weights.changes())}
    repeated = case.order is not Order.FORWARD and case.launch and not off & {Gate.REPEAT, Gate.ORDER}
    for _ in range(REPEATS - 1 if repeated else 0):
        again, other = _call(module, configuration, params, (case, off))
        written |= dict(other.memory.changes())
        fault = _difference(outputs, again)
        if fault:
            raise CandidateFault(Status.NONDETERMINISTIC, f"the same call gives another result: {fault}")
    names = sorted(written)
    return CaseResult(
        Status.PASSED,
        outputs=tuple(to_host(o) for o in outputs),
        inputs_changed=tuple(names),
        activities=tuple(Activity(name, count) for name, count in sorted(call.launches.items()) if count),
        tensor=names[0] if names else "",
        index=written[names[0]] if names else (),
    )


def _call(
    module: ModuleType,
    configuration: Configuration,
    params: tuple[torch.Tensor, ...],
    what: tuple[Case, frozenset[Gate]],
) -> tuple[list[torch.Tensor], _Call]:
    case, off = what
    memory = DeviceMemory(case.poison)

    def allocate(tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        _on_device(tensor)
        return memory.allocate(tensor, filled and case.launch)  # no-op replay: what is filled is poisoned too

    watch = Allocations(allocate, Gate.DISPATCH in off)
    call = _Call(case, off, memory, torch.cuda.current_stream().cuda_stream, watch)
    inputs = [memory.place(f"x{i}", x) for i, x in enumerate(case.activations)]
    inputs += [memory.place(f"q{i}", q, q.data_ptr() % 16) for i, q in enumerate(params)]
    torch.cuda.synchronize()
    depth = torch_state.depth()
    try:
        with device_seam.watched(call.launch), watch:
            returned = module.run(*inputs, **dict(configuration.settings))
    finally:
        left = torch_state.leave_modes(*depth)
    torch.cuda.synchronize()  # of the whole device: also of streams that the candidate made
    if left and Gate.STATE not in off:
        raise CandidateFault(Status.STATE_CHANGED, "changes torch modes: enters one and does not leave it")
    if call.fault is not None:
        raise call.fault
    if Gate.BOUNDS not in off:
        memory.check_margins()
    return results.outputs(returned, memory, Gate.OUTPUT not in off), call


def _on_device(tensor: torch.Tensor) -> None:
    if not tensor.is_cuda:
        raise CandidateFault(Status.STATIC_ERROR, f"run allocates on {tensor.device}: write device=x.device")


def _difference(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> str:
    """Where two lists of results differ, be it in a bit; empty where they do not."""
    layouts = [[(t.shape, t.dtype, t.stride()) for t in made] for made in (one, other)]
    if layouts[0] != layouts[1]:
        return "shapes, strides or dtypes differ"
    for number, pair in enumerate(zip(one, other, strict=True)):
        index = first_difference(*pair)
        if index is not None:
            return f"result {number} differs first at {list(index)}"
    return ""


def _stream_state() -> tuple[str, ...]:
    """What of the device's state is not as a call must leave it, set back."""
    if torch.cuda.current_stream() == torch.cuda.default_stream():
        return ()
    torch.cuda.set_stream(torch.cuda.default_stream())
    return ("current stream",)
