"""Random search: the baseline that a beam has to beat at an equal budget."""

import random

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial
from mkevolve.search.params import space_of
from mkevolve.search.strategy import Propose, Search, cost


class RandomSearch(Search):
    """Walks at random: a random parent among all that passed, up to `children` candidates made from it, each
    tried in a random configuration.

    Never ends by itself before the proposer has no more; the driver's budget ends it.
    """

    def __init__(self, children: int = 4, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._children = children
        self._queue: list[Trial] = []
        self._passed: list[Candidate] = []
        self._dry = 0

    def ask(self) -> Propose | Trial | None:
        if self._queue:
            return self._queue.pop(self._rng.randrange(len(self._queue)))
        if self._dry > len(self._passed):
            return self._configuration()
        parents = (self._rng.choice(self._passed),) if self._passed else ()
        return Propose(parents, self._children)

    def receive(self, candidates: tuple[Candidate, ...]) -> None:
        self._dry = 0 if candidates else self._dry + 1
        self._queue.extend(Trial(c, self._draw(c)) for c in candidates)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if cost(evaluation) < float("inf") and trial.candidate not in self._passed:
            self._passed.append(trial.candidate)

    def _configuration(self) -> Trial | None:
        if not self._passed:
            return None
        candidate = self._rng.choice(self._passed)
        return Trial(candidate, self._draw(candidate))

    def _draw(self, candidate: Candidate) -> Configuration:
        return Configuration(
            tuple((name, self._rng.choice(options)) for name, options in space_of(candidate.source))
        )
