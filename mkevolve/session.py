"""What every verb prepares first: the model, its capture, its clock and its ledger."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from mkevolve.backends.cpu import InterpreterBackend
from mkevolve.capture import bind, capture, check_capture, constants_of
from mkevolve.composition_file import FILE_NAME, read
from mkevolve.config import Settings, default_model_node
from mkevolve.data.chip import Chip
from mkevolve.data.codec import encode
from mkevolve.data.decomposition import Decomposition, Slot, Subgraph
from mkevolve.data.ids import content_id
from mkevolve.data.measurement import Environment
from mkevolve.data.model import CapturedModel
from mkevolve.data.model_config import ModelConfig
from mkevolve.errors import CaptureError, CompositionError, ConfigError
from mkevolve.evaluate import Evaluator, environment
from mkevolve.interfaces import Executor, Proposer
from mkevolve.measure.chips import load_chip
from mkevolve.models.config import read_model_config
from mkevolve.models.source import Model, build_model
from mkevolve.naming import chip_part, folder_name, path_part
from mkevolve.partition.execution import verify_references
from mkevolve.partition.realize import realize
from mkevolve.report.progress import Progress
from mkevolve.store.store import Store
from mkevolve.tune import SearchTask
from mkevolve.verify.observe import observe


@dataclass(frozen=True)
class Session:
    """One command at work. `examples` maps each check variant to its activations by name."""

    settings: Settings
    progress: Progress
    store: Store
    run: str
    chip: Chip
    environment: Environment
    model: Model
    captured: CapturedModel
    constants: Mapping[str, torch.Tensor]
    examples: Mapping[str, Mapping[str, torch.Tensor]]
    folder: str

    @property
    def policy(self) -> str:
        """Mode, dtype and precision policy, as the first line of output says them."""
        return policy(self.model, self.settings)

    @cached_property
    def place(self) -> str:
        """The id of what decompositions are predicted for: the captured model in this environment."""
        return content_id("m", [encode(replace(self.captured, notes=())), self.environment.id])

    def proposer(self) -> Proposer:
        """The proposer that `proposer=` chose."""
        return cast(Proposer, instantiate(self.settings.tree.proposer))

    def executor(self) -> Executor[Any, Any]:
        """The executor that `executor=` chose; it starts nothing yet."""
        return cast("Executor[Any, Any]", instantiate(self.settings.tree.executor))

    def tasks(
        self,
        decomposition: Decomposition,
        slots: tuple[Slot, ...],
        subgraphs: tuple[Subgraph, ...],
        share: float = 1.0,
    ) -> tuple[SearchTask, ...]:
        """One search task a subgraph, with all that the ledger knows and `share` of the budget."""
        evaluators = self.evaluators(decomposition, slots, subgraphs)
        proposer = self.proposer()
        return tuple(
            SearchTask(
                subgraph=subgraph,
                proposer=proposer,
                search=instantiate(self.settings.tree.search),
                evaluator=evaluators[subgraph.id],
                chip=self.chip,
                precision=self.settings.precision,
                budget=self.settings.budget.share(share),
                seed=self.settings.seed,
                known=self.store.evaluations(subgraph.id, self.environment.id),
            )
            for subgraph in subgraphs
        )

    def evaluators(
        self, decomposition: Decomposition, slots: tuple[Slot, ...], subgraphs: tuple[Subgraph, ...]
    ) -> Mapping[str, Callable[[], Evaluator]]:
        """What makes the evaluator of each subgraph, by id: on what reaches those slots. Picklable."""
        cut = realize(self.captured, decomposition)
        wanted = {s.id for s in subgraphs}
        seen = observe(cut, self.constants, self.examples, [s for s in slots if s.subgraph in wanted])
        return {
            subgraph.id: partial(
                Evaluator,
                subgraph,
                seen[subgraph.id],
                self.backends(),
                self.chip,
                self.settings.precision,
                self.environment.id,
                self.settings.seed,
                self.settings.deterministic,
            )
            for subgraph in subgraphs
        }

    def backends(self) -> Callable[[], InterpreterBackend]:
        """What makes a backend of this session: nobody else makes one. Picklable."""
        return partial(InterpreterBackend, strict=self.settings.strict)

    def check_references(self, decomposition: Decomposition) -> None:
        """Run the composition of references at every check variant; raises CaptureError on a difference."""
        for variant in self.captured.checks:
            inputs = {**self.by_name(variant.name), **self.examples[variant.name]}
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.settings.seed)
                difference = verify_references(self.captured, decomposition, variant.name, inputs)
            if difference is not None:
                raise CaptureError(
                    f"{self.model.name}: {difference}; this is a fault of the cut {decomposition.id}, "
                    "please report it"
                )

    def by_name(self, variant: str) -> dict[str, torch.Tensor]:
        """Parameters, buffers and constants by the name of the graph's input."""
        graph = next(v.graph for v in self.captured.variants if v.name == variant)
        return {i.name: self.constants[i.name] for i in graph.params}


