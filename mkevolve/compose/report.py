"""What a composed module did so far."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields


class OriginalRan(UserWarning):
    """The original module ran instead of the composition; warned of once for each reason."""


@dataclass(frozen=True, slots=True)
class SlotCalls:
    """How often a slot ran its subkernel, and how often its fall-back (`eager`, `compile`)."""

    subkernel: int = 0
    fallback: int = 0


@dataclass(frozen=True, slots=True)
class Report(Mapping[str, object]):
    """Calls since the module was loaded; also a mapping of its fields.

    `composed` calls ran slot by slot, the others ran the original module, counted by reason in `original`.
    """

    composed: int
    original: Mapping[str, int]
    slots: Mapping[str, SlotCalls]

    def __getitem__(self, name: str) -> object:
        if name not in set(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(slots=True)
class Tally:
    """The counters behind a report."""

    composed: int = 0
    original: dict[str, int] = field(default_factory=dict)
    subkernel: dict[str, int] = field(default_factory=dict)
    fallback: dict[str, int] = field(default_factory=dict)

    def report(self, slots: tuple[str, ...]) -> Report:
        calls = {n: SlotCalls(self.subkernel.get(n, 0), self.fallback.get(n, 0)) for n in slots}
        return Report(self.composed, dict(self.original), calls)
