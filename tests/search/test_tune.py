"""The inner driver over a known landscape: it finds the optimum, respects budgets and repeats nothing."""

from dataclasses import replace
from functools import partial

from fake_landscape import Landscape, PaidProposer, RefusingProposer, task

from mkevolve.data.search import Budget, Found, Refused
from mkevolve.data.verdict import Tier
from mkevolve.search.random import RandomSearch
from mkevolve.search.stages import StagedSearch
from mkevolve.tune import pending, search_subgraph

DEEP = partial(StagedSearch, width=4, children=4, rounds=12, top=2, tune=6)


def test_beam_then_tuning_reaches_the_optimum_and_accepts_it() -> None:
    landscape = Landscape()
    records = list(search_subgraph(task(landscape, DEEP, Budget())))
    last = records[-1]
    assert isinstance(last, Found)
    assert dict(last.candidate.choices) == {"i": 5, "j": 4}
    assert dict(last.evaluation.configuration.settings) == {"A": 2, "B": 10}
    assert last.evaluation.tier is Tier.ACCEPT
    assert last.evaluation.verdict.passed


def test_nothing_is_evaluated_twice() -> None:
    landscape = Landscape()
    list(search_subgraph(task(landscape, DEEP, Budget())))
    keys = [t.key for t in landscape.asked]
    assert len(keys) == len(set(keys))


def test_every_child_names_a_parent_that_was_evaluated_before_it() -> None:
    seen: set[str] = set()
    for record in search_subgraph(task(Landscape(), DEEP, Budget())):
        assert set(record.candidate.parents) <= seen
        seen.add(record.candidate.id)


def test_budget_in_evaluations_bounds_the_screens_only() -> None:
    landscape = Landscape()
    list(search_subgraph(task(landscape, DEEP, Budget(evaluations=7))))
    tiers = [t.tier for t in landscape.asked]
    assert tiers.count(Tier.SCREEN) == 7
    assert tiers.count(Tier.ACCEPT) == 1


def test_budget_in_seconds_is_charged_from_the_records() -> None:
    landscape = Landscape()
    list(search_subgraph(task(landscape, DEEP, Budget(seconds=2.0))))
    assert [t.tier for t in landscape.asked].count(Tier.SCREEN) == 4  # half a second each


def test_a_known_search_evaluates_nothing_and_ends_the_same() -> None:
    first = list(search_subgraph(task(Landscape(), DEEP, Budget(evaluations=20))))
    known = tuple(r.evaluation for r in first)
    landscape = Landscape()
    again = task(landscape, DEEP, Budget(evaluations=20), known=known)
    assert not pending(again)
    records = list(search_subgraph(again))
    assert landscape.asked == []
    assert all(r.cached for r in records)
    assert [r.evaluation for r in records] == [r.evaluation for r in first]


def test_an_interrupted_search_goes_on_where_it_was() -> None:
    whole = [r.evaluation for r in search_subgraph(task(Landscape(), DEEP, Budget(evaluations=20)))]
    for cut in (0, 1, 5, 19, len(whole) - 1):
        landscape = Landscape()
        resumed = task(landscape, DEEP, Budget(evaluations=20), known=tuple(whole[:cut]))
        assert pending(resumed)
        assert [r.evaluation for r in search_subgraph(resumed)] == whole
        assert len(landscape.asked) == len(whole) - cut


def test_a_larger_budget_goes_on_with_what_is_known() -> None:
    first = tuple(r.evaluation for r in search_subgraph(task(Landscape(), DEEP, Budget(evaluations=10))))
    landscape = Landscape()
    list(search_subgraph(task(landscape, DEEP, Budget(evaluations=14), known=first)))
    assert [t.tier for t in landscape.asked].count(Tier.SCREEN) == 4


def test_rejected_finalists_end_without_a_winner() -> None:
    landscape = Landscape(rejects_accept=True)
    records = list(search_subgraph(task(landscape, DEEP, Budget(evaluations=12), finalists=2)))
    accepts = [r for r in records if r.evaluation.tier is Tier.ACCEPT]
    assert len(accepts) == 2
    assert len({r.candidate.id for r in accepts}) == 2  # not the same file in two configurations
    assert not any(r.evaluation.verdict.passed for r in accepts)


