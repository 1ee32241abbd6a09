"""What a run found, as a person or a program reads it."""

from dataclasses import dataclass

from mkevolve.data.measurement import Measurement


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot of the composition. Times are microseconds; `bound` is the roofline's lower bound.

    `fallback` is what the slot costs in eager on the same clock. `error` and `allowed` are the verdict's.
    """

    name: str
    ops: str
    subgraph: str
    implementation: str
    time: Measurement | None
    fallback: Measurement | None
    bound: float | None
    error: float | None = None
    allowed: float | None = None
    reason: str = ""
    kept: bool = False
    evidence: str = ""

    @property
    def own(self) -> bool:
        """Whether a subkernel fills it."""
        return self.implementation not in ("eager", "compile")

    @property
    def roofline(self) -> float | None:
        """Share of the roofline that is reached, 0 to 1."""
        if self.time is None or self.bound is None or self.time.us <= 0:
            return None
        return self.bound / self.time.us


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the slots, in microseconds. `own_share` is the share of `us` spent in subkernels.

    `own_us` and `own_fallback_us` leave out the slots that stayed on a fall-back.
    """

    us: float
    low: float
    high: float
    fallback_us: float
    own_us: float
    own_fallback_us: float
    own_share: float
    slots: int
    own_slots: int
    subgraphs: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of the search. `status` is `done` or `interrupted`."""

    status: str
    model: str
    policy: str
    clock: str
    chip: str
    environment: str
    composition: str
    database: str
    slots: tuple[SlotRow, ...]
    totals: Totals
    evaluated: int
    cached: int
    rejected: int
    seconds: float
    notes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    decomposition: str = ""
    mutation: str = ""
    next_command: str = ""
    files: tuple[str, ...] = ()


def totals(rows: tuple[SlotRow, ...]) -> Totals:
    """Add up the rows; a row without a time counts as its fall-back."""
    times = [row.time or row.fallback for row in rows]
    spent = [(row, t) for row, t in zip(rows, times, strict=True) if t is not None]
    us = sum(t.us for _, t in spent)
    own = [(row, t) for row, t in spent if row.own]
    return Totals(
        us=us,
        low=sum(t.low for _, t in spent),
        high=sum(t.high for _, t in spent),
        fallback_us=sum(row.fallback.us for row in rows if row.fallback is not None),
        own_us=sum(t.us for _, t in own),
        own_fallback_us=sum(row.fallback.us for row, _ in own if row.fallback is not None),
        own_share=sum(t.us for _, t in own) / us if us else 0.0,
        slots=len(rows),
        own_slots=len(own),
        subgraphs=len({row.subgraph for row in rows}),
    )
