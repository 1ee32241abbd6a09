"""The command line: verb, overrides and paths, composed by Hydra, checked, and turned into frozen settings.

`@hydra.main` refuses verbs and prints pages; so the verb and every path value are taken off first (a path
may hold `~`, `=`, commas, brackets, blanks and any script, all of which are grammar to Hydra),
`hydra.compose` does the rest, and each of its errors becomes one line.
"""

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkevolve.data.model import Precision
from mkevolve.data.search import Budget
from mkevolve.errors import ConfigError
from mkevolve.paths import Root, conf_dir

VERBS = ("search", "check")
PATH_KEYS = ("model.path", "root", "store", "composition")
# What these choose takes its arguments from other keys, which are the ones that are checked.
_INTERNAL = ("proposer", "search", "executor")
GROUPS = ("model", "proposer", "search", "evolve", "executor")


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

    @property
    def model_words(self) -> tuple[str, ...]:
        """The words that make the model and its policy again; a path is made absolute."""
        words = [w for w in self.words if w.startswith(("model=", "model.", "precision=", "chip=", "seed="))]
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
    verb, rest = _verb(argv)
    paths, overrides = _take_paths(rest)
    tree = _compose(verb, overrides)
    for key in ("beam.width", "beam.children", "beam.rounds", "tune.top", "tune.configurations"):
        _integer(tree, key, low=0 if key.startswith("tune") else 1)
    _optional(tree, "ray.workers", int, low=1)
    if (share := _optional(tree, "evolve.share", float, low=0)) is None or share > 1:
        raise ConfigError(f"evolve.share={share} must be a number from 0 to 1")
    precision = _choice(tree, "precision", [p.value for p in Precision])
    root = Root(_path(paths.get("root", ".")))
    model_path = paths.get("model.path")
    composition = paths.get("composition")
    return Settings(
        verb=verb,
        words=tuple(argv),
        tree=tree,
        root=root,
        store=_path(paths["store"]) if "store" in paths else root.database,
        composition=_path(composition) if composition is not None else None,
        model_path=_path(model_path) if model_path is not None else None,
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
    )


def with_model(settings: Settings, words: Sequence[str]) -> Settings:
    """The same command with the words that make a model; its own must not speak of one."""
    _no_model_words(settings.words)
    return parse([settings.verb, *words, *(w for w in settings.words if w != settings.verb)])


def default_model_node(settings: Settings) -> dict[str, object]:
    """The chosen model's configuration as its file has it, without overrides."""
    import yaml

    chosen = next(w.partition("=")[2] for w in settings.words if w.startswith("model="))
    node = yaml.safe_load((conf_dir() / "model" / f"{chosen}.yaml").read_text(encoding="utf-8"))
    return dict(node)


def _verb(argv: Sequence[str]) -> tuple[str, list[str]]:
    if argv and argv[0] == "measure":
        raise ConfigError(
            "this version has no device clock yet: `measure` comes with it; verbs: search, check"
        )
    for number, word in enumerate(argv):
        if "=" not in word:
            if word in VERBS and number == 0:
                return word, list(argv[1:])
            expected = f"verbs: {', '.join(VERBS)}" if number == 0 else "expected key=value"
            raise ConfigError(
                f"'{word}' is neither a verb nor an override{_nearest(word, VERBS)}; {expected}"
            )
    return VERBS[0], list(argv)


