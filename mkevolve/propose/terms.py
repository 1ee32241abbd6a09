"""What pointwise rules are written in: kernel expressions with their dtypes, and numbers of the graph."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mkevolve.data.graph import Arg
from mkevolve.errors import ProposalError


@dataclass(frozen=True, slots=True)
class Term:
    """A kernel expression and its dtype; for a number of the graph, the Python type's name."""

    text: str
    dtype: str

    def cast(self, dtype: str) -> str:
        """Text of this value in `dtype`."""
        if self.dtype in (dtype, "int", "float"):
            return self.text
        if self.dtype == "bool" and dtype not in ("float32", "float64"):
            return f"{self.text}.to(tl.{dtype})"
        if dtype == "bool":
            return f"({self.text} != 0)"
        return f"{self.text}.to(tl.{dtype})"


class Operands(Protocol):
    """What a rule may ask for; implemented by `emit.Call`."""

    @property
    def dtype(self) -> str: ...
    def arg(self, index: int, name: str = "", default: Arg = None) -> Arg: ...
    def number(self, index: int, name: str, default: float) -> float: ...
    def term(self, index: int) -> Term: ...
    def text(self, index: int, dtype: str | None = None) -> str: ...
    def promoted(self, *indices: int) -> str: ...
    def channel(self, index: int, axis: int = 1) -> str | None: ...
    def function(self, name: str) -> str: ...
    def place(self, axis: int) -> str: ...


Rule = Callable[[Operands], str]


def computed(dtype: str) -> str:
    """The dtype of arithmetic on tensors of `dtype`."""
    if dtype in ("float16", "bfloat16", "float32"):
        return "float32"
    if dtype in ("float64", "bool", "int64", "int32", "int16", "int8", "uint8"):
        return dtype
    raise ProposalError(f"no arithmetic on {dtype}")


def literal(arg: Arg) -> str:
    """A Python number of the graph as kernel text."""
    if isinstance(arg, bool | int):
        return str(arg) if arg >= 0 else f"({arg})"
    if isinstance(arg, float):
        if math.isnan(arg):
            return 'float("nan")'
        if math.isinf(arg):
            return 'float("inf")' if arg > 0 else '(-float("inf"))'
        return repr(arg) if arg >= 0 else f"({arg!r})"
    raise ProposalError(f"argument {arg!r} is not a number")


def form(text: str, count: int = 1) -> Rule:
    """A rule that fills operands, cast to the dtype of the result, into `text`."""

    def rule(call: Operands) -> str:
        return text.format(*(call.text(i) for i in range(count)))

    return rule
