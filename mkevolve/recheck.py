"""`mkevolve check`: verifies what a person put into a composition, and rewrites its kernels table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mkevolve.composition_file import entry_of, free_path, kernel_path, read, rewrite, text_sha256
from mkevolve.config import Settings, with_model
from mkevolve.data.candidate import Candidate, Configuration
from mkevolve.data.cases import comparable
from mkevolve.data.codec import encode
from mkevolve.data.composition import FALLBACKS, Composition, KernelEntry, SlotChoice
from mkevolve.data.decomposition import Slot, Subgraph
from mkevolve.data.ids import source_id
from mkevolve.data.measurement import Evaluation
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Tier, Verdict
from mkevolve.endtoend import Deviation, Kernel, check_whole
from mkevolve.errors import CompositionError, ConfigError
from mkevolve.partition.extract import slots_of
from mkevolve.report.progress import Progress
from mkevolve.search.params import default_configuration
from mkevolve.search.strategy import cost
from mkevolve.session import Session, open_session


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one slot; `entry` is None for a fall-back and for a kernel that was rejected.

    `source` is the text that was verified.
    """

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
        slots, subgraphs = slots_in(session, composition, path)
        checked = [_check_slot(session, composition, choice, path, subgraphs) for choice in composition.slots]
        whole: tuple[Deviation, ...] = ()
        if all(c.passed for c in checked):
            whole = _check_whole(session, composition, slots, subgraphs, checked)
        passed = all(c.passed for c in checked) and not any(d.message for d in whole)
        if passed:
            rewrite(path, _renewed(session, composition, checked), _sources(checked))
    return _report(settings, path, checked, whole, passed), 0 if passed else 1


def slots_in(
    session: Session, composition: Composition, path: Path
) -> tuple[tuple[Slot, ...], Mapping[str, Subgraph]]:
    """The slots of a composition's cut and its subgraphs by id; raises `CompositionError` where the model is
    no longer the one that it was made for.
    """
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
    source, place = source_of(session, composition, choice, path)
    candidate = Candidate(source, "person")
    configuration = configuration_of(session, entry_of(composition, choice), candidate, slot.subgraph)
    trial = Trial(candidate, configuration, Tier.ACCEPT)
    session.progress.say(f"{slot.name}: {choice.implementation}")
    evaluation = _evaluate(session, composition, subgraphs[slot.subgraph], trial)
    verdict = evaluation.verdict
    if not verdict.passed:
        return Checked(slot.name, choice.implementation, verdict, None, None)
    entry = KernelEntry(
        id=candidate.id,
        path=place,
        sha256=text_sha256(source),
        subgraph=slot.subgraph,
        configurations=tuple((v.name, configuration) for v in session.captured.variants),
        evidence=evaluation.id,
        measurement=evaluation.measurement,
        error=verdict.evidence.error,
        allowed=verdict.evidence.allowed,
    )
    entry = replace(entry, verified=entry.digest)
    return Checked(slot.name, choice.implementation, verdict, entry, source)


def configuration_of(
    session: Session, known: KernelEntry | None, candidate: Candidate, subgraph: str
) -> Configuration:
    """That of the table, else the fastest that the database knows to pass, else the default."""
    if known is not None and known.id == candidate.id and known.configurations:
        return known.configurations[0][1]
    stored = session.store.evaluations(subgraph, session.environment.id)
    mine = [e for e in stored if e.candidate == candidate.id]
    failed = {e.configuration for e in mine if not e.verdict.passed}
    passed = [e for e in mine if e.configuration not in failed]
    best = min(passed, key=cost, default=None)
    return best.configuration if best is not None else default_configuration(candidate.source)


def source_of(session: Session, composition: Composition, choice: SlotChoice, path: Path) -> tuple[str, str]:
    """The kernel's text and its path relative to the composition file.

    A slot that names an id gets the text of that id, at a path of its own where its file was changed.
    """
    name = choice.implementation
    entry = entry_of(composition, choice)
    if not name.startswith("k_") or name.endswith(".py"):
        place = entry.path if entry is not None else name
        return _text(path, choice, place), place
    if entry is not None and (path.parent / entry.path).exists():
        text = _text(path, choice, entry.path)
        if source_id(text) == name:
            return text, entry.path
    stored = session.store.candidate(name)
    if stored is None:
        raise CompositionError(
            f"{path}: slot {choice.slot.name}: {name} is not in {session.store.path}; give a kernel's path"
        )
    return stored.source, free_path(path.parent, kernel_path(name, choice.slot.name), stored.source)


def _text(path: Path, choice: SlotChoice, place: str) -> str:
    """The exact content of a kernel file: its hash is that of what is verified."""
    try:
        return (path.parent / place).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CompositionError(
            f"{path}: slot {choice.slot.name}: cannot read {path.parent / place}: {reason}"
        ) from error


def _evaluate(session: Session, composition: Composition, subgraph: Subgraph, trial: Trial) -> Evaluation:
    stored = session.store.evaluations(subgraph.id, session.environment.id)
    for known in comparable(stored, subgraph, session.settings.seed):
        if (known.candidate, known.configuration.text(), known.tier.value) == trial.key:
            return known
    slots = tuple(c.slot for c in composition.slots)
    (task,) = session.tasks(composition.decomposition, slots, (subgraph,))
    with task.evaluator() as evaluate:
        evaluation = evaluate(trial)
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
    kernels = {
        c.slot: Kernel(c.source, c.entry.configurations[0][1])
        for c in checked
        if c.entry is not None and c.source is not None
    }
    backend = session.backends()()
    try:
        return check_whole(
            session, composition.decomposition, slots, tuple(subgraphs.values()), kernels, backend
        )
    finally:
        backend.close()


def _renewed(session: Session, composition: Composition, checked: list[Checked]) -> Composition:
    new = {(c.entry.path, c.entry.subgraph): c.entry for c in checked if c.entry is not None}
    ids = {(e.id, e.subgraph) for e in new.values()}
    # an entry of the same id whose file is another by now would be found first
    found = {(e.path, e.subgraph): e for e in composition.kernels if (e.id, e.subgraph) not in ids} | new
    return replace(composition, kernels=tuple(found.values()), environment=session.environment)


def _sources(checked: list[Checked]) -> dict[str, str]:
    """What was verified, by id: `rewrite` writes the files that are not there."""
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
