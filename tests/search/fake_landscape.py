"""A proposer and an evaluator over a known landscape, so that searches can be judged without a compiler."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mkevolve.data.candidate import Candidate
from mkevolve.data.cases import cases_id
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.measurement import Clock, Evaluation, Measurement
from mkevolve.data.model import Precision
from mkevolve.data.search import Budget, Trial
from mkevolve.data.verdict import Status, Step, Tier, Verdict
from mkevolve.errors import ProposalError
from mkevolve.interfaces import ProposalRequest, Proposer
from mkevolve.tune import Evaluate, SearchTask

SPEC = TensorSpec((4,), "float32", (1,))
CHIP = Chip(
    "toy", "cuda", "90", 32, 1, 1e9, 1e9, 1e9, 1, 1e9, 1, 1, 1, 1, 1, 1.0,
    (("float32", 1e9),), (("float32", 1e9),), "made up",
)  # fmt: skip


def relu_subgraph() -> Subgraph:
    graph = Graph(
        (Input(Value("x0", SPEC), InputKind.ACTIVATION),),
        (Node("n0", "aten.relu.default", (Ref("x0"),), (), (Value("n0", SPEC),)),),
        (Ref("n0"),),
    )
    return Subgraph("sg_toy", "fam_toy", (("target", graph),), "relu")


def source(point: tuple[int, int]) -> str:
    return f"POINT = {point}\nTUNABLES = {{'A': (3, 1, 2), 'B': (10, 20)}}\n"


class GridProposer(Proposer):
    """Points (i, j) of a 7 x 7 grid; a move changes one coordinate by one."""

    free = True

    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        starts = [(0, 0)] if not request.parents else []
        moves = [
            (point, parent.id) for parent in request.parents for point in _neighbours(dict(parent.choices))
        ]
        found = []
        for point, parent in [(p, "") for p in starts] + moves:
            candidate = Candidate(
                source(point), "grid", (parent,) if parent else (), "", (("i", point[0]), ("j", point[1]))
            )
            if candidate.id not in request.seen and candidate.id not in {c.id for c in found}:
                found.append(candidate)
        return tuple(found[: request.limit])


class PaidProposer(GridProposer):
    """The same for money; counts how often it was asked."""

    free = False

    def __init__(self) -> None:
        self.asked = 0

    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        self.asked += 1
        return super().propose(request)


class RefusingProposer(Proposer):
    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        raise ProposalError("no rule for aten.relu.default")


def _neighbours(choices: dict) -> list[tuple[int, int]]:
    i, j = choices["i"], choices["j"]
    near = [(i + 1, j), (i, j + 1), (i - 1, j), (i, j - 1)]
    return [(a, b) for a, b in near if 0 <= a < 7 and 0 <= b < 7]


@dataclass
class Landscape:
    """Fastest at (5, 4); odd i fails; A=2, B=10 is the best configuration. Counts what it was asked."""

    asked: list[Trial] = field(default_factory=list)
    rejects_accept: bool = False
    open: int = 0

    @contextmanager
    def evaluator(self) -> Iterator[Evaluate]:
        self.open += 1
        try:
            yield self.evaluate
        finally:
            self.open -= 1

    def evaluate(self, trial: Trial) -> Evaluation:
        self.asked.append(trial)
        choices = dict(trial.candidate.choices)
        settings = dict(trial.configuration.settings)
        us = 10.0 + abs(choices["i"] - 5) + abs(choices["j"] - 4) + abs(settings["A"] - 2) + settings["B"]
        wrong = choices["j"] == 1 and choices["i"] == 1
        rejected = self.rejects_accept and trial.tier is Tier.ACCEPT
        status = Status.WRONG_VALUE if wrong or rejected else Status.PASSED
        return Evaluation(
            "sg_toy", trial.candidate.id, trial.configuration, "env_toy", trial.tier,
            Verdict(status, Step.NUMERIC, trial.tier),
            None if status is not Status.PASSED else Measurement(Clock.MODEL, us, us, us), 0.5,
            cases_id(relu_subgraph(), trial.tier, 0),
        )  # fmt: skip


def task(landscape: Landscape, search, budget: Budget, **more) -> SearchTask:
    return SearchTask(
        relu_subgraph(), more.pop("proposer", GridProposer()), search, landscape.evaluator, CHIP,
        Precision.IEEE, budget, 0, **more,
    )  # fmt: skip
