"""Which subgraph is searched when: runs search tasks on an executor and commits every record as it arises."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mkevolve.data.candidate import Candidate
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Found, Refused, Winner
from mkevolve.data.verdict import Tier
from mkevolve.interfaces import Executor
from mkevolve.search.strategy import cost
from mkevolve.tune import SearchTask, pending, search_subgraph

Commit = Callable[[Candidate, Evaluation], None]
Watch = Callable[[str, Found | Refused], None]


@dataclass
class Outcome:
    """What is known of one subgraph after its search; `reason` says why there is no winner."""

    subgraph: str
    winner: Winner | None = None
    reason: str = ""
    screened: list[tuple[Candidate, Evaluation]] = field(default_factory=list)
    fresh: int = 0
    cached: int = 0
    rejected: int = 0

    def add(self, record: Found | Refused) -> None:
        """Take one record of the search."""
        if isinstance(record, Refused):
            self.reason = record.reason
            return
        self.fresh += not record.cached
        self.cached += record.cached
        self.rejected += not record.evaluation.verdict.passed
        if record.evaluation.tier is Tier.ACCEPT:
            self._accept(record)
        else:
            self.screened.append((record.candidate, record.evaluation))

    def _accept(self, record: Found) -> None:
        if record.evaluation.verdict.passed:
            self.winner = Winner(record.candidate, record.evaluation)
            self.reason = ""
        else:
            self.reason = f"best candidate rejected: {record.evaluation.verdict.message}"

    def alternatives(self, most: int = 3) -> tuple[tuple[Candidate, Evaluation], ...]:
        """The fastest other candidates that passed the screen, each at its best configuration."""
        best: dict[str, tuple[Candidate, Evaluation]] = {}
        for candidate, evaluation in sorted(self.screened, key=lambda pair: cost(pair[1])):
            if evaluation.verdict.passed and not self._is_winner(candidate):
                best.setdefault(candidate.id, (candidate, evaluation))
        return tuple(best.values())[:most]

    def _is_winner(self, candidate: Candidate) -> bool:
        return self.winner is not None and candidate.id == self.winner.candidate.id

    def explain(self) -> str:
        """Why a slot of this subgraph stays on its fall-back."""
        if self.reason:
            return self.reason
        failed = [e for _, e in self.screened if not e.verdict.passed]
        if self.screened and len(failed) < len(self.screened):
            return "no candidate beats what it would replace"
        if failed:
            return f"no candidate passed; the last: {failed[-1].verdict.message}"
        return "no candidate was tried within the budget"


def run_searches(
    tasks: Iterable[SearchTask],
    executor: Executor[SearchTask, Found | Refused],
    commit: Commit,
    watch: Watch,
) -> dict[str, Outcome]:
    """Search every task's subgraph; commit fresh evaluations one by one, before their worker goes on.

    Tasks with nothing left to evaluate are replayed here, so an executor is started only for work.
    """
    everything = list(tasks)
    outcomes = {task.subgraph.id: Outcome(task.subgraph.id) for task in everything}

    def take(task: SearchTask, record: Found | Refused) -> None:
        if isinstance(record, Found) and not record.cached:
            commit(record.candidate, record.evaluation)
        outcomes[task.subgraph.id].add(record)
        watch(task.subgraph.id, record)

    work = []
    for task in everything:
        if pending(task):
            work.append(task)
        else:
            for record in search_subgraph(task):
                take(task, record)
    if work:
        records = executor.run(search_subgraph, work)
        try:
            for task, record in records:
                take(task, record)
        finally:
            # closing ends the workers, also when the user interrupts
            close = getattr(records, "close", None)
            if close is not None:
                close()
    return outcomes
