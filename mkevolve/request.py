"""What `verify` is told besides the model: the file, the subgraph, the configuration, and what to show."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mkevolve.data.verdict import Tier
from mkevolve.errors import ConfigError
from mkevolve.overrides import CONFIGURATION, nearest
from mkevolve.paths import path_of

WHOLE = "whole"


class Show(StrEnum):
    """What `verify` prints instead of a verdict; no kernel is needed."""

    SUBGRAPHS = "subgraphs"
    CONTRACT = "contract"


@dataclass(frozen=True, slots=True)
class Request:
    """`subgraph` is None where the user named none, which is the whole module, or the slot of a composition.

    `configuration` holds the choices that were named, as text; the others are the first of their table.
    """

    kernel: Path | None = None
    subgraph: str | None = None
    slot: str | None = None
    tier: Tier = Tier.ACCEPT
    show: Show | None = None
    chips: tuple[str, ...] = ()
    configuration: tuple[tuple[str, str], ...] = ()


def request_of(own: Mapping[str, str]) -> Request:
    """Read what was taken off the command line. Raises `ConfigError` for what does not fit together."""
    slot, subgraph, composition = own.get("slot"), own.get("subgraph"), own.get("composition")
    if slot is not None and composition is None:
        raise ConfigError(f"slot={slot} names a slot of a composition file: add composition=FILE")
    if slot is not None and subgraph is not None:
        raise ConfigError("slot= and subgraph= both name what to verify; give one of them")
    show = _one_of("show", own["show"], [s.value for s in Show]) if "show" in own else None
    return Request(
        kernel=path_of(own["kernel"]) if "kernel" in own else None,
        subgraph=subgraph,
        slot=slot,
        tier=Tier(_one_of("tier", own.get("tier", Tier.ACCEPT.value), [t.value for t in Tier])),
        show=Show(show) if show is not None else None,
        chips=_names(own.get("chips", "")),
        configuration=tuple(
            (key.removeprefix(CONFIGURATION), value)
            for key, value in own.items()
            if key.startswith(CONFIGURATION)
        ),
    )


def _one_of(key: str, value: str, options: list[str]) -> str:
    if value not in options:
        raise ConfigError(f"{key}={value} is unknown{nearest(value, options)}; one of: {', '.join(options)}")
    return value


def _names(text: str) -> tuple[str, ...]:
    """`[h200,b200]`, or the same without brackets."""
    inner = text.removeprefix("[").removesuffix("]")
    return tuple(dict.fromkeys(n for part in inner.split(",") if (n := part.strip(" '\""))))
