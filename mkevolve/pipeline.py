"""The outer driver: one verb each, from settings to the text on screen and an exit code."""

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mkevolve.composition_file import FILE_NAME, Written, write
from mkevolve.config import Settings
from mkevolve.data.composition import Composition, signature_of
from mkevolve.data.decomposition import Decomposition, Slot, placed_id
from mkevolve.data.ids import content_id
from mkevolve.data.result import RunResult, totals
from mkevolve.edits import Edits, edits_of
from mkevolve.endtoend import Deviation, Kernel, check_whole
from mkevolve.exploration import Exploration
from mkevolve.filling import Filling, fill, rows
from mkevolve.interfaces import Backend
from mkevolve.report.progress import Progress
from mkevolve.report.terminal import as_json, as_text
from mkevolve.session import Session, open_session


def search(settings: Settings) -> tuple[str, int]:
    """Search a model and write its composition; returns the report and exit code 0."""
    started = time.monotonic()
    with Progress(quiet=settings.json) as progress, open_session(settings, progress) as session:
        path = settings.root.decompositions / session.folder / FILE_NAME
        edits = edits_of(path, session.model.name, session.captured, keep=settings.keep)
        exploration = Exploration(session, start=edits.start, pinned=edits.pinned)
        decomposition = exploration.run()
        whole = _checked_filling(exploration, decomposition, edits)
        filling = whole.filling
        written = write(
            path,
            _composition(session, decomposition, filling),
            filling.sources,
            keep=settings.keep,
            refused=whole.withdrawn,
        )
        notes = _notes(exploration.slots[decomposition.id], whole, edits, written)
        result = _result(exploration, written, notes, time.monotonic() - started)
        _record(session, result)
        text = as_json(result) if settings.json else as_text(result)
        _save(session, text, result)
    return text, 0


@dataclass(frozen=True, slots=True)
class _Whole:
    """What was run whole: the machine's filling with a person's slots in it, and how it deviates.

    `withdrawn` says of a person's slots why they were taken out: with them, the whole deviates.
    """

    filling: Filling
    deviations: tuple[Deviation, ...]
    withdrawn: Mapping[str, str]


def _checked_filling(exploration: Exploration, decomposition: Decomposition, edits: Edits) -> _Whole:
    """Fill the slots and run the whole as it will be written; kernels with which it deviates are left out."""
    session = exploration.session
    slots = exploration.slots[decomposition.id]
    subgraphs = tuple(exploration.subgraphs[s] for s in dict.fromkeys(slot.subgraph for slot in slots))
    kept = edits.placed(slots)
    backend = session.backends()()
    refused: dict[str, str] = {}
    withdrawn: dict[str, str] = {}
    try:
        while True:
            filling = fill(exploration, decomposition, refused)
            machine = {n: k for n, k in filling.by_slot().items() if n not in kept}
            person = {
                n: edits.kernels[c.slot.name]
                for n, c in kept.items()
                if c.slot.name in edits.kernels and n not in withdrawn
            }
            kernels = {**machine, **person}
            deviations = check_whole(session, decomposition, slots, subgraphs, kernels, backend)
            wrong = next((d for d in deviations if d.message), None)
            if wrong is None or not kernels:
                return _Whole(filling, deviations, withdrawn)
            blamed = _blamed(exploration, decomposition, kernels, wrong, backend)
            # what nobody causes alone is first put down to the machine's kernels
            blamed = blamed or dict.fromkeys(machine or person, _reason(wrong))
            refused |= {n: r for n, r in blamed.items() if n in machine}
            withdrawn |= {n: r for n, r in blamed.items() if n in person}
    finally:
        backend.close()


def _blamed(
    exploration: Exploration,
    decomposition: Decomposition,
    kernels: Mapping[str, Kernel],
    wrong: Deviation,
    backend: Backend,
) -> dict[str, str]:
    """The slots whose kernel, alone among references, makes the whole deviate."""
    session = exploration.session
    slots = exploration.slots[decomposition.id]
    subgraphs = tuple(exploration.subgraphs[s] for s in dict.fromkeys(slot.subgraph for slot in slots))
    guilty = {}
    for name, kernel in kernels.items():
        alone = check_whole(session, decomposition, slots, subgraphs, {name: kernel}, backend)
        if any(d.message for d in alone):
            guilty[name] = _reason(wrong)
    return guilty


def _reason(wrong: Deviation) -> str:
    return f"the whole model deviates at {wrong.variant}: {wrong.message}"