def test_a_refusal_is_one_record_with_the_reason() -> None:
    records = list(search_subgraph(task(Landscape(), DEEP, Budget(), proposer=RefusingProposer())))
    assert records == [Refused("sg_toy", "no rule for aten.relu.default")]


def test_random_search_stops_when_nothing_is_new_and_respects_the_budget() -> None:
    landscape = Landscape()
    records = list(search_subgraph(task(landscape, partial(RandomSearch, seed=3), Budget(evaluations=25))))
    assert [t.tier for t in landscape.asked].count(Tier.SCREEN) == 25
    assert isinstance(records[-1], Found)


def test_random_search_is_reproducible_from_its_seed() -> None:
    def run(seed: int) -> list:
        search = partial(RandomSearch, seed=seed)
        return [r.evaluation.id for r in search_subgraph(task(Landscape(), search, Budget(evaluations=15)))]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_beam_beats_random_at_equal_budget_on_this_landscape() -> None:
    def best(search) -> float:
        records = list(search_subgraph(task(Landscape(), search, Budget(evaluations=50))))
        return min(r.evaluation.measurement.us for r in records if r.evaluation.measurement)

    beam = best(partial(StagedSearch, width=4, children=4, rounds=10, top=2, tune=6))
    randoms = sorted(best(partial(RandomSearch, seed=s)) for s in range(9))
    assert beam < randoms[4]  # the median of nine


def test_nothing_is_accepted_that_nobody_would_use() -> None:
    landscape = Landscape()
    records = list(search_subgraph(task(landscape, DEEP, Budget(evaluations=9), worth=1.0)))
    assert len(records) == 9
    assert all(t.tier is Tier.SCREEN for t in landscape.asked)


def test_an_acceptance_at_other_check_sizes_is_made_again_but_its_screens_are_not() -> None:
    first = tuple(r.evaluation for r in search_subgraph(task(Landscape(), DEEP, Budget(evaluations=20))))
    landscape = Landscape()
    same = task(landscape, DEEP, Budget(evaluations=20), known=first)
    (name, graph), *_ = same.subgraph.variants
    wider = replace(same.subgraph, variants=((name, graph), ("check_1", graph)))
    other = replace(same, subgraph=wider)
    assert pending(other)
    list(search_subgraph(other))
    assert [t.tier for t in landscape.asked] == [Tier.ACCEPT]


def test_nothing_is_taken_from_another_seed() -> None:
    first = tuple(r.evaluation for r in search_subgraph(task(Landscape(), DEEP, Budget(evaluations=20))))
    landscape = Landscape()
    records = list(
        search_subgraph(replace(task(landscape, DEEP, Budget(evaluations=20), known=first), seed=1))
    )
    assert len(landscape.asked) == len(records)


def test_what_a_search_started_ends_with_it() -> None:
    landscape = Landscape()
    records = search_subgraph(task(landscape, DEEP, Budget(evaluations=20)))
    next(records)
    assert landscape.open == 1
    records.close()  # broken off
    assert landscape.open == 0
    list(search_subgraph(task(landscape, DEEP, Budget(evaluations=20))))
    assert landscape.open == 0


def test_a_paid_proposer_is_asked_by_the_worker_alone() -> None:
    proposer = PaidProposer()
    made = task(Landscape(), DEEP, Budget(evaluations=20), proposer=proposer)
    assert pending(made)
    assert proposer.asked == 0
    known = tuple(r.evaluation for r in search_subgraph(made))
    asked = proposer.asked
    assert pending(replace(made, known=known))
    assert proposer.asked == asked > 0


def test_the_beams_configurations_are_not_counted_as_tuned() -> None:
    landscape = Landscape()
    search = partial(StagedSearch, width=1, children=1, rounds=1, top=1, tune=5)
    list(search_subgraph(task(landscape, search, Budget())))
    screened = [t.configuration.text() for t in landscape.asked if t.tier is Tier.SCREEN]
    assert len(screened) == len(set(screened)) == 1 + 5
