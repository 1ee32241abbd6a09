"""What `verify` was asked about and what it found, for its reports."""

from dataclasses import dataclass

from mkevolve.data.candidate import Configuration
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.measurement import Environment, Measurement
from mkevolve.data.plan import LaunchPlan
from mkevolve.data.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Subject:
    """A subgraph with the slots that it fills; `whole` is the one slot of the whole module.

    `inputs` and `outputs` say what its tensors are in the model at the first of those slots: the `state_dict`
    name of a parameter, the name of an activation's value in the captured graph.
    """

    subgraph: Subgraph
    slots: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChipRow:
    """What the compiler for one chip made of the plan at the target sizes: the most that any kernel takes.

    The resources are None where nothing was compiled.
    """

    chip: str
    status: Status
    message: str = ""
    registers: int | None = None  # a thread
    spills: int | None = None  # bytes a thread
    shared: int | None = None  # bytes a program


@dataclass(frozen=True, slots=True)
class Verification:
    """One candidate in one configuration, verified anew. `evaluation` is its row in `database`."""

    model: str
    policy: str
    deterministic: bool
    environment: Environment
    subject: Subject
    path: str
    candidate: str
    configuration: Configuration
    verdict: Verdict
    plans: tuple[LaunchPlan, ...]
    estimate: Measurement | None
    chips: tuple[ChipRow, ...]
    evaluation: str
    database: str
    seconds: float
    notes: tuple[str, ...] = ()