def _notes(slots: tuple[Slot, ...], whole: _Whole, edits: Edits, written: Written) -> tuple[str, ...]:
    """What a reader must know of the run of the whole."""
    cure = f"run: mkevolve check composition={written.files[0]}"
    known = edits.placed(slots)
    notes = [_whole(d) for d in whole.deviations]
    notes += [
        f"slot {name}, kept as edited, was left out of that run and will not load: {reason}"
        for name, reason in whole.withdrawn.items()
    ]
    notes += [
        f"slot {name}, kept as edited, was not checked: that run had its reference in its place; {cure}"
        for name in edits.unchecked(slots)
    ]
    notes += [
        f"slot {name} was changed while the search ran: that run was without the change; {cure}"
        for name in written.kept
        if name not in known
    ]
    return tuple(notes)


def _composition(session: Session, decomposition: Decomposition, filling: Filling) -> Composition:
    return Composition(
        model=session.model.name,
        decomposition=decomposition,
        slots=filling.choices,
        kernels=filling.kernels,
        environment=session.environment,
        signature=signature_of(session.captured),
        made_by=session.settings.model_words,
    )


def _result(exploration: Exploration, written: Written, notes: tuple[str, ...], seconds: float) -> RunResult:
    session = exploration.session
    composition = written.composition
    table = rows(exploration, composition.slots, composition.kernels, written.kept)
    outcomes = exploration.outcomes.values()
    path = written.files[0]
    return RunResult(
        status="done",
        model=session.model.name,
        policy=session.policy,
        clock=session.environment.clock.value,
        chip=session.chip.name,
        environment=session.environment.id,
        composition=str(path),
        database=str(session.store.path),
        slots=table,
        totals=totals(table),
        evaluated=sum(o.fresh for o in outcomes),
        cached=sum(o.cached for o in outcomes),
        rejected=sum(o.rejected for o in outcomes),
        seconds=seconds,
        notes=(*session.captured.notes, *notes),
        kept=written.kept,
        decomposition=placed_id(composition.decomposition.id, session.place),
        mutation=composition.decomposition.mutation or "",
        next_command=_next_command(session, path, any(row.own for row in table)),
        files=tuple(str(p) for p in (*written.files, session.store.path)),
    )


def _whole(deviation: Deviation) -> str:
    if deviation.message:
        return f"whole model at {deviation.variant}: {deviation.message}"
    if deviation.compared == 0:
        return f"whole model at {deviation.variant}: nothing was compared (no elements)"
    return (
        f"whole model at {deviation.variant}: {deviation.compared} elements equal the fp64 reference within "
        f"{deviation.error:.2g} (allowed {deviation.allowed:.2g})"
    )


def _next_command(session: Session, path: Path, own: bool) -> str:
    if not own:
        words = [w for w in session.settings.words if not w.startswith("proposer=")]
        return shlex.join(["python", "-m", "mkevolve", *words])
    return shlex.join(["python", "-m", "mkevolve", "check", f"composition={path}"])


def _record(session: Session, result: RunResult) -> None:
    slots = [
        {
            "name": row.name,
            "subgraph": row.subgraph,
            "implementation": row.implementation,
            "evaluation": row.evidence,
            "reason": row.reason,
        }
        for row in result.slots
    ]
    key = [
        result.decomposition,
        result.environment,
        [[s["name"], s["implementation"]] for s in slots],
    ]
    session.store.add_composition(
        {
            "id": content_id("c", key),
            "model": result.model,
            "decomposition": result.decomposition,
            "environment": result.environment,
            "path": result.composition,
            "total_us": result.totals.us,
            "eager_us": result.totals.fallback_us,
            "run": session.run,
        },
        slots,
    )


def _save(session: Session, text: str, result: RunResult) -> None:
    """Keep the report in a run folder under `outputs/`."""
    folder = session.settings.root.outputs / f"{session.folder}-{session.run}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(as_json(result) + "\n", encoding="utf-8")
    (folder / "report.txt").write_text(as_text(result, 120) + "\n", encoding="utf-8")
    (folder / "settings.json").write_text(
        json.dumps({"command": session.settings.command, **session.settings.plain()}, indent=2) + "\n",
        encoding="utf-8",
    )


def check(settings: Settings) -> tuple[str, int]:
    """Verify what an edited composition names, and rewrite its kernels table."""
    from mkevolve.recheck import recheck

    return recheck(settings)
