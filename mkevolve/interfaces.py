"""The roles that plug in: one verb each where possible, at most three. Implementations are final."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from mkevolve.data.activity import Activity
from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.gates import Gate
from mkevolve.data.graph import Graph, TensorSpec
from mkevolve.data.measurement import Evaluation, Traffic
from mkevolve.data.model import Precision
from mkevolve.data.plan import Binary, LaunchPlan
from mkevolve.data.timing import Device, Rates, Timing
from mkevolve.data.verdict import Status

if TYPE_CHECKING:
    import torch

Task = TypeVar("Task")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """What a proposer may know. `parents` are best first; `history` holds all evaluations of this subgraph.

    At most `limit` candidates are wanted, none of them in `seen` (candidate ids).
    """

    subgraph: Subgraph
    parents: tuple[Candidate, ...]
    history: tuple[Evaluation, ...]
    seen: frozenset[str]
    limit: int
    seed: int
    chip: Chip
    precision: Precision


class Proposer(ABC):
    """Makes candidates for a subgraph.

    `free` says that asking costs nothing and that the same request gets the same answer. Only then does the
    driver replay a search to see whether it has anything left to do, which asks once more than the worker.
    """

    free: ClassVar[bool] = False

    @abstractmethod
    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        """Return new candidates, best guess first; empty when there are no more.

        Raises `ProposalError` naming the op when it covers this subgraph not at all.
        """


class Order(StrEnum):
    """The order in which the interpreter runs program instances."""

    FORWARD = "forward"
    REVERSED = "reversed"
    SHUFFLED = "shuffled"


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a candidate. `key` is equal only for equal inputs, so that a backend may share them.

    `params` go to `prepare` (or to `run` after the activations where there is none). `instances` is None to
    run
    every program instance, else at most that many of each launch: first, last, border and random ones.
    `launch=False` disables every launch (no-op replay). Allocations are filled with poison number `poison`.
    With `decoy` the launches read other activations than `run` was given, in the same memory.
    """

    key: str
    variant: str
    activations: "tuple[torch.Tensor, ...]"
    params: "tuple[torch.Tensor, ...]"
    order: Order = Order.FORWARD
    instances: int | None = None
    launch: bool = True
    poison: int = 0
    seed: int = 0
    decoy: bool = False


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one call did. With `status` other than PASSED the rest is empty and `message` says why.

    Of a stray access and of a written input, `tensor` and `index` name what was touched.
    `outputs` are CPU tensors with the strides that the candidate returned; `written` (same shapes, bool;
    None =
    all) marks the elements that were stored, where only some instances ran. `inputs_changed` names inputs
    whose bytes differ after the call (`x0`, `q1`); `state_changed` names global torch state.
    `activities` is what ran on a device, by name: launches, or where profiled all that the device did.
    `prepared` (CPU tensors) and `host_us`, the host's time for a call that waits for nothing, are there where
    the job asked for them.
    """

    status: Status
    message: str = ""
    outputs: "tuple[torch.Tensor, ...]" = ()
    written: "tuple[torch.Tensor, ...] | None" = None
    inputs_changed: tuple[str, ...] = ()
    state_changed: tuple[str, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    launches: int = 0
    seconds: float = 0.0
    activities: tuple[Activity, ...] = ()
    tensor: str = ""
    index: tuple[int, ...] = ()
    prepared: "tuple[torch.Tensor, ...]" = ()
    host_us: float = 0.0


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Record and compile one configuration for each of `variants` (name, activation specs, param specs).

    With `keep` the result holds what the kernels can be loaded from again.
    """

    source: str
    configuration: Configuration
    variants: tuple[tuple[str, tuple[TensorSpec, ...], tuple[TensorSpec, ...]], ...]
    chip: Chip
    deadline: float = 10.0  # seconds
    keep: bool = False


