"""What a host expression may be: kinds, how they combine, and the scope of one function."""

import ast
from dataclasses import dataclass, field
from enum import Flag, auto

from mkevolve.verify.source import Violation

_LARGEST = 64  # values in a tuple that are told apart


class Kind(Flag):
    """What an expression may be; a value of several kinds is one of them, or holds them."""

    PLAIN = auto()  # numbers, text, sizes, dtypes, devices
    TENSOR = auto()
    KERNEL = auto()  # a jit function
    LAUNCHER = auto()  # a jit function with its grid
    GRID = auto()  # a lambda
    TABLE = auto()  # what a grid or heuristic gets: the arguments of its launch by name
    TYPE = auto()  # a class, for isinstance
    RESULT = auto()  # what a launch returns


@dataclass(frozen=True)
class Many:
    """A sequence of unknown length; its elements are `each`."""

    each: "Shape"


Shape = Kind | tuple["Shape", ...] | Many
VALUE = Kind.PLAIN | Kind.TENSOR


def leaves(shape: Shape) -> Kind:
    """Every kind that a value is or contains."""
    if isinstance(shape, Kind):
        return shape
    if isinstance(shape, Many):
        return leaves(shape.each)
    found = Kind.PLAIN if not shape else leaves(shape[0])
    for part in shape[1:]:
        found |= leaves(part)
    return found


def holds(shape: Shape, kind: Kind) -> bool:
    """Tell whether a value may be, or contain, one of `kind`."""
    return bool(leaves(shape) & kind)


def only(shape: Shape, kind: Kind) -> bool:
    """Tell whether a value can be, or contain, nothing but `kind`."""
    return not leaves(shape) & ~kind


def element(shape: Shape) -> Shape:
    """What iterating or indexing gives."""
    if isinstance(shape, Kind):
        return shape
    if isinstance(shape, Many):
        return shape.each
    found = shape[0] if shape else Kind.PLAIN
    for part in shape[1:]:
        found = join(found, part)
    return found


def join(a: Shape, b: Shape) -> Shape:
    """The kind of a value that is one or the other."""
    if a == b:
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(join(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple | Many) and isinstance(b, tuple | Many):
        return Many(join(element(a), element(b)))
    return leaves(a) | leaves(b)


def sequence(parts: tuple[Shape, ...]) -> Shape:
    """A tuple of these; a large one is a sequence of anything in it, which bounds the work."""
    return parts if sum(map(_weight, parts)) <= _LARGEST else Many(leaves(parts))


def _weight(shape: Shape) -> int:
    if isinstance(shape, tuple):
        return 1 + sum(map(_weight, shape))
    return 1


@dataclass
class Scope:
    """One function being interpreted with the kinds of its arguments.

    `ever` joins what each name ever was: a lambda sees the names at the time it is called. `left` are the
    names as they were where a loop is left, or goes on, from within its body.
    """

    name: str
    names: dict[str, Shape]
    ever: dict[str, Shape] = field(default_factory=dict)
    result: list[Shape] = field(default_factory=list)
    lambdas: list[ast.Lambda] = field(default_factory=list)
    left: list[dict[str, Shape]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ever.update(self.names)

    def set(self, name: str, shape: Shape) -> None:
        """Give a name its kind."""
        self.names[name] = shape
        self.ever[name] = join(self.ever[name], shape) if name in self.ever else shape

    def merge(self, others: list[dict[str, Shape]]) -> None:
        """The names may also be as in these."""
        for other in others:
            for name, shape in other.items():
                self.names[name] = join(self.names[name], shape) if name in self.names else shape


def bind(
    function: ast.FunctionDef, kinds: list[Shape], keywords: dict[str, Shape], node: ast.AST
) -> dict[str, Shape]:
    """Map the arguments of a call to the parameters of a host function; raises Violation."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    every = [*parameters, *(a.arg for a in function.args.kwonlyargs)]
    if len(kinds) > len(parameters) or not set(keywords) <= set(every):
        raise Violation(node, f"the call does not fit {function.name}({', '.join(every)})")
    found: dict[str, Shape] = dict.fromkeys(every, Kind.PLAIN)
    found.update(zip(parameters, kinds, strict=False))
    found.update(keywords)
    return found
