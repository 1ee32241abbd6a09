"""`mkevolve verify`: one candidate for one subgraph or the whole module; or what such a candidate must be.

Every call verifies anew, by the library call that the search uses, and records what it found. A candidate's
fault is a verdict; exceptions are mistakes of the user.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mkevolve.composition_file import entry_of, read
from mkevolve.config import Settings, with_model
from mkevolve.data.candidate import Candidate, Configuration, Setting
from mkevolve.data.chip import Chip
from mkevolve.data.composition import FALLBACKS, Composition
from mkevolve.data.search import Trial
from mkevolve.data.verdict import Status, Step, Verdict
from mkevolve.data.verification import ChipRow, Verification
from mkevolve.errors import CompositionError, ConfigError
from mkevolve.evaluate import Evaluator
from mkevolve.measure.chips import load_chip
from mkevolve.overrides import nearest
from mkevolve.recheck import configuration_of, source_of
from mkevolve.report import contract
from mkevolve.report.progress import Progress
from mkevolve.report.verdict import as_json, as_text
from mkevolve.request import Show
from mkevolve.search.params import default_configuration, space_of
from mkevolve.selection import Named, cut_of, named_in, subject_of, subjects_of
from mkevolve.session import Session, open_session
from mkevolve.verify.compiled import judge_plans

_LARGEST = 1 << 20  # bytes of a kernel file that is read at all


@dataclass(frozen=True)
class _Kernel:
    """The file to verify; `known` is the configuration that a composition has for it."""

    path: str
    candidate: Candidate
    known: Configuration | None = None


def verify(settings: Settings) -> tuple[str, int]:
    """Verify what the settings name; exit code 0 where it passed, 1 where it was rejected.

    With `show=` nothing is verified, and the code is 0.
    """
    request = settings.request
    chips = tuple(load_chip(name) for name in request.chips)
    kernel = None
    if request.kernel is not None:
        kernel = _Kernel(str(request.kernel), Candidate(_read(request.kernel), "person"))
    elif request.show is None and request.slot is None:
        raise ConfigError("which kernel? add kernel=FILE; show=contract prints what it must be")
    composition = _composition(settings)
    if composition is not None:
        settings = with_model(settings, composition.made_by)
    with Progress(quiet=settings.json) as progress, open_session(settings, progress) as session:
        cut = cut_of(session, composition)
        if request.show is Show.SUBGRAPHS:
            return contract.subgraphs(session.model.name, subjects_of(cut), settings.json), 0
        named = named_in(cut, composition)
        if request.show is Show.CONTRACT:
            return contract.contract(session.model.name, subject_of(session, named), settings.json), 0
        kernel = kernel or _slot_kernel(session, composition, named)
        found = _verified(session, named, kernel, chips)
    text = as_json(found) if settings.json else as_text(found, kernel.candidate.source)
    return text, 0 if found.verdict.passed else 1


def _read(path: Path) -> str:
    """The text of a kernel file."""
    if path.is_dir():
        raise ConfigError(f"kernel={path} is a folder; give a file")
    if not path.exists():
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ConfigError(f"kernel={path} does not exist{nearest(path.name, siblings)}")
    if not path.is_file():
        raise ConfigError(f"kernel={path} is no ordinary file")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"kernel={path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"kernel={path} is not UTF-8 text; a kernel is one Python file") from error
    if len(data) > _LARGEST:
        raise ConfigError(f"kernel={path} is larger than {_LARGEST >> 20} MiB; a kernel is one Python file")
    if "\0" in text:
        raise ConfigError(f"kernel={path} holds null bytes; a kernel is one Python file")
    return text


def _composition(settings: Settings) -> Composition | None:
    path, request = settings.composition, settings.request
    if path is None:
        return None
    composition = read(path)
    if not composition.made_by:
        raise CompositionError(f"{path}: the field 'made_by' is missing; run the search again")
    names = [c.slot.name for c in composition.slots]
    if request.slot is None and request.subgraph is None and request.show is not Show.SUBGRAPHS:
        raise ConfigError(f"which slot of {path}? add slot=NAME, one of: {', '.join(names)}")
    if request.slot is not None and request.slot not in names:
        hint = nearest(request.slot, names)
        raise ConfigError(f"{path} has no slot {request.slot}{hint}; one of: {', '.join(names)}")
    return composition


def _slot_kernel(session: Session, composition: Composition | None, named: Named) -> _Kernel:
    """What fills the slot of a composition, in its configuration there."""
    choice, path = named.choice, session.settings.composition
    if composition is None or choice is None or path is None:
        raise ConfigError("which kernel? add kernel=FILE")
    if choice.implementation in FALLBACKS:
        raise ConfigError(
            f"slot {choice.slot.name} is on {choice.implementation}: there is nothing to verify; "
            "try a kernel in it with kernel=FILE"
        )
    source, place = source_of(session, composition, choice, path)
    candidate = Candidate(source, "person")
    known = configuration_of(session, entry_of(composition, choice), candidate, named.subgraph.id)
    return _Kernel(str(path.parent / place), candidate, known)


def _configuration(kernel: _Kernel, chosen: Iterable[tuple[str, str]]) -> Configuration:
    """The known configuration or the default, with what the user chose from the candidate's table."""
    source = kernel.candidate.source
    space = dict(space_of(source))
    base = kernel.known or default_configuration(source)
    settings = dict(base.settings)
    for name, text in chosen:
        if name not in space:
            known = ", ".join(space) or "none that can be read"
            raise ConfigError(f"configuration.{name}: {kernel.path} has no such tunable; it has: {known}")
        settings[name] = _option(name, text, space[name])
    return Configuration(tuple(settings.items()))


