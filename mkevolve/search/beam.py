"""Beam search over candidates: the structure stage of a search."""

from mkevolve.data.candidate import Candidate
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial
from mkevolve.search.params import default_configuration
from mkevolve.search.strategy import Propose, Search, cost


class BeamSearch(Search):
    """Each round asks for `children` candidates made from the beam and keeps the `width` fastest that passed.

    The first round asks from scratch; few children a round make the search deep before it is broad. A
    candidate is tried at the default configuration of its `TUNABLES`.
    Ends after `rounds` rounds, or when the proposer has nothing new. Ties keep the older candidate, so a run
    is reproducible.
    """

    def __init__(self, width: int = 4, children: int = 4, rounds: int = 3) -> None:
        self._width = width
        self._children = children
        self._rounds = rounds
        self._asked = 0
        self._exhausted = False
        self._queue: list[Trial] = []
        self._beam: list[tuple[float, Trial]] = []

    @property
    def beam(self) -> tuple[Candidate, ...]:
        """The members that passed, fastest first."""
        return tuple(trial.candidate for _, trial in self._beam)

    def ask(self) -> Propose | Trial | None:
        if self._queue:
            return self._queue.pop(0)
        if self._exhausted or self._asked >= self._rounds:
            return None
        self._asked += 1
        return Propose(self.beam, self._children)

    def receive(self, candidates: tuple[Candidate, ...]) -> None:
        self._exhausted = not candidates
        self._queue.extend(Trial(c, default_configuration(c.source)) for c in candidates)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        us = cost(evaluation)
        if us == float("inf"):
            return
        self._beam.append((us, trial))
        self._beam.sort(key=lambda pair: pair[0])
        del self._beam[self._width :]
