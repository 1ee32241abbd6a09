"""Running searches: every fresh record is committed once, nothing is started without work."""

from collections.abc import Iterator
from functools import partial

import pytest
from fake_landscape import Landscape, RefusingProposer, task

from mkevolve.data.search import Budget
from mkevolve.executors.serial import SerialExecutor
from mkevolve.interfaces import Executor
from mkevolve.schedule import run_searches
from mkevolve.search.stages import StagedSearch

SEARCH = partial(StagedSearch, rounds=4)


class ForbiddenExecutor(Executor):
    def run(self, worker, tasks) -> Iterator:
        raise AssertionError("started without work")


def test_fresh_records_are_committed_and_a_second_run_starts_nothing() -> None:
    committed = []
    tasks = [task(Landscape(), SEARCH, Budget(evaluations=12))]
    (first,) = run_searches(
        tasks, SerialExecutor(), lambda c, e: committed.append((c, e)), lambda s, r: None
    ).values()
    assert len(committed) == first.fresh == 13  # twelve screens and one accept
    assert first.winner is not None
    known = tuple(e for _, e in committed)
    again = [task(Landscape(), SEARCH, Budget(evaluations=12), known=known)]
    (second,) = run_searches(again, ForbiddenExecutor(), pytest.fail, lambda s, r: None).values()
    assert second.winner == first.winner
    assert (second.fresh, second.cached) == (0, 13)


def test_alternatives_leave_out_the_winner_and_come_fastest_first() -> None:
    (outcome,) = run_searches(
        [task(Landscape(), SEARCH, Budget(evaluations=16))],
        SerialExecutor(),
        lambda c, e: None,
        lambda s, r: None,
    ).values()
    others = outcome.alternatives()
    assert others
    assert outcome.winner.candidate.id not in {c.id for c, _ in others}
    times = [e.measurement.us for _, e in others]
    assert times == sorted(times)


def test_reasons_say_why_there_is_no_winner() -> None:
    refused = task(Landscape(), SEARCH, Budget(), proposer=RefusingProposer())
    (outcome,) = run_searches([refused], SerialExecutor(), lambda c, e: None, lambda s, r: None).values()
    assert outcome.explain() == "no rule for aten.relu.default"
    rejecting = task(Landscape(rejects_accept=True), SEARCH, Budget(evaluations=5))
    (outcome,) = run_searches([rejecting], SerialExecutor(), lambda c, e: None, lambda s, r: None).values()
    assert outcome.explain().startswith("best candidate rejected")
    assert outcome.winner is None


def test_an_interrupt_keeps_what_was_committed() -> None:
    committed = []

    def commit(candidate, evaluation) -> None:
        committed.append(evaluation)
        if len(committed) == 5:
            raise KeyboardInterrupt

    landscape = Landscape()
    with pytest.raises(KeyboardInterrupt):
        run_searches(
            [task(landscape, SEARCH, Budget(evaluations=12))], SerialExecutor(), commit, lambda s, r: None
        )
    assert len(landscape.asked) == 5
