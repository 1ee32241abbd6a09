"""What an evaluator starts, it ends."""

from fake_landscape import CHIP, relu_subgraph

from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.model import Precision
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Status
from mkevolve.evaluate import Evaluator
from mkevolve.interfaces import Backend, CaseResult, CompileJob, CompileResult, RunJob
from mkevolve.verify.observe import Observation


class CountingBackend(Backend):
    made = 0
    closed = 0

    def __init__(self) -> None:
        CountingBackend.made += 1

    def compile(self, job: CompileJob) -> CompileResult:
        raise AssertionError(job)

    def run(self, job: RunJob) -> tuple[CaseResult, ...]:
        raise AssertionError(job)

    def close(self) -> None:
        CountingBackend.closed += 1


def test_the_backend_is_closed_with_the_evaluator_that_made_it() -> None:
    seen = Observation("sg_toy", (), (), ())
    evaluator = Evaluator(relu_subgraph(), seen, CountingBackend, CHIP, Precision.IEEE, "env_toy")
    with evaluator:
        assert CountingBackend.made == 0  # nothing starts before the first trial
        for source in ("nonsense", "def run("):
            finding = evaluator.find(Trial(Candidate(source, "person"), Configuration()))
            assert finding.verdict.status is Status.STATIC_ERROR
        assert (CountingBackend.made, CountingBackend.closed) == (1, 0)
    assert (CountingBackend.made, CountingBackend.closed) == (1, 1)
