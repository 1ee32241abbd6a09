"""What passes between the drivers and a search worker."""

from dataclasses import dataclass

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.measurement import Evaluation
from mkevolve.data.verdict import Tier


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing to verify and measure."""

    candidate: Candidate
    configuration: Configuration
    tier: Tier = Tier.SCREEN

    @property
    def key(self) -> tuple[str, str, str]:
        return self.candidate.id, self.configuration.text(), self.tier.value


@dataclass(frozen=True, slots=True)
class Budget:
    """Per subgraph: how many evaluations, and how many seconds of evaluating; None = no limit.

    Charged from the ledger: an evaluation that the database already has costs what it cost then.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def share(self, part: float) -> "Budget":
        """A part of it, at least one evaluation."""
        return Budget(
            None if self.evaluations is None else max(1, round(self.evaluations * part)),
            None if self.seconds is None else self.seconds * part,
        )

    def left(self, evaluations: int, seconds: float) -> bool:
        """Tell whether another evaluation may start after that much was spent."""
        return (self.evaluations is None or evaluations < self.evaluations) and (
            self.seconds is None or seconds < self.seconds
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A search worker's record: one evaluation and its candidate. `cached` = it was in the ledger already."""

    candidate: Candidate
    evaluation: Evaluation
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A search worker's record: the proposer covers this subgraph not at all; `reason` names the op."""

    subgraph: str
    reason: str


@dataclass(frozen=True, slots=True)
class Winner:
    """The accepted candidate of a subgraph with its configuration and accepting evaluation."""

    candidate: Candidate
    evaluation: Evaluation
