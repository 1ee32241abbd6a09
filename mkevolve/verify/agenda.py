"""Which cases a candidate runs in each tier: few and varied to screen, the full product to accept.

Screening varies the order of program instances and the poison of allocations from case to case, so that races
and uninitialised reads show without extra cases; `diagnosis` then tells which of them it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from mkevolve.data.verdict import Tier
from mkevolve.interfaces import Case, Order
from mkevolve.verify.cases import SPECIAL, Distribution
from mkevolve.verify.gates import Gate, Rules
from mkevolve.verify.integrity import impostors
from mkevolve.verify.references import References, Sample
from mkevolve.verify.work import flops

TARGET_INSTANCES = {Tier.SCREEN: 6, Tier.ACCEPT: 16}
REDRAWN_INSTANCES = {Tier.SCREEN: 4, Tier.ACCEPT: 6}  # of a launch; what the model really sends runs whole
_COSTLY = 8.0  # a check variant with this much more work than the least gets the captured case only
_ALL = Rules()
_OTHER = (Distribution.CAPTURED, Distribution.EMPHASIS, Distribution.CENTRED)
_DRAWN = tuple(d for d in Distribution if d not in _OTHER)
_AT_TARGET = (Distribution.LARGE, Distribution.OFFSET, Distribution.NONFINITE)  # where a device runs it
_CENTRED = 4  # draws that may show a trivial result


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
    """Entries in the order in which they run, no-op replays last; `notes` say what is not checked.

    `replaced` counts the draws that were no evidence and were drawn again.
    """

    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    replaced: int = 0


def agenda(references: References, tier: Tier, rules: Rules = _ALL) -> Agenda:
    """Plan the cases of one candidate; the same for all candidates of a subgraph."""
    notes: list[str] = []
    entries = list(
        _screen(references, notes, rules) if tier is Tier.SCREEN else _accept(references, notes, rules)
    )
    influence = references.influence()
    entries += [_value(s) for s in influence.samples]
    notes += [f"{name} does not change the result" for name in influence.silent]
    values = [e.sample for e in entries if e.purpose is Purpose.VALUE]
    telling, fooled = _telling(references, values)
    entries += [_value(s) for s in telling]
    notes += [f"{name} would pass every case" for name in sorted(fooled)]
    target, note = references.target()
    if note:
        notes.append(note)
    instances = None if rules.whole else TARGET_INSTANCES[tier]
    turned = _varied(target, 1, rules).case  # no check variant may be large enough for a race to show
    entries.append(Entry(Purpose.TARGET, target, replace(turned, instances=instances)))
    if rules.whole:
        drawn = (references.at_target(distribution) for distribution in _AT_TARGET)
        entries += [_value(s) for s in drawn if s is not None]
    still = values[0] if values else target
    if values and rules.on(Gate.REPEAT):  # after many other calls
        entries.append(Entry(Purpose.REPEAT, entries[0].sample, entries[0].case, same_as=0))
    if rules.on(Gate.NOOP):
        entries += [Entry(Purpose.NOOP, still, _case(still, launch=False, poison=p)) for p in (0, 1)]
    if not references.subgraph.checks:
        notes.append("verified at one size" + ("" if values else ", in sampled program instances only"))
    replaced = sum({s.key: s.replaced for s in values}.values())
    return Agenda(tuple(entries), tuple(notes), replaced)


def _telling(references: References, values: list[Sample]) -> tuple[list[Sample], frozenset[str]]:
    """Samples that refuse the trivial results which pass all of `values`, and the results that none does."""
    fooled: frozenset[str] | None = None
    for sample in values:
        if sample.distribution not in SPECIAL:  # the sign of an infinity tells too little
            fooled = _still_fooled(fooled, sample)
    telling: list[Sample] = []
    names = references.checks()
    for seed in range(_CENTRED if fooled and names else 0):
        drawn = references.sample(names[seed % len(names)], Distribution.CENTRED, seed)
        left = fooled if drawn is None else _still_fooled(fooled, drawn)
        if drawn is not None and left != fooled:
            telling.append(drawn)
            fooled = left
    return telling, fooled or frozenset()


def _still_fooled(fooled: frozenset[str] | None, sample: Sample) -> frozenset[str]:
    found = impostors(sample.activations, sample.expected)
    return found if fooled is None else fooled & found


def thinned(plan: Agenda, tier: Tier) -> Agenda:
    """The same agenda with only some program instances of every re-drawn case, others from case to case.

    For candidates of one launch only: a later launch would read what an earlier one left out. To accept, one
    re-drawn case of each size runs whole, as what the model really sends always does. Of the calls that must
    give the same bits, one order and the last repeat run whole.
    """
    most = REDRAWN_INSTANCES[tier]
    entries: list[Entry] = []
    for at, entry in enumerate(plan.entries):
        case = entry.case
        if entry.same_as is not None:
            like = entries[entry.same_as].case
            case = replace(case, instances=like.instances, seed=like.seed)
            if _is_second_look(plan, at) or tier is Tier.SCREEN:
                case = replace(case, instances=most)
        elif entry.purpose is Purpose.VALUE and _is_thinned(entry.sample, tier):
            case = replace(case, instances=most, seed=case.seed + at)
        entries.append(replace(entry, case=case))
    note = f"re-drawn cases: at most {most} program instances each"
    return replace(plan, entries=tuple(entries), notes=(*plan.notes, note))


def _is_second_look(plan: Agenda, at: int) -> bool:
    """Whether another entry that must give the same bits shows most of what this one does."""
    entry = plan.entries[at]
    if entry.purpose is Purpose.ORDER:
        return entry.case.order is Order.SHUFFLED
    if entry.purpose is Purpose.REPEAT:
        return any(e.purpose is Purpose.REPEAT for e in plan.entries[at + 1 :])
    return entry.purpose is Purpose.POISON


def _is_thinned(sample: Sample, tier: Tier) -> bool:
    whole = tier is Tier.ACCEPT and sample.distribution is Distribution.REDRAW and sample.seed == 0
    return sample.distribution in _DRAWN and not whole


def completed(plan: Agenda, rules: Rules) -> Agenda:
    """The same agenda with every program instance at the target, where the sampled ones are compared.

    Sampled instances show what they wrote and not what they should have written besides.
    """
    target = next(e.sample for e in plan.entries if e.purpose is Purpose.TARGET)
    if not target.expected or any(e.sample is target and e.case.instances is None for e in plan.entries):
        return plan
    calls = [e for e in plan.entries if e.purpose is not Purpose.NOOP]
    return replace(plan, entries=(*calls, _varied(target, 2, rules), *plan.entries[len(calls) :]))


def diagnosis(entry: Entry) -> tuple[Entry, ...]:
    """Two cases that tell a wrong value from a race and from a read of what nothing wrote."""
    plain = replace(entry.case, order=Order.FORWARD, poison=0)
    return (
        replace(entry, case=plain),
        Entry(Purpose.POISON, entry.sample, replace(plain, poison=1), same_as=0),
    )


def _screen(references: References, notes: list[str], rules: Rules) -> Iterator[Entry]:
    names = references.checks()
    turn = 0
    for name in names:
        sample = _first(references, name)
        if sample is None:
            notes.append(f"nothing to compare at {name}")
            continue
        yield _varied(sample, turn, rules)
        turn += 1
        if turn == 1 and not rules.on(Gate.VALUE):  # nothing else shows then what order and poison do
            yield from _again(sample, 0, rules, True)
    cheap = _cheap(references, names)
    for at, distribution in enumerate(_DRAWN):
        tried = [cheap[(at + shift) % len(cheap)] for shift in range(len(cheap))]
        drawn = (references.sample(name, distribution) for name in tried)
        sample = next((s for s in drawn if s is not None), None)
        if sample is None:
            if names:
                notes.append(f"no {distribution} draw is evidence here")
            continue
        yield _varied(sample, turn, rules)
        turn += 1


def _accept(references: References, notes: list[str], rules: Rules) -> Iterator[Entry]:
    at = turn = 0
    for name in references.checks():
        first = _first(references, name)
        if first is None:
            notes.append(f"nothing to compare at {name}")
            continue
        yield _value(first)
        again = tuple(_again(first, at, rules, at == 0 or rules.whole))
        yield from again
        at += 1 + len(again)
        for distribution, seed in (*((d, 0) for d in _DRAWN), (Distribution.REDRAW, 1)):
            sample = references.sample(name, distribution, seed)
            if sample is None:
                notes.append(f"no {distribution} draw is evidence at {name}")
            elif sample is not first:
                turn += 1
                yield _varied(sample, turn, rules)
                at += 1


def _again(sample: Sample, at: int, rules: Rules, every: bool) -> Iterator[Entry]:
    """The same call in other orders, again and on other poison; entry `at` was the first.

    Not `every` one at each size, but one: the re-drawn cases vary the order and the poison for nothing.
    """
    found = []
    if rules.on(Gate.ORDER) and not rules.whole:
        found.append(Entry(Purpose.ORDER, sample, _case(sample, order=Order.REVERSED), at))
        found.append(Entry(Purpose.ORDER, sample, _case(sample, order=Order.SHUFFLED), at))
    if rules.on(Gate.REPEAT):
        found.insert(1, Entry(Purpose.REPEAT, sample, _case(sample), at))
    if rules.on(Gate.POISON):
        found.append(Entry(Purpose.POISON, sample, _case(sample, poison=1), at))
    yield from found if every else found[:1]


def _first(references: References, name: str) -> Sample | None:
    """What the model really sends, or a draw around it where nothing was captured at these sizes."""
    drawn = references.sample(name, Distribution.CAPTURED) or references.sample(name, Distribution.REDRAW)
    return drawn or references.captured(name)


def _cheap(references: References, names: tuple[str, ...]) -> tuple[str, ...]:
    work = {name: flops(graph) for name, graph in references.subgraph.variants if name in names}
    least = min(work.values(), default=0.0)
    return tuple(n for n in names if work[n] <= _COSTLY * max(least, 1.0))


def _value(sample: Sample) -> Entry:
    return Entry(Purpose.VALUE, sample, _case(sample))


def _varied(sample: Sample, turn: int, rules: Rules) -> Entry:
    order = (Order.FORWARD, Order.REVERSED, Order.SHUFFLED)[turn % 3 if rules.on(Gate.ORDER) else 0]
    poison = turn % 2 if rules.on(Gate.POISON) else 0
    return Entry(Purpose.VALUE, sample, _case(sample, order=order, poison=poison))


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
