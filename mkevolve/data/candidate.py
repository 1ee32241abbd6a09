"""Candidates and their configurations."""

from dataclasses import dataclass

from mkevolve.data.ids import source_id

Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Configuration:
    """One choice of a candidate's `TUNABLES`, in the order of the table; empty where it has none."""

    settings: tuple[tuple[str, Setting], ...] = ()

    def text(self) -> str:
        """`BLOCK_M=128 num_warps=4`; the key of a configuration in the database."""
        return " ".join(f"{k}={v}" for k, v in self.settings)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One source file under the kernel contract, with where it came from.

    `choices` is the point in the template's table of named structural choices; `move` says how it differs
    from
    `parents` (`split_k: 1 -> 4`). Neither is part of the id.
    """

    source: str
    proposer: str
    parents: tuple[str, ...] = ()
    move: str = ""
    choices: tuple[tuple[str, Setting], ...] = ()

    @property
    def id(self) -> str:
        return source_id(self.source)