def policy(model: Model, settings: Settings) -> str:
    """Mode, dtype and precision policy, as the first line of output says them."""
    mode = "train" if model.training else "eval"
    atomics = "" if settings.deterministic else ", deterministic=false"
    return f"{mode} mode, {model.dtype}, precision {settings.precision.value}{atomics}"


@contextmanager
def open_session(settings: Settings, progress: Progress) -> Iterator[Session]:
    """Build, capture and check the model, and open the ledger; the run is recorded however it ends."""
    chip = load_chip(settings.chip)
    config = model_config(settings)
    if settings.verb != "verify":
        _writable(settings)
    _announce_sandbox(settings, progress)
    with Store(settings.store) as store:
        model = build_model(config, settings.seed)
        progress.say(f"{model.name}: {policy(model, settings)}")
        captured = capture(model)
        check_capture(model, captured)
        for note in captured.notes:
            progress.say(note)
        env = environment(chip, settings.precision, deterministic=settings.deterministic)
        tree = OmegaConf.to_container(settings.tree)
        run = store.start_run(settings.command, model.name, env, settings.seed, cast(Any, tree))
        status = "failed"
        try:
            yield Session(
                settings=settings,
                progress=progress,
                store=store,
                run=run,
                chip=chip,
                environment=env,
                model=model,
                captured=captured,
                constants=constants_of(model, captured),
                examples={v.name: bind(v, *model.example(v, settings.seed)) for v in captured.checks},
                folder=_folder(settings, model.name, config),
            )
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            store.end_run(run, status)


def _announce_sandbox(settings: Settings, progress: Progress) -> None:
    """Say once what this host cannot enforce; raises `UserError` for it under `sandbox=strict`."""
    missing = InterpreterBackend(strict=settings.strict).protection.missing
    if missing:
        progress.say(f"sandbox: not enforced here: {', '.join(missing)} (sandbox=strict refuses to run then)")


def _folder(settings: Settings, name: str, config: ModelConfig) -> str:
    """The folder's name; with a hash of the model file's path where another file has the plain one."""
    chip = chip_part(settings.chip)
    plain = folder_name(name, config, _default_config(settings), settings.precision, chip)
    if settings.model_path is None:
        return plain
    own = f"{plain}-{path_part(settings.model_path)}"
    folder = settings.root.decompositions
    taken = (folder / own).exists() or _made_by_another(folder / plain / FILE_NAME, settings.model_path)
    return own if taken else plain


def _made_by_another(composition: Path, model: Path) -> bool:
    """Tell whether a composition was made from another file that still exists; one that was moved is ours."""
    if not composition.exists():
        return False
    try:
        words = read(composition).made_by
    except CompositionError:
        return False  # what is wrong with it is said where it is written
    paths = [Path(w.partition("=")[2]) for w in words if w.startswith("model.path=")]
    return any(path != model and path.exists() for path in paths)


def _writable(settings: Settings) -> None:
    """Find out before the work whether its result can be written."""
    folder = settings.root.decompositions
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot write in {folder}: {error.strerror}; give another folder as root="
        ) from error


def model_config(settings: Settings) -> ModelConfig:
    """The model as the command line describes it."""
    return _read(OmegaConf.to_container(settings.tree.model), settings)


def _default_config(settings: Settings) -> ModelConfig:
    return _read(default_model_node(settings), settings)


def _read(node: Any, settings: Settings) -> ModelConfig:
    return read_model_config({**node, **({"path": str(settings.model_path)} if settings.model_path else {})})
