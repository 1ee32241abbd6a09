"""Structure first, hardware second: a beam search, then a tuner over the settings of the best candidates."""

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial
from mkevolve.search.beam import BeamSearch
from mkevolve.search.params import Enumeration, Sampler, space_of, tuner
from mkevolve.search.strategy import Propose, Search, cost


class StagedSearch(Search):
    """`BeamSearch`, then `tune` more configurations of each of the `top` best candidates in turn."""

    def __init__(
        self,
        width: int = 4,
        children: int = 4,
        rounds: int = 3,
        top: int = 2,
        tune: int = 8,
        seed: int = 0,
    ) -> None:
        self._beam = BeamSearch(width, children, rounds)
        self._top = top
        self._tune = tune
        self._seed = seed
        self._tuners: list[tuple[Candidate, Enumeration | Sampler, list[int]]] | None = None
        self._told: dict[tuple[str, Configuration], float] = {}

    def ask(self) -> Propose | Trial | None:
        if self._tuners is None:
            want = self._beam.ask()
            if want is not None:
                return want
            self._tuners = [
                (candidate, tuner(space_of(candidate.source), self._seed), [self._tune])
                for candidate in self._beam.beam[: self._top]
            ]
        return self._next_configuration(self._tuners)

    def receive(self, candidates: tuple[Candidate, ...]) -> None:
        self._beam.receive(candidates)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self._told[trial.candidate.id, trial.configuration] = cost(evaluation)
        if self._tuners is None:
            self._beam.tell(trial, evaluation)
            return
        for candidate, tuning, _ in self._tuners:
            if candidate.id == trial.candidate.id:
                tuning.tell(trial.configuration, cost(evaluation))

    def _next_configuration(
        self, tuners: list[tuple[Candidate, Enumeration | Sampler, list[int]]]
    ) -> Trial | None:
        # round robin, so that a budget that ends early was shared fairly
        for candidate, tuning, left in sorted(tuners, key=lambda entry: -entry[2][0]):
            if left[0] > 0:
                left[0] -= 1
                configuration = self._new(candidate, tuning)
                if configuration is not None:
                    return Trial(candidate, configuration)
                left[0] = 0
        return None

    def _new(self, candidate: Candidate, tuning: Enumeration | Sampler) -> Configuration | None:
        """The tuner's next wish that nobody tried; it learns what the beam found of the others."""
        while (wish := tuning.ask()) is not None:
            if (candidate.id, wish) not in self._told:
                return wish
            tuning.tell(wish, self._told[candidate.id, wish])
        return None
