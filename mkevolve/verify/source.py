"""A candidate file as syntax: what it may import, define and name; nothing of it is ever executed here."""

import ast
from dataclasses import dataclass, field

from mkevolve.data.tunables import Tunables

MAX_BYTES = 64 * 1024


def words(text: str) -> frozenset[str]:
    """The set of words of a table written as text."""
    return frozenset(text.split())


class Violation(Exception):
    """A rule of the kernel contract is broken at `line`; becomes a verdict in `verify/static.py`."""

    def __init__(self, node: ast.AST | None, message: str) -> None:
        self.line: int | None = getattr(node, "lineno", None)
        super().__init__(message)


@dataclass(frozen=True)
class Source:
    """A parsed candidate. `imports` maps a name to what it stands for (`tl` -> `triton.language`).

    `heuristics` maps a kernel to the functions of its `triton.heuristics`. `shared` are the host functions
    under `triton.constexpr_function`, which jit functions may call too.
    """

    imports: dict[str, str]
    tunables: Tunables
    constants: dict[str, ast.expr] = field(default_factory=dict)
    jits: dict[str, ast.FunctionDef] = field(default_factory=dict)
    hosts: dict[str, ast.FunctionDef] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    heuristics: dict[str, tuple[ast.expr, ...]] = field(default_factory=dict)

    def constant(self, name: str) -> bool:
        """Tell whether a name is a module-level constant that code may read."""
        return name in self.constants and name != "TUNABLES"

    def dotted(self, node: ast.expr) -> str | None:
        """The full name behind `tl.math.exp`; None where the chain does not start at an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)])


def is_dtype(dotted: str) -> bool:
    """Tell whether a full name is a dtype of triton.language or torch."""
    module, _, name = dotted.rpartition(".")
    stem = name.rstrip("0123456789").rstrip("_")
    return module in ("triton.language", "torch") and (
        stem in ("float", "bfloat", "int", "uint", "bool", "half", "double", "long", "short")
        or name.startswith("float8")
    )


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """Every parameter of a function, in order."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def is_constexpr(argument: ast.arg, source: Source) -> bool:
    """Tell whether a parameter of a jit function is a compile-time constant."""
    annotation = argument.annotation
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str) and annotation.value.endswith("constexpr")
    return annotation is not None and source.dotted(annotation) == "triton.language.constexpr"
