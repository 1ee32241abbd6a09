"""`mkevolve check`: verifies what a person put into a composition, and rewrites its kernels table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.composition_file import entry_of, kernel_path, read, rewrite, sha256
from mkevolve.config import Settings, with_model
from mkevolve.data.candidate import Candidate
from mkevolve.data.codec import encode
from mkevolve.data.composition import FALLBACKS, Composition, KernelEntry, SlotChoice
from mkevolve.data.decomposition import Slot, Subgraph
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Tier, Verdict
from mkevolve.endtoend import Deviation, Kernel, check_whole
from mkevolve.errors import CompositionError, ConfigError
from mkevolve.partition.extract import slots_of
from mkevolve.report.progress import Progress
from mkevolve.search.params import default_configuration
from mkevolve.session import Session, open_session


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one slot; `entry` is None for a fall-back and for a kernel that was rejected."""

    slot: str
    implementation: str
    verdict: Verdict | None
    entry: KernelEntry | None
    source: str | None

    @property
    def passed(self) -> bool:
        return self.verdict is None or self.verdict.passed


def recheck(settings: Settings) -> tuple[str, int]:
    """Check a composition file; exit code 0 where all passed and the file was rewritten, 1 where not."""
    path = settings.composition
    if path is None:
        raise ConfigError(
            "which composition? add composition=FILE, such as decompositions/NAME/composition.yaml"
        )
    composition = read(path)
    if not composition.made_by:
        raise CompositionError(f"{path}: the field 'made_by' is missing; run the search again")
    settings = with_model(settings, composition.made_by)
    with Progress(quiet=settings.json) as progress, open_session(settings, progress) as session:
        slots, subgraphs = _cut(session, composition, path)
        checked = [_check_slot(session, composition, choice, path, subgraphs) for choice in composition.slots]
        whole: tuple[Deviation, ...] = ()
        if all(c.passed for c in checked):
            whole = _check_whole(session, composition, slots, subgraphs, checked)
        passed = all(c.passed for c in checked) and not any(d.message for d in whole)
        if passed:
            rewrite(path, _renewed(session, composition, checked), _sources(checked))
    return _report(settings, path, checked, whole, passed), 0 if passed else 1


def _cut(
    session: Session, composition: Composition, path: Path
) -> tuple[tuple[Slot, ...], Mapping[str, Subgraph]]:
    slots, subgraphs = slots_of(session.captured, composition.decomposition)
    found = {s.name: s.subgraph for s in slots}
    for choice in composition.slots:
        if found.get(choice.slot.name) != choice.slot.subgraph:
            raise CompositionError(
                f"{path}: slot {choice.slot.name} is {found.get(choice.slot.name, 'absent')} in this model, "
                f"not {choice.slot.subgraph}; the model has changed: run the search again"
            )
    if len(found) != len(composition.slots):
        missing = sorted(set(found) - {c.slot.name for c in composition.slots})
        raise CompositionError(f"{path}: slots {', '.join(missing)} are missing; run the search again")
    return slots, {s.id: s for s in subgraphs}


def _check_slot(
    session: Session,
    composition: Composition,
    choice: SlotChoice,
    path: Path,
    subgraphs: Mapping[str, Subgraph],
) -> Checked:
    slot = choice.slot
    if choice.implementation in FALLBACKS:
        return Checked(slot.name, choice.implementation, None, None, None)
    source, place = _source(session, composition, choice, path)
    candidate = Candidate(source, "person")
    known = entry_of(composition, choice)
    configuration = default_configuration(source)
    if known is not None and known.id == candidate.id and known.configurations:
        configuration = known.configurations[0][1]
    trial = Trial(candidate, configuration, Tier.ACCEPT)
    session.progress.say(f"{slot.name}: {choice.implementation}")
    evaluation = _evaluate(session, composition, subgraphs[slot.subgraph], trial)
    verdict = evaluation.verdict
    if not verdict.passed:
        return Checked(slot.name, choice.implementation, verdict, None, None)
    entry = KernelEntry(
        id=candidate.id,
        path=place,
        sha256=sha256(path.parent / place) or "",
        subgraph=slot.subgraph,
        configurations=tuple((v.name, configuration) for v in session.captured.variants),
        evidence=evaluation.id,
        measurement=evaluation.measurement,
        error=verdict.evidence.error,
        allowed=verdict.evidence.allowed,
    )
    missing = not (path.parent / place).exists()
    return Checked(slot.name, choice.implementation, verdict, entry, source if missing else None)