@dataclass(frozen=True, slots=True)
class CompileResult:
    """Plans, one a variant; or a status with the compiler's or candidate's message.

    `binaries` are those that the launches of all plans name, each once.
    """

    status: Status
    message: str = ""
    plans: tuple[LaunchPlan, ...] = ()
    seconds: float = 0.0
    binaries: tuple[Binary, ...] = ()


@dataclass(frozen=True, slots=True)
class RunJob:
    """Run one configuration on several cases, in one child, in order; the first failing case ends it."""

    source: str
    configuration: Configuration
    cases: tuple[Case, ...]
    deadline: float = 60.0  # seconds for the whole job
    off: frozenset[Gate] = frozenset()  # gates that the child does not enforce
    profile: bool = False  # on a device: time every kernel that runs, with nothing of ours around the call
    keep_prepared: bool = False  # on a device: the first result carries what `prepare` made
    host: bool = False  # on a device: each result carries the host's time for a call


@dataclass(frozen=True, slots=True)
class PlanContender:
    """A candidate as its launch plan, which is replayed: none of its Python runs.

    `prepared` is what its `prepare` made of the case's parameters. `digest`, where given, is that of its
    verified outputs for the case: other outputs in the timed runs refuse it.
    """

    plan: LaunchPlan
    binaries: tuple[Binary, ...]
    prepared: "tuple[torch.Tensor, ...]"
    digest: str = ""


@dataclass(frozen=True, slots=True)
class EagerContender:
    """A subgraph run op by op, as torch does."""

    graph: Graph


Contender = PlanContender | EagerContender


@dataclass(frozen=True, slots=True)
class TimingJob:
    """Time contenders side by side (A B B A ...) on one case, whose inputs rotate with others made of it.

    It ends when each median is known to `accuracy` (a share), or after `seconds` of measuring. `deadline` is
    for the whole job, with compiling, loading and first runs.
    """

    case: Case
    contenders: tuple[Contender, ...]
    chip: Chip
    precision: Precision
    seconds: float = 3.0
    accuracy: float = 0.01
    seed: int = 0
    deadline: float = 120.0


@dataclass(frozen=True, slots=True)
class TimingResult:
    """One timing a contender, in order; a contender that failed has its status there and spoils no other."""

    timings: tuple[Timing, ...]
    device: Device
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Protection:
    """What the operating system denies candidate code here, and what it should deny but does not."""

    enforced: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Backend(ABC):
    """Runs candidate code in children; never in this process.

    `on_device` says that candidates run on the chip itself: whole launches, in no chosen order.
    """

    on_device: ClassVar[bool] = False

    @property
    def protection(self) -> Protection:
        """How its children are confined; nothing is missing where no candidate code runs."""
        return Protection()

    @abstractmethod
    def compile(self, job: CompileJob) -> CompileResult:
        """Record the launch plan and compile it ahead of time. Never raises for a candidate's fault."""

    @abstractmethod
    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        """Return one result a case, up to and including the first that failed. Never raises for a
        candidate's fault.
        """

    @abstractmethod
    def close(self) -> None:
        """End every child; the object can be used again afterwards."""


class Stopwatch(ABC):
    """Measures time on a device, in processes that hold no candidate's Python."""

    @abstractmethod
    def time(self, job: TimingJob) -> TimingResult:
        """Time the contenders of a job in a fresh process. Never raises for a contender's fault.

        Raises `BackendError` with the cure where the device cannot be used.
        """

    @abstractmethod
    def rates(self, chip: Chip) -> Rates:
        """Measure what the device reaches: seconds of work, so keep the result."""

    @abstractmethod
    def close(self) -> None:
        """End every child; the object can be used again afterwards."""


class Executor(ABC, Generic[Task, Record]):
    """Runs search workers: `worker(task)` yields records as they arise."""

    @abstractmethod
    def run(
        self, worker: Callable[[Task], Iterator[Record]], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Record]]:
        """Yield (task, record) in completion order; a worker goes on only after its record was taken.

        Closing the iterator ends every worker.
        """
