"""From the words of a command line to the configuration that Hydra composes, with mistakes in one line.

`@hydra.main` refuses verbs and prints pages; so the verb and every value that Hydra could misread are taken
off first (a path may hold `~`, `=`, commas, brackets, blanks and any script, all of which are grammar to
it), `hydra.compose` does the rest, and each of its errors becomes one line.
"""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mkevolve.errors import ConfigError
from mkevolve.paths import conf_dir

VERBS = ("search", "check", "verify")
PATH_KEYS = ("model.path", "root", "store", "composition", "kernel")
VERIFY_KEYS = ("kernel", "subgraph", "slot", "tier", "show", "chips")
CONFIGURATION = "configuration."  # what follows is a name of the candidate's TUNABLES
# What these choose takes its arguments from other keys, which are the ones that are checked.
_INTERNAL = ("proposer", "search", "executor")
GROUPS = ("model", "proposer", "search", "evolve", "executor")


def verb_of(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The verb and the words after it."""
    if argv and argv[0] == "measure":
        raise ConfigError(
            f"this version has no device clock yet: `measure` comes with it; verbs: {', '.join(VERBS)}"
        )
    for number, word in enumerate(argv):
        if "=" not in word:
            if word in VERBS and number == 0:
                return word, list(argv[1:])
            expected = f"verbs: {', '.join(VERBS)}" if number == 0 else "expected key=value"
            raise ConfigError(f"'{word}' is neither a verb nor an override{nearest(word, VERBS)}; {expected}")
    return VERBS[0], list(argv)


def take_own(verb: str, words: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Split the words into values that Hydra must not read, by key, and overrides for it.

    Of a key that comes twice the last value counts, as with Hydra.
    """
    own: dict[str, str] = {}
    overrides: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        if key in VERIFY_KEYS or key.startswith(CONFIGURATION):
            _only_for_verify(verb, key)
        elif key not in PATH_KEYS:
            overrides.append(word)
            continue
        if not value:
            raise ConfigError(f"{key}= is empty; give a {'path' if key in PATH_KEYS else 'value'}")
        own[key] = value
    return own, overrides


def _only_for_verify(verb: str, key: str) -> None:
    if verb != "verify":
        raise ConfigError(f"{key}= belongs to the verb verify: python -m mkevolve verify {key}=... ...")


def composed(overrides: list[str], *, model: bool) -> Any:
    """What Hydra makes of the overrides, resolved; without `model`, a composition file names the model."""
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
    if not any(o.startswith("model=") for o in overrides):
        if model:
            raise ConfigError(f"which model? add model=NAME, one of: {', '.join(_options(conf, 'model'))}")
        no_model_words(overrides)
        overrides = ["~model", *overrides]
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


def no_model_words(words: Iterable[str]) -> None:
    """Refuse words that speak of a model where a composition file does."""
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
            hint = nearest(value, options)
            more = ", or model=file model.path=FILE.py for your own" if key == "model" else ""
            raise ConfigError(f"unknown {key} '{value}'{hint}; one of: {', '.join(options)}{more}")


def _check_first_words(conf: Path, overrides: list[str]) -> None:
    """Refuse a key whose first part is unknown, before anything else is asked of the user."""
    from omegaconf import OmegaConf

    known = {*(str(k) for k in OmegaConf.load(conf / "config.yaml")), *GROUPS, *PATH_KEYS}
    known = (known | {*VERIFY_KEYS, CONFIGURATION.rstrip(".")}) - {"defaults"}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key.partition(".")[0] not in known:
            raise ConfigError(f"unknown key '{key}'{nearest(key, known)}; known: {', '.join(sorted(known))}")


def _check_keys(base: Any, overrides: list[str]) -> None:
    known = [k for k in sorted(_flat(base, "")) if "._" not in k]
    for override in overrides:
        key = override.partition("=")[0]
        if "." in key and key.partition(".")[0] in _INTERNAL:
            raise ConfigError(f"'{key}' is set by other keys{nearest(key, known)}; see conf/config.yaml")
        if key in known or key in GROUPS or key.startswith(("~", "model.build.")):
            continue
        if key.startswith("+"):
            raise ConfigError(f"'{key}' would add a key that nothing reads; write it without '+'")
        part = key.partition(".")[0]
        near = [k for k in [*known, *PATH_KEYS] if k.startswith(f"{part}.")]
        raise ConfigError(f"unknown key '{key}'{nearest(key, near)}; known: {', '.join(near) or part}")


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


def nearest(word: str, options: Iterable[str]) -> str:
    """` (did you mean ...?)`, or nothing where no option is near."""
    close = difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    if cause is not None and str(cause).strip():
        lines.append(str(cause).strip().splitlines()[0])
    return "bad override: " + "; ".join(dict.fromkeys(lines))
