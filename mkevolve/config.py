"""The command line as frozen settings: composed by Hydra (`overrides.py`), every value checked here."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkevolve.data.model import Precision
from mkevolve.data.search import Budget
from mkevolve.errors import ConfigError
from mkevolve.overrides import composed, nearest, no_model_words, take_own, verb_of
from mkevolve.paths import Root, conf_dir, path_of
from mkevolve.request import Request, request_of

_SANDBOX = ("auto", "strict")
_MODEL_WORDS = ("model=", "model.", "precision=", "chip=", "seed=", "deterministic=")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a verb needs. `tree` is the composed configuration, for what Hydra instantiates."""

    verb: str
    words: tuple[str, ...]
    tree: Any  # omegaconf.DictConfig
    root: Root
    store: Path
    composition: Path | None
    model_path: Path | None
    seed: int
    precision: Precision
    chip: str
    keep: bool
    json: bool
    budget: Budget
    evolve_rounds: int
    evolve_children: int
    evolve_share: float
    strict: bool  # sandbox=strict: candidates run only where the host enforces all of it
    deterministic: bool
    request: Request  # what `verify` alone is told

    @property
    def model_words(self) -> tuple[str, ...]:
        """The words that make the model and its policy again; a path is made absolute."""
        words = [w for w in self.words if w.startswith(_MODEL_WORDS)]
        if self.model_path is not None:
            words = [w for w in words if not w.startswith("model.path=")] + [f"model.path={self.model_path}"]
        return tuple(words)

    def plain(self) -> dict[str, object]:
        """The composed configuration as plain values, for the run folder."""
        from omegaconf import OmegaConf

        found = OmegaConf.to_container(self.tree)
        assert isinstance(found, dict)
        return {str(k): v for k, v in found.items()}

    @property
    def command(self) -> str:
        """The command line that made these settings."""
        return shlex.join(["python", "-m", "mkevolve", *self.words])


def parse(argv: Sequence[str]) -> Settings:
    """Read a command line (without the program's name). Raises `ConfigError` with the value and the cure."""
    verb, rest = verb_of(argv)
    own, overrides = take_own(verb, rest)
    composition = own.get("composition")
    # elsewhere the composition file names the model
    needs_model = verb == "search" or (verb == "verify" and composition is None)
    tree = composed(overrides, model=needs_model)
    for key in ("beam.width", "beam.children", "beam.rounds", "tune.top", "tune.configurations"):
        _integer(tree, key, low=0 if key.startswith("tune") else 1)
    _optional(tree, "ray.workers", int, low=1)
    if (share := _optional(tree, "evolve.share", float, low=0)) is None or share > 1:
        raise ConfigError(f"evolve.share={share} must be a number from 0 to 1")
    precision = _choice(tree, "precision", [p.value for p in Precision])
    root = Root(path_of(own.get("root", ".")))
    model_path = own.get("model.path")
    return Settings(
        verb=verb,
        words=tuple(argv),
        tree=tree,
        root=root,
        store=path_of(own["store"]) if "store" in own else root.database,
        composition=path_of(composition) if composition is not None else None,
        model_path=path_of(model_path) if model_path is not None else None,
        seed=_integer(tree, "seed", low=0),
        precision=Precision(precision),
        chip=str(tree.chip),
        keep=_flag(tree, "keep"),
        json=_flag(tree, "json"),
        budget=Budget(
            _optional(tree, "budget.evaluations", int, low=1), _optional(tree, "budget.seconds", float, low=0)
        ),
        evolve_rounds=_integer(tree, "evolve.rounds", low=0),
        evolve_children=_integer(tree, "evolve.children", low=0),
        evolve_share=float(share),
        strict=_choice(tree, "sandbox", _SANDBOX) == "strict",
        deterministic=_flag(tree, "deterministic"),
        request=request_of(own),
    )


def with_model(settings: Settings, words: Sequence[str]) -> Settings:
    """The same command with the words that make a model; its own must not speak of one."""
    no_model_words(settings.words)
    return parse([settings.verb, *words, *(w for w in settings.words if w != settings.verb)])


def default_model_node(settings: Settings) -> dict[str, object]:
    """The chosen model's configuration as its file has it, without overrides."""
    import yaml

    chosen = next(w.partition("=")[2] for w in settings.words if w.startswith("model="))
    node = yaml.safe_load((conf_dir() / "model" / f"{chosen}.yaml").read_text(encoding="utf-8"))
    return dict(node)


def _select(tree: Any, key: str) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.select(tree, key)


def _integer(tree: Any, key: str, low: int) -> int:
    value = _select(tree, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{key}={value} must be a whole number of at least {low}")
    return value


def _optional(tree: Any, key: str, kind: type[int] | type[float], low: float) -> Any:
    value = _select(tree, key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < low or kind(value) != value:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{key}={value} must be {what} of at least {low:g}, or null for no limit")
    return kind(value)


def _flag(tree: Any, key: str) -> bool:
    value = _select(tree, key)
    if not isinstance(value, bool):
        raise ConfigError(f"{key}={value} must be true or false")
    return value


def _choice(tree: Any, key: str, options: Sequence[str]) -> str:
    value = str(_select(tree, key))
    if value not in options:
        raise ConfigError(f"{key}={value} is unknown{nearest(value, options)}; one of: {', '.join(options)}")
    return value