def _take_paths(words: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    paths: dict[str, str] = {}
    overrides: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        if key in PATH_KEYS:
            if not value:
                raise ConfigError(f"{key}= is empty; give a path")
            paths[key] = value
        else:
            overrides.append(word)
    return paths, overrides


def _path(text: str) -> Path:
    path = Path(text)
    # `~` is the home folder only as the shell would read it: alone or before a slash
    expanded = path.expanduser() if text == "~" or text.startswith("~/") else path
    return Path.cwd() / expanded


def _compose(verb: str, overrides: list[str]) -> Any:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    conf = conf_dir()
    if not (conf / "config.yaml").is_file():
        raise ConfigError(f"no configuration in {conf}; install the package again")
    _check_groups(conf, overrides)
    _check_first_words(conf, overrides)
    if verb != "search" and not any(o.startswith("model=") for o in overrides):
        _no_model_words(overrides)
        overrides = ["~model", *overrides]  # the composition file names it
    elif not any(o.startswith("model=") for o in overrides):
        raise ConfigError(f"which model? add model=NAME, one of: {', '.join(_options(conf, 'model'))}")
    # conf/chip holds data, but Hydra takes `chip=NAME` for the choice of a group of that name
    chips = [o.partition("=")[2] for o in overrides if o.startswith("chip=")]
    overrides = [o for o in overrides if not o.startswith("chip=")]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf), version_base="1.3"):
            groups = [o for o in overrides if o.partition("=")[0] in GROUPS or o.startswith("~")]
            base = compose("config", overrides=groups)
            _check_keys(base, overrides)
            tree = compose("config", overrides=overrides)
        tree.chip = [tree.chip, *chips][-1]
        OmegaConf.resolve(tree)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from error
    return tree


def _no_model_words(words: Iterable[str]) -> None:
    for word in words:
        if word.startswith(("model.", "model=")):
            raise ConfigError(f"'{word}': the composition file names its model; run a search for another")


def _options(conf: Path, group: str) -> list[str]:
    return sorted(p.stem for p in (conf / group).glob("*.yaml"))


def _check_groups(conf: Path, overrides: list[str]) -> None:
    for override in overrides:
        key, _, value = override.partition("=")
        if key not in GROUPS:
            continue
        options = _options(conf, key)
        if value not in options:
            hint = _nearest(value, options)
            more = ", or model=file model.path=FILE.py for your own" if key == "model" else ""
            raise ConfigError(f"unknown {key} '{value}'{hint}; one of: {', '.join(options)}{more}")


def _check_first_words(conf: Path, overrides: list[str]) -> None:
    """Refuse a key whose first part is unknown, before anything else is asked of the user."""
    from omegaconf import OmegaConf

    known = {*(str(k) for k in OmegaConf.load(conf / "config.yaml")), *GROUPS, *PATH_KEYS} - {"defaults"}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key.partition(".")[0] not in known:
            raise ConfigError(f"unknown key '{key}'{_nearest(key, known)}; known: {', '.join(sorted(known))}")


def _check_keys(base: Any, overrides: list[str]) -> None:
    known = [k for k in sorted(_flat(base, "")) if "._" not in k]
    for override in overrides:
        key = override.partition("=")[0]
        if "." in key and key.partition(".")[0] in _INTERNAL:
            raise ConfigError(f"'{key}' is set by other keys{_nearest(key, known)}; see conf/config.yaml")
        if key in known or key in GROUPS or key.startswith(("~", "model.build.")):
            continue
        if key.startswith("+"):
            raise ConfigError(f"'{key}' would add a key that nothing reads; write it without '+'")
        part = key.partition(".")[0]
        near = [k for k in [*known, *PATH_KEYS] if k.startswith(f"{part}.")]
        raise ConfigError(f"unknown key '{key}'{_nearest(key, near)}; known: {', '.join(near) or part}")


def _flat(node: Any, prefix: str) -> list[str]:
    from omegaconf import DictConfig

    keys: list[str] = []
    for key in node:
        name = f"{prefix}{key}"
        keys.append(name)
        value = node._get_node(key)
        if isinstance(value, DictConfig) and not value._is_none():
            keys.extend(_flat(value, f"{name}."))
    return keys


def _nearest(word: str, options: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    if cause is not None and str(cause).strip():
        lines.append(str(cause).strip().splitlines()[0])
    return "bad override: " + "; ".join(dict.fromkeys(lines))


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
        raise ConfigError(f"{key}={value} is unknown{_nearest(value, options)}; one of: {', '.join(options)}")
    return value
