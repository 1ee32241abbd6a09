"""The inner driver: one search of one subgraph, from ask to tell, as an iterator of records.

It runs in a search worker, which may be another process or machine. It writes nothing: every record is
yielded to the outer driver, which commits it before the worker goes on.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from mkevolve.data.candidate import Candidate
from mkevolve.data.cases import comparable
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.measurement import Evaluation
from mkevolve.data.model import Precision
from mkevolve.data.search import Budget, Found, Refused, Trial
from mkevolve.data.verdict import Tier
from mkevolve.errors import ProposalError
from mkevolve.interfaces import ProposalRequest, Proposer
from mkevolve.search.strategy import Propose, Search, cost

Evaluate = Callable[[Trial], Evaluation]

# A strategy that keeps asking for what it was told already has nothing new to try.
_MAX_REPEATS = 200


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Everything that a search worker needs, picklable.

    `search` makes a fresh strategy. `evaluator` makes the function that verifies and measures one trial; it
    is called at the first trial that is not in `known`, so a search that is all known starts no child, and
    what it started ends with the search, also where that is broken off.
    `finalists` is how many of the best are tried in the accept tier until one passes; that is not charged.
    Where the best is not below `worth` (microseconds), none of them is: nobody would use it. Of `known`, what
    was verified on other cases is not used.
    """

    subgraph: Subgraph
    proposer: Proposer
    search: Callable[[], Search]
    evaluator: Callable[[], AbstractContextManager[Evaluate]]
    chip: Chip
    precision: Precision
    budget: Budget
    seed: int
    known: tuple[Evaluation, ...] = ()
    finalists: int = 3
    worth: float = float("inf")


def search_subgraph(task: SearchTask) -> Iterator[Found | Refused]:
    """Search one subgraph; yield each evaluation as it arises, the accepted winner's last.

    Raises nothing for a bad candidate; a proposer that covers the subgraph not at all yields one `Refused`.
    """
    return _Worker(task).run()


class _NotKnown(Exception):
    """Raised instead of evaluating, by `pending`."""


def pending(task: SearchTask) -> bool:
    """Tell whether the search would evaluate anything that `task.known` does not hold; starts nothing.

    A proposer that is not free is not asked: the answer is then yes as soon as the search wants a proposal.
    """
    proposer = task.proposer if task.proposer.free else _Unasked()
    try:
        for _ in _Worker(replace(task, evaluator=_refuse, proposer=proposer)).run():
            pass
    except _NotKnown:
        return True
    return False


def _refuse() -> AbstractContextManager[Evaluate]:
    raise _NotKnown


class _Unasked(Proposer):
    """Stands for a proposer that costs something, in `pending`."""

    def propose(self, request: ProposalRequest) -> tuple[Candidate, ...]:
        raise _NotKnown


class _Worker:
    def __init__(self, task: SearchTask) -> None:
        self._task = task
        known = comparable(task.known, task.subgraph, task.seed)
        self._known = {(e.candidate, e.configuration.text(), e.tier.value): e for e in known}
        self._told: dict[tuple[str, str, str], Evaluation] = {}
        self._ranking: list[tuple[float, Trial]] = []
        self._seen: set[str] = set()
        self._spent_seconds = 0.0
        self._evaluate: Evaluate | None = None
        self._started = ExitStack()

    def run(self) -> Iterator[Found | Refused]:
        with self._started:
            yield from self._search()

    def _search(self) -> Iterator[Found | Refused]:
        search = self._task.search()
        repeats = 0
        while repeats < _MAX_REPEATS and (want := search.ask()) is not None:
            if isinstance(want, Propose):
                try:
                    search.receive(self._propose(want))
                except ProposalError as error:
                    yield Refused(self._task.subgraph.id, str(error))
                    return
                continue
            if want.key in self._told:
                repeats += 1
                search.tell(want, self._told[want.key])
                continue
            repeats = 0
            if not self._task.budget.left(len(self._told), self._spent_seconds):
                break
            record = self._trial(want)
            yield record
            search.tell(want, record.evaluation)
        yield from self._accept()

    def _propose(self, want: Propose) -> tuple[Candidate, ...]:
        task = self._task
        request = ProposalRequest(
            subgraph=task.subgraph,
            parents=want.parents,
            history=tuple(self._told.values()),
            seen=frozenset(self._seen),
            limit=want.limit,
            seed=task.seed,
            chip=task.chip,
            precision=task.precision,
        )
        candidates = task.proposer.propose(request)
        self._seen.update(c.id for c in candidates)
        return candidates

    def _trial(self, trial: Trial) -> Found:
        record = self._look_up(trial)
        evaluation = record.evaluation
        self._told[trial.key] = evaluation
        self._spent_seconds += evaluation.seconds
        if cost(evaluation) < float("inf"):
            self._ranking.append((cost(evaluation), trial))
        return record

    def _look_up(self, trial: Trial) -> Found:
        if trial.key in self._known:
            return Found(trial.candidate, self._known[trial.key], cached=True)
        if self._evaluate is None:
            self._evaluate = self._started.enter_context(self._task.evaluator())
        return Found(trial.candidate, self._evaluate(trial))

    def _accept(self) -> Iterator[Found]:
        tried = 0
        failed: set[str] = set()
        for us, trial in sorted(self._ranking, key=lambda pair: pair[0]):
            if us >= self._task.worth:
                return
            if trial.candidate.id in failed:
                continue
            record = self._look_up(replace(trial, tier=Tier.ACCEPT))
            yield record
            tried += 1
            if record.evaluation.verdict.passed or tried == self._task.finalists:
                return
            failed.add(trial.candidate.id)
