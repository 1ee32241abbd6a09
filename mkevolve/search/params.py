"""The tuner of configurations: small spaces are enumerated, larger ones searched by optuna's TPE, ask/tell.

TPE (tree-structured Parzen estimator): Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011.
"""

import ast
import itertools
import math
import random
from functools import lru_cache

from mkevolve.data.candidate import Configuration
from mkevolve.data.tunables import Tunables, TunablesFault, tunables_of

ENUMERATE_UP_TO = 64
_REPEATS = 32  # TPE may ask for a known point; after this many in a row the space counts as exhausted

Space = Tunables


@lru_cache(maxsize=1024)
def space_of(source: str) -> Space:
    """Return the `TUNABLES` of a candidate as (name, options) pairs; empty where it has none or is malformed.

    Only literals are read, nothing is executed; `verify/static.py` is what refuses a malformed table.
    """
    try:
        return tunables_of(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError, TunablesFault):
        return ()


def default_configuration(source: str) -> Configuration:
    """The first option of every tunable."""
    return Configuration(tuple((name, options[0]) for name, options in space_of(source) if options))


class Enumeration:
    """All configurations: the default, then those that differ in one setting, then in two, ...

    Within the same distance the order is shuffled by `seed`, so that a cut-off sweep is not biased to one
    tunable.
    """

    def __init__(self, space: Space, seed: int) -> None:
        default = tuple(options[0] for _, options in space)
        points = list(itertools.product(*(options for _, options in space)))
        random.Random(seed).shuffle(points)
        points.sort(key=lambda p: sum(a != b for a, b in zip(p, default, strict=True)))
        names = [name for name, _ in space]
        self._points = [Configuration(tuple(zip(names, p, strict=True))) for p in points]

    def ask(self) -> Configuration | None:
        """The next configuration; None at the end."""
        return self._points.pop(0) if self._points else None

    def tell(self, configuration: Configuration, us: float) -> None:
        """Nothing is learnt: the order is fixed."""


class Sampler:
    """TPE over a large space. A configuration is never asked for twice; the default comes first."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8))
        self._distributions = {
            name: optuna.distributions.CategoricalDistribution(range(len(options))) for name, options in space
        }
        self._fail = optuna.trial.TrialState.FAIL
        self._known: dict[Configuration, float] = {}
        self._open: dict[Configuration, optuna.trial.Trial] = {}
        self._study.enqueue_trial({name: 0 for name, _ in space})

    def ask(self) -> Configuration | None:
        """The next configuration; None when the space seems exhausted."""
        for _ in range(_REPEATS):
            trial = self._study.ask(self._distributions)
            point = Configuration(tuple((n, options[trial.params[n]]) for n, options in self._space))
            if point not in self._known:
                self._open[point] = trial
                return point
            self._report(trial, self._known[point])
        return None

    def tell(self, configuration: Configuration, us: float) -> None:
        """Learn the time of a configuration; infinite for one that failed."""
        self._known[configuration] = us
        trial = self._open.pop(configuration, None)
        if trial is not None:
            self._report(trial, us)

    def _report(self, trial: object, us: float) -> None:
        if math.isfinite(us):
            self._study.tell(trial, us)
        else:
            self._study.tell(trial, state=self._fail)


def tuner(space: Space, seed: int) -> Enumeration | Sampler:
    """The tuner for a space, by its size."""
    size = math.prod(len(options) for _, options in space)
    return Enumeration(space, seed) if size <= ENUMERATE_UP_TO else Sampler(space, seed)
