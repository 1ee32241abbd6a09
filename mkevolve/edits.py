"""What a person changed in the composition that a search will write again, found out before it starts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mkevolve.composition_file import edited, entry_of, place_of, read_old, text_sha256
from mkevolve.data.composition import FALLBACKS, Composition, SlotChoice
from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.model import CapturedModel
from mkevolve.endtoend import Kernel
from mkevolve.errors import CompositionError, IllegalPartition
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.legality import check
from mkevolve.partition.realize import facts_of, realize


@dataclass(frozen=True, slots=True)
class Edits:
    """The slots that a person changed. `start` is a cut that has all of them, None where nothing was changed.

    `kernels` holds what fills them, by their name in the old file: of those that were checked.
    """

    start: Decomposition | None = None
    choices: tuple[SlotChoice, ...] = ()
    kernels: Mapping[str, Kernel] = field(default_factory=dict)

    @property
    def pinned(self) -> frozenset[frozenset[str]]:
        """The partitions, as sets of nodes, that every cut must have."""
        return frozenset(frozenset(c.slot.nodes) for c in self.choices)

    def placed(self, slots: Iterable[Slot]) -> dict[str, SlotChoice]:
        """The changed slots by their name among the slots of a new cut."""
        known = tuple(slots)
        found = ((place_of(known, c.slot), c) for c in self.choices)
        return {place.name: choice for place, choice in found if place is not None}

    def unchecked(self, slots: Iterable[Slot]) -> tuple[str, ...]:
        """Of those, the slots with a kernel that was not checked."""
        return tuple(
            name
            for name, choice in self.placed(slots).items()
            if choice.implementation not in FALLBACKS and choice.slot.name not in self.kernels
        )


def edits_of(path: Path, model: str, captured: CapturedModel, *, keep: bool) -> Edits:
    """Read what lies at `path`. Raises `CompositionError` where it cannot be kept or overwritten."""
    old = read_old(path, model)
    if old is None or not keep:
        return Edits()
    names = set(edited(path, old))
    choices = tuple(c for c in old.slots if c.slot.name in names)
    if not choices:
        return Edits()
    found = ((c.slot.name, _kernel(path, old, c)) for c in choices)
    kernels = {name: kernel for name, kernel in found if kernel is not None}
    return Edits(_start(path, old, captured, choices), choices, kernels)


def _kernel(path: Path, old: Composition, choice: SlotChoice) -> Kernel | None:
    """What fills a slot, if it was checked and not changed since."""
    entry = entry_of(old, choice)
    if entry is None or not entry.evidence or not entry.configurations or entry.reset:
        return None
    try:
        text = (path.parent / entry.path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return Kernel(text, entry.configurations[0][1]) if text_sha256(text) == entry.sha256 else None


def _start(
    path: Path, old: Composition, captured: CapturedModel, choices: tuple[SlotChoice, ...]
) -> Decomposition:
    """The first cut where it has the changed slots, else the cut in which they were changed."""
    for cut in (first_cut(captured), old.decomposition):
        try:
            check(facts_of(realize(captured, cut)), cut)
            slots, _ = slots_of(captured, cut)
        except IllegalPartition:
            continue
        missing = [c.slot.name for c in choices if place_of(slots, c.slot) is None]
        if not missing:
            return cut
    lost = ", ".join(c.slot.name for c in choices)
    raise CompositionError(
        f"{path}: slots changed by hand: {lost}; the model has changed since and no cut of it has them; undo "
        "the change in the file, or drop it with keep=false"
    )
