"""The outer driver: one verb each, from settings to the text on screen and an exit code."""

import json
import shlex
import time
from pathlib import Path

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.composition_file import FILE_NAME, Written, write
from mkevolve.config import Settings
from mkevolve.data.composition import Composition, signature_of
from mkevolve.data.decomposition import Decomposition, placed_id
from mkevolve.data.ids import content_id
from mkevolve.data.result import RunResult, totals
from mkevolve.endtoend import Deviation, check_whole
from mkevolve.exploration import Exploration
from mkevolve.filling import Filling, fill, rows
from mkevolve.report.progress import Progress
from mkevolve.report.terminal import as_json, as_text
from mkevolve.session import Session, open_session


def search(settings: Settings) -> tuple[str, int]:
    """Search a model and write its composition; returns the report and exit code 0."""
    started = time.monotonic()
    with Progress(quiet=settings.json) as progress, open_session(settings, progress) as session:
        exploration = Exploration(session)
        decomposition = exploration.run()
        filling, deviations = _checked_filling(exploration, decomposition)
        written = write(
            settings.root.decompositions / session.folder / FILE_NAME,
            _composition(session, decomposition, filling),
            filling.sources,
            keep=settings.keep,
        )
        result = _result(exploration, written, deviations, time.monotonic() - started)
        _record(session, result)
        text = as_json(result) if settings.json else as_text(result)
        _save(session, text, result)
    return text, 0


def _checked_filling(
    exploration: Exploration, decomposition: Decomposition
) -> tuple[Filling, tuple[Deviation, ...]]:
    """Fill the slots and run the whole; if it deviates, every slot that a kernel fills falls back."""
    session = exploration.session
    slots = exploration.slots[decomposition.id]
    subgraphs = tuple(exploration.subgraphs[s] for s in dict.fromkeys(slot.subgraph for slot in slots))
    backend = InterpreterBackend()
    refused: dict[str, str] = {}
    try:
        while True:
            filling = fill(exploration, decomposition, refused)
            kernels = filling.by_slot()
            deviations = check_whole(session, decomposition, slots, subgraphs, kernels, backend)
            wrong = next((d for d in deviations if d.message), None)
            if wrong is None or not kernels:
                return filling, deviations
            refused |= _blamed(exploration, decomposition, filling, wrong, backend)
    finally:
        backend.close()


def _blamed(
    exploration: Exploration,
    decomposition: Decomposition,
    filling: Filling,
    wrong: Deviation,
    backend: InterpreterBackend,
) -> dict[str, str]:
    """The slots whose kernel, alone among references, makes the whole deviate; all of them if none does."""
    session = exploration.session
    slots = exploration.slots[decomposition.id]
    subgraphs = tuple(exploration.subgraphs[s] for s in dict.fromkeys(slot.subgraph for slot in slots))
    reason = f"the whole model deviates at {wrong.variant}: {wrong.message}"
    kernels = filling.by_slot()
    guilty = {}
    for name, kernel in kernels.items():
        alone = check_whole(session, decomposition, slots, subgraphs, {name: kernel}, backend)
        if any(d.message for d in alone):
            guilty[name] = reason
    return guilty or dict.fromkeys(kernels, reason)


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


def _result(
    exploration: Exploration, written: Written, deviations: tuple[Deviation, ...], seconds: float
) -> RunResult:
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
        notes=(*session.captured.notes, *(_whole(d) for d in deviations)),
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