def _source(session: Session, composition: Composition, choice: SlotChoice, path: Path) -> tuple[str, str]:
    """The kernel's text and its path relative to the composition file."""
    name = choice.implementation
    entry = entry_of(composition, choice)
    place = entry.path if entry is not None else name
    if entry is None and name.startswith("k_") and not name.endswith(".py"):
        stored = session.store.candidate(name)
        if stored is None:
            raise CompositionError(
                f"{path}: slot {choice.slot.name}: {name} is not in {session.store.path}; "
                "give a kernel's path"
            )
        return stored.source, kernel_path(name, choice.slot.name)
    try:
        return (path.parent / place).read_text(encoding="utf-8"), place
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CompositionError(
            f"{path}: slot {choice.slot.name}: cannot read {path.parent / place}: {reason}"
        ) from error


def _evaluate(session: Session, composition: Composition, subgraph: Subgraph, trial: Trial) -> Evaluation:
    for known in session.store.evaluations(subgraph.id, session.environment.id):
        if (known.candidate, known.configuration.text(), known.tier.value) == trial.key:
            return known
    slots = tuple(c.slot for c in composition.slots)
    (task,) = session.tasks(composition.decomposition, slots, (subgraph,))
    evaluation = task.evaluator()(trial)
    session.store.add_subgraph(subgraph)
    session.store.add_evaluation(trial.candidate, evaluation, session.run)
    return evaluation


def _check_whole(
    session: Session,
    composition: Composition,
    slots: tuple[Slot, ...],
    subgraphs: Mapping[str, Subgraph],
    checked: list[Checked],
) -> tuple[Deviation, ...]:
    path = session.settings.composition
    assert path is not None
    kernels = {
        c.slot: Kernel(
            c.source or (path.parent / c.entry.path).read_text("utf-8"), c.entry.configurations[0][1]
        )
        for c in checked
        if c.entry is not None
    }
    backend = InterpreterBackend()
    try:
        return check_whole(
            session, composition.decomposition, slots, tuple(subgraphs.values()), kernels, backend
        )
    finally:
        backend.close()


def _renewed(session: Session, composition: Composition, checked: list[Checked]) -> Composition:
    found = {(e.path, e.subgraph): e for e in composition.kernels}
    found |= {(c.entry.path, c.entry.subgraph): c.entry for c in checked if c.entry is not None}
    return replace(composition, kernels=tuple(found.values()), environment=session.environment)


def _sources(checked: list[Checked]) -> dict[str, str]:
    return {c.entry.id: c.source for c in checked if c.entry is not None and c.source is not None}


def _report(
    settings: Settings, path: Path, checked: list[Checked], whole: tuple[Deviation, ...], passed: bool
) -> str:
    if settings.json:
        return json.dumps(
            {
                "status": "passed" if passed else "rejected",
                "composition": str(path),
                "slots": [
                    {"slot": c.slot, "implementation": c.implementation, "verdict": encode(c.verdict)}
                    for c in checked
                ],
                "whole": encode(whole),
            },
            indent=2,
        )
    lines = [
        f"{c.slot}: {c.implementation}: "
        + (
            "fall-back, nothing to verify"
            if c.verdict is None
            else "passed"
            if c.verdict.passed
            else f"rejected at {c.verdict.step.value}: {c.verdict.status.value}: {c.verdict.message}"
        )
        for c in checked
    ]
    lines += [f"whole model at {d.variant}: {d.message or 'passed'}" for d in whole]
    lines.append(f"{path}: checked" if passed else f"{path}: not changed, since something was rejected")
    return "\n".join(lines)
