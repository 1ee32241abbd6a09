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
from mkevolve.interfaces import Backend, CompileJob, CompileResult
from mkevolve.measure.cost_model import estimate, version_on
from mkevolve.verify.engine import COMPILE_DEADLINE, VERIFIER, Finding, Verifier
from mkevolve.verify.observe import Observation
from mkevolve.verify.references import References


def environment(
    chip: Chip, precision: Precision, driver: str = "", *, deterministic: bool = True
) -> Environment:
    """The environment of records made on this machine without a device."""
    from importlib.metadata import version

    return Environment(
        Clock.MODEL,
        chip.name,
        driver,
        version("torch").partition("+")[0],
        version("triton"),
        precision.value,
        VERIFIER if deterministic else f"{VERIFIER} deterministic=false",
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
    deterministic: bool = True
    _backend: Backend | None = field(default=None, init=False, repr=False)
    _verifier: Verifier | None = field(default=None, init=False, repr=False)
    _references: References | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()

    def __call__(self, trial: Trial) -> Evaluation:
        return self.evaluation(trial, self.find(trial))

    def evaluation(self, trial: Trial, finding: Finding) -> Evaluation:
        """The row of the ledger for what `find` found; times what passed."""
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
            self._verifier = Verifier(
                self._started(), self.chip, self.precision, deterministic=self.deterministic
            )
            self._references = References(self.subgraph, self.observation, self.seed)
        return self._verifier.verify(
            self.subgraph, self._references, trial.candidate.source, trial.configuration, trial.tier
        )

    def compile(self, trial: Trial, chip: Chip) -> CompileResult:
        """Compile one trial at the target sizes for any chip; nothing is run."""
        name, graph = self.subgraph.variants[0]
        sizes = (name, tuple(i.spec for i in graph.activations), tuple(i.spec for i in graph.params))
        return self._started().compile(
            CompileJob(trial.candidate.source, trial.configuration, (sizes,), chip, COMPILE_DEADLINE)
        )

    def _started(self) -> Backend:
        if self._backend is None:
            self._backend = self.backend()
        return self._backend

    def _time(self, finding: Finding) -> Measurement:
        return estimate(finding.target_plan, finding.traffic, self.chip)
