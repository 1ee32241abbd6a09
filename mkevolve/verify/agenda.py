"""Which cases a candidate runs in each tier: few and varied to screen, the full product to accept.

Screening varies the order of program instances and the poison of allocations from case to case, so that races
and uninitialised reads show without extra cases; `diagnosis` then tells which of them it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from mkevolve.data.verdict import Tier
from mkevolve.interfaces import Case, Order
from mkevolve.verify.cases import Distribution
from mkevolve.verify.references import References, Sample
from mkevolve.verify.work import flops

TARGET_INSTANCES = {Tier.SCREEN: 6, Tier.ACCEPT: 16}
SCREEN_INSTANCES = 8  # of each launch in a re-drawn case; what the model really sends is run whole
_COSTLY = 8.0  # a check variant with this much more work than the least gets the captured case only
_DRAWN = tuple(d for d in Distribution if d not in (Distribution.CAPTURED, Distribution.EMPHASIS))


class Purpose(StrEnum):
    """What a case is there to show."""

    VALUE = "value"
    TARGET = "target"  # a few program instances at the target sizes
    REPEAT = "repeat"  # bitwise as its value case: the same call again
    ORDER = "order"  # bitwise as its value case: other order of instances
    POISON = "poison"  # bitwise as its value case: other content of allocations
    NOOP = "noop"  # must be wrong: launches are disabled


@dataclass(frozen=True, slots=True)
class Entry:
    """A case, why it is run, and the index of the entry that it must agree with bitwise."""

    purpose: Purpose
    sample: Sample
    case: Case
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class Agenda:
    """Entries in the order in which they run; `notes` say what is not checked."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def agenda(references: References, tier: Tier) -> Agenda:
    """Plan the cases of one candidate; the same for all candidates of a subgraph."""
    notes: list[str] = []
    entries = list(_screen(references, notes) if tier is Tier.SCREEN else _accept(references, notes))
    influence = references.influence()
    entries += [_value(s) for s in influence.samples]
    notes += [f"{name} does not change the result" for name in influence.silent]
    values = [e.sample for e in entries if e.purpose is Purpose.VALUE]
    target, note = references.target()
    if note:
        notes.append(note)
    entries.append(Entry(Purpose.TARGET, target, _case(target, instances=TARGET_INSTANCES[tier])))
    still = values[0] if values else target
    entries += [Entry(Purpose.NOOP, still, _case(still, launch=False, poison=p)) for p in (0, 1)]
    if not references.subgraph.checks:
        notes.append("verified at one size" + ("" if values else ", in sampled program instances only"))
    return Agenda(tuple(entries), tuple(notes))


def thinned(plan: Agenda) -> Agenda:
    """The same agenda with only some program instances of every re-drawn case, others from case to case.

    For candidates of one launch only: a later launch would read what an earlier one left out.
    """
    entries = tuple(
        replace(e, case=replace(e.case, instances=SCREEN_INSTANCES, seed=e.case.seed + at))
        if e.purpose is Purpose.VALUE and e.sample.distribution in _DRAWN
        else e
        for at, e in enumerate(plan.entries)
    )
    note = f"re-drawn cases: at most {SCREEN_INSTANCES} program instances each"
    return replace(plan, entries=entries, notes=(*plan.notes, note))


def diagnosis(sample: Sample) -> tuple[Entry, ...]:
    """Two cases that tell a wrong value from a race and from a read of what nothing wrote."""
    return (_value(sample), Entry(Purpose.POISON, sample, _case(sample, poison=1), same_as=0))


def _screen(references: References, notes: list[str]) -> Iterator[Entry]:
    names = references.checks()
    turn = 0
    for name in names:
        sample = _first(references, name)
        if sample is None:
            notes.append(f"nothing to compare at {name}")
            continue
        yield _varied(sample, turn)
        turn += 1
    cheap = _cheap(references, names)
    for at, distribution in enumerate(_DRAWN):
        tried = [cheap[(at + shift) % len(cheap)] for shift in range(len(cheap))]
        drawn = (references.sample(name, distribution) for name in tried)
        sample = next((s for s in drawn if s is not None), None)
        if sample is None:
            if names:
                notes.append(f"no {distribution} draw is evidence here")
            continue
        yield _varied(sample, turn)
        turn += 1


def _accept(references: References, notes: list[str]) -> Iterator[Entry]:
    at = 0
    for name in references.checks():
        first = _first(references, name)
        if first is None:
            notes.append(f"nothing to compare at {name}")
            continue
        yield _value(first)
        yield Entry(Purpose.REPEAT, first, _case(first), at)
        yield Entry(Purpose.ORDER, first, _case(first, order=Order.REVERSED), at)
        yield Entry(Purpose.ORDER, first, _case(first, order=Order.SHUFFLED), at)
        yield Entry(Purpose.POISON, first, _case(first, poison=1), at)
        at += 5
        for distribution, seed in (*((d, 0) for d in _DRAWN), (Distribution.REDRAW, 1)):
            sample = references.sample(name, distribution, seed)
            if sample is None:
                notes.append(f"no {distribution} draw is evidence at {name}")
            elif sample is not first:
                yield _value(sample)
                at += 1


def _first(references: References, name: str) -> Sample | None:
    """What the model really sends, or a draw around it where nothing was captured at these sizes."""
    captured = references.sample(name, Distribution.CAPTURED)
    return captured or references.sample(name, Distribution.REDRAW)


def _cheap(references: References, names: tuple[str, ...]) -> tuple[str, ...]:
    work = {name: flops(graph) for name, graph in references.subgraph.variants if name in names}
    least = min(work.values(), default=0.0)
    return tuple(n for n in names if work[n] <= _COSTLY * max(least, 1.0))


def _value(sample: Sample) -> Entry:
    return Entry(Purpose.VALUE, sample, _case(sample))


def _varied(sample: Sample, turn: int) -> Entry:
    order = (Order.FORWARD, Order.REVERSED, Order.SHUFFLED)[turn % 3]
    return Entry(Purpose.VALUE, sample, _case(sample, order=order, poison=turn % 2))


def _case(
    sample: Sample,
    *,
    order: Order = Order.FORWARD,
    instances: int | None = None,
    launch: bool = True,
    poison: int = 0,
) -> Case:
    return Case(
        key=sample.key,
        variant=sample.variant,
        activations=sample.activations,
        params=sample.params,
        order=order,
        instances=instances,
        launch=launch,
        poison=poison,
        seed=sample.seed,
    )
