"""One trial, verified and timed: what a search worker and `mkevolve check` call.

`Evaluator` ties the verifier to a clock for one subgraph. It starts nothing until the first trial.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mkevolve.data.cases import cases_id
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.measurement import Clock, Environment, Evaluation, Measurement
from mkevolve.data.model import Precision
from mkevolve.data.search import Trial
from mkevolve.interfaces import Backend
from mkevolve.measure.cost_model import estimate, version_on
from mkevolve.verify.engine import VERIFIER, Finding, Verifier
from mkevolve.verify.observe import Observation
from mkevolve.verify.references import References


def environment(chip: Chip, precision: Precision, driver: str = "") -> Environment:
    """The environment of records made on this machine without a device."""
    from importlib.metadata import version

    return Environment(
        Clock.MODEL,
        chip.name,
        driver,
        version("torch").partition("+")[0],
        version("triton"),
        precision.value,
        VERIFIER,
        version_on(chip),
    )


@dataclass
class Evaluator:
    """Verifies and times candidates of one subgraph. Picklable while unused; references are made once.

    It owns the backend that it makes: use it in a `with`, which ends every child.
    """

    subgraph: Subgraph
    observation: Observation
    backend: Callable[[], Backend]
    chip: Chip
    precision: Precision
    environment: str
    seed: int = 0
    _backend: Backend | None = field(default=None, init=False, repr=False)
    _verifier: Verifier | None = field(default=None, init=False, repr=False)
    _references: References | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()

    def __call__(self, trial: Trial) -> Evaluation:
        finding = self.find(trial)
        return Evaluation(
            subgraph=self.subgraph.id,
            candidate=trial.candidate.id,
            configuration=trial.configuration,
            environment=self.environment,
            tier=trial.tier,
            verdict=finding.verdict,
            measurement=self._time(finding) if finding.verdict.passed else None,
            seconds=finding.seconds,
            cases=cases_id(self.subgraph, trial.tier, self.seed),
        )

    def find(self, trial: Trial) -> Finding:
        """Verify one trial and return the verdict with the plans and the traffic it was judged by."""
        if self._verifier is None or self._references is None:
            self._backend = self.backend()
            self._verifier = Verifier(self._backend, self.chip, self.precision)
            self._references = References(self.subgraph, self.observation, self.seed)
        return self._verifier.verify(
            self.subgraph, self._references, trial.candidate.source, trial.configuration, trial.tier
        )

    def _time(self, finding: Finding) -> Measurement:
        return estimate(finding.target_plan, finding.traffic, self.chip)
