"""Fills slots with what the searches found: choices, kernel entries, and the rows of a report."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mkevolve.composition_file import kernel_path
from mkevolve.data.composition import FALLBACKS, KernelEntry, SlotChoice
from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.measurement import Evaluation, Measurement
from mkevolve.data.result import SlotRow
from mkevolve.endtoend import Kernel
from mkevolve.exploration import Exploration

FALLBACK = FALLBACKS[0]


@dataclass(frozen=True, slots=True)
class Filling:
    """Slots with their choices, and the kernels that they name; `sources` maps `k_` ids to files."""

    choices: tuple[SlotChoice, ...]
    kernels: tuple[KernelEntry, ...]
    sources: Mapping[str, str]

    def by_slot(self) -> dict[str, Kernel]:
        """Source and configuration of each slot that a subkernel fills."""
        entries = {e.path: e for e in self.kernels}
        return {
            c.slot.name: Kernel(
                self.sources[entries[c.implementation].id],
                entries[c.implementation].configurations[0][1],
            )
            for c in self.choices
            if c.implementation in entries
        }


def fill(
    exploration: Exploration, decomposition: Decomposition, refused: Mapping[str, str] | None = None
) -> Filling:
    """Fill every slot with the winner of its subgraph, else with eager and the reason.

    `refused` maps slot names to why their kernel may not be used after all. Kernels of one subgraph share a
    file, named after the first slot that it fills.
    """
    refused = refused or {}
    entries: dict[str, KernelEntry] = {}
    sources: dict[str, str] = {}
    choices = []
    for slot in exploration.slots[decomposition.id]:
        outcome = exploration.outcomes[slot.subgraph]
        fallback = exploration.fallback(slot.subgraph)
        others = tuple((c.id, e.measurement) for c, e in outcome.alternatives())
        winner = outcome.winner
        if winner is None or slot.name in refused:
            reason = refused.get(slot.name) or outcome.explain()
            choices.append(SlotChoice(slot, FALLBACK, reason, others, fallback))
            continue
        if slot.subgraph not in entries:
            path = kernel_path(winner.candidate.id, _file_part(slot.name))
            entries[slot.subgraph] = _entry(exploration, slot, winner.evaluation, path)
            sources[winner.candidate.id] = winner.candidate.source
        choices.append(SlotChoice(slot, entries[slot.subgraph].path, "", others, fallback))
    return Filling(tuple(choices), tuple(entries.values()), sources)


def _entry(exploration: Exploration, slot: Slot, evaluation: Evaluation, path: str) -> KernelEntry:
    evidence = evaluation.verdict.evidence
    entry = KernelEntry(
        id=evaluation.candidate,
        path=path,
        sha256="",  # of the file that will be written
        subgraph=slot.subgraph,
        configurations=tuple(
            (v.name, evaluation.configuration) for v in exploration.session.captured.variants
        ),
        evidence=evaluation.id,
        measurement=evaluation.measurement,
        error=evidence.error,
        allowed=evidence.allowed,
    )
    return replace(entry, verified=entry.digest)


def _file_part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def rows(
    exploration: Exploration,
    choices: tuple[SlotChoice, ...],
    kernels: tuple[KernelEntry, ...],
    kept: tuple[str, ...],
) -> tuple[SlotRow, ...]:
    """What the report shows of each slot, as the composition file has it now."""
    entries = {(e.path, e.subgraph): e for e in kernels} | {(e.id, e.subgraph): e for e in kernels}
    found = []
    for choice in choices:
        slot = choice.slot
        entry = entries.get((choice.implementation, slot.subgraph))
        fallback = exploration.fallback(slot.subgraph)
        time: Measurement | None = entry.measurement if entry else None
        if choice.implementation in FALLBACKS:
            time = fallback
        found.append(
            SlotRow(
                name=slot.name,
                ops=slot.ops,
                subgraph=slot.subgraph,
                implementation=choice.implementation,
                time=time,
                fallback=fallback,
                bound=exploration.bound(slot.subgraph),
                error=entry.error if entry else None,
                allowed=entry.allowed if entry else None,
                reason=choice.reason,
                kept=slot.name in kept,
                evidence=entry.evidence if entry else "",
            )
        )
    return tuple(found)
