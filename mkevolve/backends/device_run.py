"""Calls a candidate on the device, in a child process: poisoned memory, watched launches, every stream waited
for, bits compared from call to call.
"""

import time
from dataclasses import dataclass, field
from types import ModuleType

import torch

from mkevolve.backends import device_seam, results, torch_state
from mkevolve.backends.allocations import Allocations
from mkevolve.backends.device_faults import device_fault
from mkevolve.backends.device_memory import DeviceMemory, first_difference, to_host
from mkevolve.backends.fault import CandidateFault, describe
from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Configuration
from mkevolve.data.gates import Gate
from mkevolve.data.verdict import Status
from mkevolve.interfaces import Case, CaseResult, Order

REPEATS = 3  # calls of a case that asks for another order of instances, which a device does not let us choose


@dataclass(slots=True)
class _Call:
    """One call of `run`: its memory, its launches by kernel, and the first fault that a launch found."""

    case: Case
    memory: DeviceMemory
    stream: int  # that the call begins on
    launches: dict[str, int] = field(default_factory=dict)
    fault: CandidateFault | None = None

    def launch(self, kernel: str, grid: tuple[int, int, int], stream: int) -> bool:
        """Count a launch and say whether it may go ahead."""
        self.launches[kernel] = self.launches.get(kernel, 0) + (0 not in grid)
        if stream != self.stream and self.fault is None:
            self.fault = CandidateFault(Status.STATIC_ERROR, f"kernel {kernel} is launched on another stream")
        return self.case.launch


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
        changed = (*before.restore(), *_stream_state())
    except Exception as fault:  # noqa: BLE001 (the candidate's own code ran)
        return CaseResult(*blame(fault, str(module.__file__)))
    return CaseResult(
        Status.PASSED,
        outputs=result.outputs,
        inputs_changed=result.inputs_changed,
        state_changed=changed,
        launches=sum(a.count for a in result.activities),
        activities=result.activities,
        seconds=time.perf_counter() - start,
    )


def blame(error: BaseException, path: str) -> tuple[Status, str]:
    """Status and message for whatever a candidate's code raised, be it the device's error."""
    if isinstance(error, CandidateFault):
        return error.status, error.message
    return device_fault(f"{type(error).__name__}: {error}") or (Status.RUNTIME_ERROR, describe(error, path))


def prepared(module: ModuleType, case: Case, off: frozenset[Gate] = frozenset()) -> tuple[torch.Tensor, ...]:
    """What `prepare` makes of the case's parameters on the device; they themselves where there is none."""
    if not hasattr(module, "prepare"):
        return tuple(p.cuda() for p in case.params)
    memory = DeviceMemory(case.poison)
    made = results.prepared(module.prepare(*(memory.place(f"p{i}", p) for i, p in enumerate(case.params))))
    changed = () if Gate.INPUT in off else memory.inputs_changed()
    if changed:
        raise CandidateFault(Status.INPUT_WRITTEN, f"prepare writes to its parameter {', '.join(changed)}")
    return made


def _run(module: ModuleType, configuration: Configuration, case: Case, off: frozenset[Gate]) -> CaseResult:
    params = prepared(module, case, off)
    outputs, call = _call(module, configuration, params, (case, off))
    changed = call.memory.inputs_changed()
    repeated = case.order is not Order.FORWARD and case.launch and not off & {Gate.REPEAT, Gate.ORDER}
    for _ in range(REPEATS - 1 if repeated else 0):
        again, other = _call(module, configuration, params, (case, off))
        changed = tuple(sorted({*changed, *other.memory.inputs_changed()}))
        _compare(outputs, again)
    return CaseResult(
        Status.PASSED,
        outputs=tuple(to_host(o) for o in outputs),
        inputs_changed=changed,
        activities=tuple(Activity(name, count) for name, count in sorted(call.launches.items()) if count),
    )


def _call(
    module: ModuleType,
    configuration: Configuration,
    params: tuple[torch.Tensor, ...],
    what: tuple[Case, frozenset[Gate]],
) -> tuple[list[torch.Tensor], _Call]:
    case, off = what
    memory = DeviceMemory(case.poison)
    call = _Call(case, memory, torch.cuda.current_stream().cuda_stream)
    inputs = [memory.place(f"x{i}", x) for i, x in enumerate(case.activations)]
    inputs += [memory.place(f"q{i}", q, q.data_ptr() % 16) for i, q in enumerate(params)]

    def allocate(tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        _on_device(tensor)
        return memory.allocate(tensor, filled and case.launch)  # no-op replay: what is filled is poisoned too

    torch.cuda.synchronize()
    with device_seam.watched(call.launch), Allocations(allocate, Gate.DISPATCH in off):
        returned = module.run(*inputs, **dict(configuration.settings))
    torch.cuda.synchronize()  # of the whole device: also of streams that the candidate made
    if call.fault is not None:
        raise call.fault
    damaged = () if Gate.BOUNDS in off else memory.damaged()
    if damaged:
        raise CandidateFault(Status.OUT_OF_BOUNDS, f"stores outside of {', '.join(damaged)}")
    return results.outputs(returned, memory, Gate.OUTPUT not in off), call


def _on_device(tensor: torch.Tensor) -> None:
    if not tensor.is_cuda:
        raise CandidateFault(Status.STATIC_ERROR, f"run allocates on {tensor.device}: write device=x.device")


def _compare(outputs: list[torch.Tensor], again: list[torch.Tensor]) -> None:
    """Raise where a repeated call gave another result."""
    layouts = [[(o.shape, o.dtype, o.stride()) for o in made] for made in (outputs, again)]
    if layouts[0] != layouts[1]:
        raise CandidateFault(Status.NONDETERMINISTIC, "the same call gives results of another shape")
    for number, (one, other) in enumerate(zip(outputs, again, strict=True)):
        index = first_difference(one, other)
        if index is not None:
            raise CandidateFault(
                Status.NONDETERMINISTIC,
                f"the same call gives another result: result {number} differs first at {index}",
            )


def _stream_state() -> tuple[str, ...]:
    """What of the device's state is not as a call must leave it, set back."""
    if torch.cuda.current_stream() == torch.cuda.default_stream():
        return ()
    torch.cuda.set_stream(torch.cuda.default_stream())
    return ("current stream",)
