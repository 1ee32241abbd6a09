"""Which subgraph a command line means: of the first cut, of a composition, or the whole module."""

from collections.abc import Mapping
from dataclasses import dataclass

from mkevolve.data.composition import Composition, SlotChoice
from mkevolve.data.decomposition import Decomposition, Slot, Subgraph
from mkevolve.data.graph import Ref
from mkevolve.data.verification import Subject
from mkevolve.errors import CaptureError, ConfigError
from mkevolve.overrides import nearest
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.realize import facts_of, realize
from mkevolve.partition.whole import refuse_draws, whole_of
from mkevolve.recheck import slots_in
from mkevolve.request import WHOLE
from mkevolve.session import Session


@dataclass(frozen=True)
class Named:
    """What a command line means: a subgraph, the slots of its cut, and the line of a composition."""

    decomposition: Decomposition
    slots: tuple[Slot, ...]
    subgraph: Subgraph
    choice: SlotChoice | None = None


@dataclass(frozen=True)
class Cut:
    """The subgraphs that can be named: those of the first cut, or of a composition."""

    session: Session
    decomposition: Decomposition
    slots: tuple[Slot, ...]
    subgraphs: Mapping[str, Subgraph]

    def whole(self) -> Named:
        """The whole module, which no cut names."""
        slot, subgraph = whole_of(self.session.captured)
        return Named(Decomposition(()), (slot,), subgraph)

    def subgraph(self, word: str) -> Named:
        """By id, by the beginning of one, or by a slot's name; `whole` is the whole module."""
        if word == WHOLE:
            return self.whole()
        found = {s.subgraph for s in self.slots if s.name == word} | {i for i in self.subgraphs if i == word}
        if not found:
            found = {i for i in self.subgraphs if i.startswith((word, f"sg_{word}"))}
        if len(found) != 1:
            names = [WHOLE, *self.subgraphs, *(s.name for s in self.slots)]
            why = f"fits {', '.join(sorted(found))}" if found else f"is unknown{nearest(word, names)}"
            raise ConfigError(
                f"subgraph={word} {why}; show=subgraphs lists what {self.session.model.name} has"
            )
        place = next(s for s in self.slots if s.subgraph in found)
        self.refuse_draws(place)
        return Named(self.decomposition, self.slots, self.subgraphs[place.subgraph])

    def refuse_draws(self, slot: Slot) -> None:
        """Raise `CaptureError` for a slot that draws random numbers."""
        facts = facts_of(realize(self.session.captured, self.decomposition))
        refuse_draws(facts, slot.nodes, f"slot {slot.name}")


def cut_of(session: Session, composition: Composition | None) -> Cut:
    """The cut of a composition, else the first cut."""
    if composition is not None and session.settings.composition is not None:
        slots, subgraphs = slots_in(session, composition, session.settings.composition)
        return Cut(session, composition.decomposition, slots, subgraphs)
    decomposition = first_cut(session.captured)
    slots, found = slots_of(session.captured, decomposition)
    return Cut(session, decomposition, slots, {s.id: s for s in found})


def named_in(cut: Cut, composition: Composition | None) -> Named:
    """What `subgraph=` or `slot=` means in a cut; raises `ConfigError` with the nearest name."""
    request = cut.session.settings.request
    if composition is None or request.slot is None:
        return cut.subgraph(request.subgraph or WHOLE)
    choice = next(c for c in composition.slots if c.slot.name == request.slot)
    cut.refuse_draws(choice.slot)
    return Named(cut.decomposition, cut.slots, cut.subgraphs[choice.slot.subgraph], choice)


def subjects_of(cut: Cut) -> tuple[Subject, ...]:
    """The whole module, where it can be verified, and the subgraphs of the cut."""
    named = [Named(cut.decomposition, cut.slots, s) for s in cut.subgraphs.values()]
    try:
        named.insert(0, cut.whole())
    except CaptureError as error:
        cut.session.progress.say(f"whole: {error}")
    return tuple(subject_of(cut.session, n) for n in named)


def subject_of(session: Session, named: Named) -> Subject:
    """The subgraph with what its tensors are in the model."""
    facts = facts_of(realize(session.captured, named.decomposition))
    slots = [s for s in named.slots if s.subgraph == named.subgraph.id]
    slots.sort(key=lambda s: named.choice is None or s.name != named.choice.slot.name)

    returned = facts.graph.outputs
    changed = ((returned[m.output], m.target) for m in session.captured.mutations)
    renewed = {r.name: f"new value of {target}" for r, target in changed if isinstance(r, Ref)}

    def origin(value: str) -> str:
        given = facts.inputs.get(facts.root[value])
        name = given.target or given.name if given is not None else value
        return name if given is None or given.name == value else f"view of {name}"

    return Subject(
        subgraph=named.subgraph,
        slots=tuple(s.name for s in slots),
        inputs=tuple(origin(v) for v in slots[0].inputs),
        outputs=tuple(renewed.get(v, v) for v in slots[0].outputs),
    )
