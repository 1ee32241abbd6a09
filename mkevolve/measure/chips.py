"""Chip descriptions by name, read from `conf/chip/*.yaml`."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import yaml

from mkevolve.data.chip import Chip
from mkevolve.data.codec import Json, decode
from mkevolve.errors import ConfigError
from mkevolve.paths import conf_dir

_TABLES = ("matrix", "vector")


def chip_names() -> tuple[str, ...]:
    """Every chip that has a description."""
    return tuple(sorted(p.stem for p in _folder().glob("*.yaml")))


@cache
def load_chip(name: str) -> Chip:
    """Read a chip by name. Raises `ConfigError` for an unknown one, with the nearest name, or a bad file."""
    path = _folder() / f"{name}.yaml"
    if name not in chip_names():
        near = difflib.get_close_matches(name.lower(), chip_names(), n=1, cutoff=0.0)
        known = ", ".join(chip_names())
        raise ConfigError(f"unknown chip {name!r}: did you mean {near[0]}? (known: {known})")
    return _chip(yaml.safe_load(path.read_text(encoding="utf-8")), path)


def _chip(row: object, path: Path) -> Chip:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{path}: not a mapping of chip fields")
    types = {f.name: f.type for f in fields(Chip)}
    unknown = sorted(set(row) - set(types))
    if unknown:
        raise ConfigError(f"{path}: unknown field {unknown[0]!r}")
    try:
        values: dict[str, Json] = {
            key: [[str(k), float(v)] for k, v in value.items()]
            if key in _TABLES
            else _number(value, types[key])
            for key, value in row.items()
        }
        return decode(Chip, values)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _number(value: object, kind: object) -> str | int | float:
    """YAML 1.1 reads `1.98e9`, with no sign in the exponent, as text."""
    if kind is str:
        return str(value)
    return float(str(value)) if kind is float else int(str(value))


def _folder() -> Path:
    return conf_dir() / "chip"
