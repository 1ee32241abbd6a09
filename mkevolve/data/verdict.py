"""What verification found. A bad kernel is a verdict, never an exception."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of verification; each step of it names its own."""

    PASSED = "passed"
    STATIC_ERROR = "static_error"  # not under the kernel contract, or not allowed there
    COMPILE_ERROR = "compile_error"
    RESOURCE_ERROR = "resource_error"  # shared memory, registers or threads beyond the chip's limit
    PRECISION_ERROR = "precision_error"  # a dot below the precision policy
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    WRONG_OUTPUT = "wrong_output"  # number, shape, dtype or strides of the results
    WRONG_VALUE = "wrong_value"
    INPUT_WRITTEN = "input_written"
    OUT_OF_BOUNDS = "out_of_bounds"
    NONDETERMINISTIC = "nondeterministic"
    RACE = "race"  # program instances in another order give another result
    NO_EFFECT = "no_effect"  # right with launches disabled, or an input that matters is ignored
    STATE_CHANGED = "state_changed"  # global torch state
    FOREIGN_KERNEL = "foreign_kernel"  # a device ran what the launch plan does not hold
    IMPOSSIBLE = "impossible"  # measured faster than the chip can be


class Step(StrEnum):
    """The steps of verification, in order."""

    STATIC = "static"
    COMPILE = "compile"
    NUMERIC = "numeric"
    INTEGRITY = "integrity"
    MEASURE = "measure"


class Tier(StrEnum):
    """How much was verified: enough to enter a beam, or enough to enter a composition."""

    SCREEN = "screen"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the deciding observation was made. Fields that do not apply are None (or empty).

    `error` and `allowed` are in the unit of `verify/numeric.py` (error relative to what eager makes);
    `compared` counts the elements really compared over all cases so far, `replaced` the draws that were no
    evidence and were drawn again; `where` is one line for people.

    Of a wrong value, `tensor` names the result (`result 0`), `index` is the first wrong one in it, `share`
    how much of it is wrong and `pattern` how (`verify/forensics.py` has the words). Of an access, a race or a
    written input, `tensor` and `index` name what was touched. `line` is a line of the candidate's file.
    """

    variant: str | None = None
    distribution: str | None = None
    seed: int | None = None
    error: float | None = None
    allowed: float | None = None
    compared: int = 0
    cases: int = 0
    where: str = ""
    tensor: str = ""
    index: tuple[int, ...] | None = None
    share: float | None = None
    pattern: str = ""
    line: int | None = None
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, the step that decided, and the evidence. `message` is one line for people; `notes` say what
    was not checked.
    """

    status: Status
    step: Step
    tier: Tier
    message: str = ""
    evidence: Evidence = Evidence()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED
