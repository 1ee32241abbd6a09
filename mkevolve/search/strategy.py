"""The role of a search strategy: it asks for proposals and trials, and is told what came of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mkevolve.data.candidate import Candidate
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial


@dataclass(frozen=True, slots=True)
class Propose:
    """A wish for at most `limit` new candidates made from `parents` (none: from scratch)."""

    parents: tuple[Candidate, ...]
    limit: int


class Search(ABC):
    """One search of one subgraph. It knows no proposer, no verifier and no clock; the driver's loop is
    ask, then `receive` (for a `Propose`) or `tell` (for a `Trial`).
    """

    @abstractmethod
    def ask(self) -> Propose | Trial | None:
        """Return what to do next; None when there is nothing left to try."""

    @abstractmethod
    def receive(self, candidates: tuple[Candidate, ...]) -> None:
        """Take the answer to a `Propose`; empty means that the proposer has no more."""

    @abstractmethod
    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        """Take the evaluation of a `Trial`."""


def cost(evaluation: Evaluation) -> float:
    """Microseconds to rank by; infinite for what did not pass."""
    if evaluation.verdict.passed and evaluation.measurement is not None:
        return evaluation.measurement.us
    return float("inf")
