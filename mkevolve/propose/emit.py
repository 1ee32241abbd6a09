"""Emits the arithmetic of a region: loads, pointwise rules and stores over the coordinates of a tile.

A template places what it computed (`Emitter.place`), lets the nodes behind it follow (`push`), or asks for
any value at some coordinates (`pull`): operands are then loaded where they lie, through whatever views and
pointwise ops lead to them. Arithmetic is in float32 (float64 for float64), integers and booleans stay exact,
and rounding happens once, in the store.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mkevolve.data.graph import Arg, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.call import Call
from mkevolve.propose.kernel import Kernel
from mkevolve.propose.rules import POINTWISE
from mkevolve.propose.shapes import Dim, Sizes, is_one
from mkevolve.propose.terms import Term, computed, literal
from mkevolve.propose.views import ZERO, Coord, Coords, View, is_view, paren, pull_view, push_view, unravel

__all__ = [
    "ZERO",
    "Coord",
    "Coords",
    "Emitter",
    "Kernel",
    "Linear",
    "Sizes",
    "Term",
    "is_pointwise",
    "unravel",
]


@dataclass(frozen=True, slots=True)
class Linear:
    """A tile whose elements are numbered in memory order: a tensor with these strides, read at these
    coordinates, lies at `offset` (kernel text). `mask` keeps the number in range: the coordinates along
    dimensions of size 1 have none, and may be all there are.
    """

    coords: Coords
    strides: tuple[Dim, ...]
    offset: str
    mask: tuple[str, ...] = ()


Maker = Callable[[Coords], str]


class Emitter:
    """Writes the values of one subgraph into one kernel.

    A template sets `linear` where its tile has one, and `lane` where a single element may be held by a tile:
    a coordinate that is 0, and in range, in the one lane that is to store it. `sides` are such coordinates of
    the sides (`[:, None]`, `[None, :]`) of a tile that may hold a single row or column.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sizes = kernel.sizes
        graph = self.sizes.graph
        self.inputs = {i.name for i in graph.inputs}
        self.producers = {v.name: (n, k) for n in graph.nodes for k, v in enumerate(n.outputs)}
        self.linear: Linear | None = None
        self.lane: Coord | None = None
        self.sides: Coords = ()
        self._placed: dict[str, tuple[Coords, Term]] = {}
        self._memo: dict[tuple[str, Coords, bool], Term] = {}
        self._makers: dict[str, Maker] = {}
        self._lazy: dict[str, str] = {}
        self._written: set[str] = set()

    def define(self, name: str, text: str) -> str:
        """Note that kernel variable `name` is `text`; the line is written when a load or store first needs
        it. Returns `name`.
        """
        self._lazy[name] = text
        return name

    def place(self, value: str, coords: Coords, text: str, dtype: str | None = None) -> None:
        """Say that kernel expression `text` holds `value` at `coords`.

        `dtype` is the dtype of the expression, where that is not the one which arithmetic on `value` uses.
        """
        term = Term(text, dtype or computed(self.sizes.dtype(value)))
        self._placed[value] = (coords, term)
        self._memo[(value, coords, False)] = term

    def supply(self, value: str, maker: Maker) -> None:
        """Say how `value` is computed wherever it is wanted: `maker(coords)` returns the expression, having
        pulled what it needs; its dtype is that of arithmetic on `value`.
        """
        self._makers[value] = maker

    def placed(self, value: str) -> Coords:
        """Where a placed value lies; raises `ProposalError` for one that is not placed."""
        if value not in self._placed:
            raise ProposalError(f"{value} does not follow from the main op of this subgraph")
        return self._placed[value][0]

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """Lines emitted meanwhile lie in the body of `header`; values pulled there are forgotten after it."""
        memo, written, placed = dict(self._memo), set(self._written), dict(self._placed)
        with self.kernel.indented(header):
            yield
        self._memo, self._written, self._placed = memo, written, placed

    def pull(self, value: str, coords: Coords, raw: bool = False) -> Term:
        """Emit what `value` at `coords` needs and return it; out of range lanes hold garbage, never a fault.

        `raw` leaves a value that is loaded in its stored dtype (an operand of `tl.dot`); it has no effect on
        a value that is computed. Loads are masked with the masks of the coordinates they use, `other=0`.
        """
        key = (value, coords, raw)
        if key not in self._memo:
            self._memo[key] = self._make(value, coords, raw)
        return self._memo[key]

    def push(self, nodes: Sequence[Node]) -> None:
        """Place what follows from placed values, through pointwise ops and one-to-one views, in order.

        Nodes that read nothing placed are left for `pull`. Raises `ProposalError` naming an op that is
        neither pointwise nor a view.
        """
        for node in nodes:
            sources = [name for name in node.reads if name in self._placed]
            if not sources or node.outputs[0].name in self._placed:
                continue
            result = node.outputs[0].name
            if is_view(node):
                view = View(node, self.sizes, self.kernel.size)
                coords, term = self._placed[sources[0]]
                self.place(result, push_view(view, coords), term.text, term.dtype)
                continue
            shape = self.sizes.shape(result)
            same = [s for s in sources if self.sizes.shape(s) == shape]
            if not same:
                raise ProposalError(f"{node.op} broadcasts the main op's result")
            coords = self._placed[same[0]][0]
            term = self.pull(result, coords)
            self.place(result, coords, term.text, term.dtype)

    def store(self, value: str, coords: Coords | None = None, mask: tuple[str, ...] = ()) -> None:
        """Store an output of the graph at `coords` (default: where it was placed) in the boundary's strides.

        `mask` adds terms to those of the coordinates. The value is pulled if it is not placed.
        """
        at = self.placed(value) if coords is None else coords
        term = self._placed[value][1] if coords is None else self.pull(value, at)
        self.store_term(value, at, term, mask)

    def store_term(self, value: str, coords: Coords, term: Term, mask: tuple[str, ...] = ()) -> None:
        """Store `term` as output `value` at `coords`."""
        pointer = self.kernel.pointer(value)
        offset, terms = self._offset(value, coords)
        if offset == "0" and self.lane is not None:
            offset, terms = self.lane.text, self.lane.mask
        for side in self.sides:
            if side.text[side.text.index("[") :] not in self._lazy.get(offset, offset):
                offset, terms = f"{offset} + {side.text}", (*terms, *side.mask)
        masks = " & ".join(dict.fromkeys((*terms, *mask)))
        self._need(masks)
        self.kernel.line(f"tl.store({_at(pointer, offset)}, {term.text}{', mask=' + masks if masks else ''})")

    def load(self, value: str, coords: Coords, raw: bool = False) -> Term:
        """Load an input at `coords`, cast to the dtype of arithmetic unless `raw`."""
        stored = self.sizes.dtype(value)
        pointer = self.kernel.pointer(value)
        offset, terms = self._offset(value, coords)
        masks = " & ".join(terms)
        self._need(masks)
        tail = f", mask={masks}, other=0" if masks and offset != "0" else ""
        text = f"tl.load({_at(pointer, offset)}{tail})"
        dtype = stored if raw else computed(stored)
        if stored == "bool":
            text = f"({text} != 0)"
        elif dtype != stored:
            text += f".to(tl.{dtype})"
        return Term(self.kernel.assign(f"{value}_v", text), dtype)

    def position(self, coord: Coord) -> str:
        """A coordinate as a value: its text, defined if it must be."""
        self._need(coord.text)
        return paren(coord.text)

    def operand(self, node: Node, arg: Arg, coords: Coords) -> Term:
        """Argument `arg` of a pointwise `node` whose result is wanted at `coords`."""
        if not isinstance(arg, Ref):
            return Term(literal(arg), type(arg).__name__)
        return self.pull(arg.name, self.broadcast(arg.name, node.outputs[0].name, coords))

    def broadcast(self, operand: str, result: str, coords: Coords) -> Coords:
        """Coordinates of `operand` for the element of `result` at `coords`."""
        small, large = self.sizes.shape(operand), self.sizes.shape(result)
        found = []
        for dim, whole, coord in zip(
            small, large[len(large) - len(small) :], coords[len(large) - len(small) :], strict=True
        ):
            if dim != whole and not is_one(dim):
                raise ProposalError(f"{operand} broadcasts at some input sizes only")
            found.append(ZERO if is_one(dim) else coord)
        return tuple(found)

    def _make(self, value: str, coords: Coords, raw: bool) -> Term:
        if value in self._placed:
            where, term = self._placed[value]
            if where != coords:
                raise ProposalError(f"{value} is needed at other places than where the main op puts it")
            return term
        if value in self.inputs:
            return self.load(value, coords, raw)
        if value in self._makers:
            text = self._makers[value](coords)
            return Term(self.kernel.assign(value, text), computed(self.sizes.dtype(value)))
        node, output = self.producers[value]
        if is_view(node):
            view = View(node, self.sizes, self.kernel.size)
            return self.pull(view.source, pull_view(view, output, coords), raw)
        rule = POINTWISE.get(node.op)
        if rule is None:
            raise ProposalError(f"{node.op} is neither pointwise nor a view")
        if output:
            raise ProposalError(f"{node.op}: only its first result is pointwise")
        text = rule(Call(self, node, coords))
        return Term(self.kernel.assign(value, text), computed(self.sizes.dtype(value)))

    def _offset(self, value: str, coords: Coords) -> tuple[str, tuple[str, ...]]:
        linear = self.linear
        if linear is not None and linear.coords == coords and self._same_strides(value, linear):
            self._need(linear.offset)
            return linear.offset, tuple(dict.fromkeys((*(m for c in coords for m in c.mask), *linear.mask)))
        parts: list[str] = []
        terms: list[str] = []
        for axis, (coord, dim) in enumerate(zip(coords, self.sizes.shape(value), strict=True)):
            if coord == ZERO or is_one(dim):
                continue
            if all(s == 0 for s in self.sizes.strides(value)[axis]):
                continue
            self._need(coord.text)
            stride = self.kernel.stride(value, axis)
            parts.append(coord.text if stride == "1" else f"{paren(coord.text)} * {stride}")
            terms += coord.mask
        return " + ".join(parts) or "0", tuple(dict.fromkeys(terms))

    def _same_strides(self, value: str, linear: Linear) -> bool:
        """Whether the tensor's offsets are those of `linear`; strides of size-1 dimensions do not matter."""
        shapes = self.sizes.shape(value)
        return all(
            n == 1 or s == t
            for dim, strides, wanted in zip(shapes, self.sizes.strides(value), linear.strides, strict=True)
            for n, s, t in zip(dim, strides, wanted, strict=True)
        )

    def _need(self, text: str) -> None:
        """Write the definitions that `text` uses and that were not written in this scope."""
        for name in re.findall(r"[A-Za-z_]\w*", text):
            if name in self._lazy and name not in self._written:
                self._written.add(name)
                self._need(self._lazy[name])
                self.kernel.line(f"{name} = {self._lazy[name]}")


def is_pointwise(node: Node) -> bool:
    """Whether a node can be part of a prologue or epilogue (a view counts)."""
    return node.op in POINTWISE or is_view(node)


def _at(pointer: str, offset: str) -> str:
    return pointer if offset == "0" else f"{pointer} + {offset}"
