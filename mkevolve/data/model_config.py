"""How a model is made: what `conf/model/*.yaml` says, as plain values."""

from dataclasses import dataclass

from mkevolve.data.candidate import Setting


@dataclass(frozen=True, slots=True)
class InputConfig:
    """How one positional input of `forward` is filled.

    `normal`: standard normal in the model's dtype; `tokens`: integers in [low, high); `mask`: booleans with
    the
    first column true, so that no row is empty.
    """

    kind: str = "normal"
    low: int = 0
    high: int = 2


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A constructor with its arguments (`target`, `args`), or a file (`path`); never both.

    `variants` maps a variant's name to one shape an input, `target` first; empty for a file, whose
    `get_inputs()` says it. `dtype` and `memory_format` of None leave the module as it was made.
    `random_statistics` replaces the statistics and affine parameters of normalisation layers, which a fresh
    module has at 0 and 1, by random ones, so that an error in them shows.
    """

    name: str
    target: str | None = None
    args: tuple[tuple[str, Setting | None], ...] = ()
    inputs: tuple[InputConfig, ...] = ()
    variants: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = ()
    dtype: str | None = None
    memory_format: str | None = None
    train: bool = False
    path: str | None = None
    random_statistics: bool = False