def _option(name: str, text: str, options: tuple[Setting, ...]) -> Setting:
    for option in options:
        spelling = str(option)
        if text == spelling or (isinstance(option, bool) and text == spelling.lower()):
            return option
    known = ", ".join(map(str, options))
    raise ConfigError(f"configuration.{name}={text} is none of its choices in TUNABLES: {known}")


def _verified(session: Session, named: Named, kernel: _Kernel, chips: tuple[Chip, ...]) -> Verification:
    settings, store = session.settings, session.store
    configuration = _configuration(kernel, settings.request.configuration)
    trial = Trial(kernel.candidate, configuration, settings.request.tier)
    makers = session.evaluators(named.decomposition, named.slots, (named.subgraph,))
    session.progress.say(f"{named.subgraph.id}: {kernel.path}: verifying, tier {trial.tier.value}")
    with makers[named.subgraph.id]() as evaluator:
        finding = evaluator.find(trial)
        evaluation = evaluator.evaluation(trial, finding)
        rows = _rows(evaluator, trial, chips, finding.verdict)
    before = store.evaluations(named.subgraph.id, session.environment.id)
    known = next((e for e in before if e.id == evaluation.id), None)
    notes: tuple[str, ...] = ()
    if known is not None and known.verdict.status is not finding.verdict.status:
        notes = (
            f"the database holds another verdict on the same cases, which stays: {known.verdict.status}",
        )
    store.add_subgraph(named.subgraph)
    store.add_evaluation(kernel.candidate, evaluation, session.run)
    return Verification(
        model=session.model.name,
        policy=session.policy,
        deterministic=settings.deterministic,
        environment=session.environment,
        subject=subject_of(session, named),
        path=kernel.path,
        candidate=kernel.candidate.id,
        configuration=configuration,
        verdict=finding.verdict,
        plans=finding.plans,
        estimate=evaluation.measurement,
        chips=rows,
        evaluation=evaluation.id,
        database=str(store.path),
        seconds=finding.seconds,
        notes=notes,
    )


def _rows(
    evaluator: Evaluator, trial: Trial, chips: tuple[Chip, ...], verdict: Verdict
) -> tuple[ChipRow, ...]:
    """One row a chip; a file that the rules of the source refuse is compiled for none."""
    if verdict.step is Step.STATIC:
        return tuple(ChipRow(c.name, verdict.status, "not compiled: see the verdict") for c in chips)
    return tuple(_row(evaluator, trial, chip) for chip in chips)


def _row(evaluator: Evaluator, trial: Trial, chip: Chip) -> ChipRow:
    compiled = evaluator.compile(trial, chip)
    if compiled.status is not Status.PASSED:
        return ChipRow(chip.name, compiled.status, compiled.message)
    refused = judge_plans(
        compiled.plans,
        evaluator.subgraph,
        evaluator.precision,
        trial.candidate.source,
        trial.tier,
        evaluator.deterministic,
    )
    status, message = (refused.status, refused.message) if refused else (Status.PASSED, "")
    used = [launch.resources for plan in compiled.plans for launch in plan.launches]
    return ChipRow(
        chip.name,
        status,
        message,
        max((r.registers for r in used), default=0),
        max((r.spills for r in used), default=0),
        max((r.shared for r in used), default=0),
    )
