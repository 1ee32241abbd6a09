"""How coordinates pass through view ops: pull (result to operand) and push (operand to result)."""

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve.data.graph import Arg, Node
from mkevolve.errors import ProposalError
from mkevolve.propose.shapes import Dim, Sizes, is_one


@dataclass(frozen=True, slots=True)
class Coord:
    """Where a tile lies along one dimension: kernel text, already broadcast to the tile, and what keeps it
    in range (terms to be joined by `&`, broadcast likewise; empty = always in range).
    """

    text: str
    mask: tuple[str, ...] = ()


ZERO = Coord("0")
Coords = tuple[Coord, ...]
SizeText = Callable[[Dim], str]


@dataclass(frozen=True, slots=True)
class View:
    """One use of a view op: its node, its shapes, and how to write a size in the kernel."""

    node: Node
    sizes: Sizes
    size: SizeText

    @property
    def source(self) -> str:
        return self.node.reads[0]

    @property
    def before(self) -> tuple[Dim, ...]:
        return self.sizes.shape(self.source)

    @property
    def after(self) -> tuple[Dim, ...]:
        return self.sizes.shape(self.node.outputs[0].name)

    def number(self, index: int, default: int = 0) -> int:
        arg = self.node.args[index] if index < len(self.node.args) else default
        return arg if isinstance(arg, int) else default

    def axis(self, index: int, rank: int | None = None) -> int:
        """Argument `index` as a dimension from the front; of the operand unless `rank` says otherwise."""
        return self.number(index) % max(len(self.before) if rank is None else rank, 1)


def is_view(node: Node) -> bool:
    """Whether coordinates can be mapped through this node."""
    return node.op in PULL


def pull_view(view: View, output: int, coords: Coords) -> Coords:
    """Coordinates of the operand that hold the result's element at `coords`."""
    if view.node.op in SPLITS:
        return _split(view, output, coords)
    return PULL[view.node.op](view, coords)


def push_view(view: View, coords: Coords) -> Coords:
    """Coordinates of the result that hold the operand's element at `coords`; for one-to-one views only."""
    rule = PUSH.get(view.node.op)
    if rule is None:
        raise ProposalError(f"{view.node.op} after the main op: it does not keep every element")
    return rule(view, coords)


def reshape(size: SizeText, coords: Coords, before: tuple[Dim, ...], after: tuple[Dim, ...]) -> Coords:
    """Coordinates in shape `after` of the element at `coords` in shape `before`, in row-major order."""
    kept = [(d, c) for d, c in zip(before, coords, strict=True) if not is_one(d)]
    wanted = [i for i, d in enumerate(after) if not is_one(d)]
    result = [ZERO] * len(after)
    while kept and wanted:
        left, right = [kept.pop(0)], [wanted.pop(0)]
        while (lo := _times([d for d, _ in left])) != (hi := _times([after[i] for i in right])):
            if lo < hi and kept:
                left.append(kept.pop(0))
            elif wanted:
                right.append(wanted.pop(0))
            elif kept:
                left.append(kept.pop(0))
            else:
                raise ProposalError(f"reshape {before} to {after} differs between input sizes")
        linear = _join(size, left)
        for i, coord in zip(right, _unravel(size, linear, [after[i] for i in right]), strict=True):
            result[i] = coord
    return tuple(result)


def shift(coord: Coord, start: int, step: int = 1) -> Coord:
    """`start + step * coord`."""
    text = coord.text if step == 1 else f"{paren(coord.text)} * {step}"
    return Coord(text if start == 0 else f"{text} + {start}", coord.mask)


def paren(text: str) -> str:
    """Text that binds as tightly as a name."""
    plain = all(ch.isalnum() or ch in "_." for ch in text)
    return text if plain or (text[-1] == "]" and " " not in text.split("[")[0]) else f"({text})"


def unravel(size: SizeText, linear: Coord, dims: tuple[Dim, ...]) -> Coords:
    """Coordinates along `dims` (slowest first) of the element number `linear`."""
    result = [ZERO] * len(dims)
    wanted = [i for i, d in enumerate(dims) if not is_one(d)]
    for i, coord in zip(wanted, _unravel(size, linear, [dims[i] for i in wanted]), strict=True):
        result[i] = coord
    return tuple(result)


def _times(dims: list[Dim]) -> Dim:
    total = (1,) * len(dims[0])
    for dim in dims:
        total = tuple(a * b for a, b in zip(total, dim, strict=True))
    return total


def _join(size: SizeText, parts: list[tuple[Dim, Coord]]) -> Coord:
    text, mask = parts[0][1].text, parts[0][1].mask
    for dim, coord in parts[1:]:
        text = f"{paren(text)} * {size(dim)} + {paren(coord.text)}"
        mask = (*mask, *(m for m in coord.mask if m not in mask))
    return Coord(text, mask)


def _unravel(size: SizeText, linear: Coord, dims: list[Dim]) -> Coords:
    result: list[Coord] = []
    rest = linear.text
    for place in range(len(dims) - 1, -1, -1):
        text = rest if place == 0 else f"{paren(rest)} % {size(dims[place])}"
        result.insert(0, Coord(text, linear.mask))
        rest = f"{paren(rest)} // {size(dims[place])}"
    return tuple(result)


def _numbers(arg: Arg) -> tuple[int, ...]:
    if isinstance(arg, int):
        return (arg,)
    return tuple(a for a in arg if isinstance(a, int)) if isinstance(arg, tuple) else ()


def _same(view: View, coords: Coords) -> Coords:
    return coords


def _pull_reshape(view: View, coords: Coords) -> Coords:
    return reshape(view.size, coords, view.after, view.before)


def _push_reshape(view: View, coords: Coords) -> Coords:
    return reshape(view.size, coords, view.before, view.after)


def _order(view: View) -> list[int]:
    rank = len(view.before)
    if view.node.op == "aten.permute.default":
        return [d % rank for d in _numbers(view.node.args[1])]
    order = list(range(rank))
    a, b = (view.axis(1), view.axis(2)) if view.node.op == "aten.transpose.int" else (0, rank - 1)
    order[a], order[b] = order[b], order[a]
    return order


def _pull_permute(view: View, coords: Coords) -> Coords:
    result = [ZERO] * len(coords)
    for place, d in enumerate(_order(view)):
        result[d] = coords[place]
    return tuple(result)


def _push_permute(view: View, coords: Coords) -> Coords:
    return tuple(coords[d] for d in _order(view))


def _pull_expand(view: View, coords: Coords) -> Coords:
    before = view.before
    tail = coords[len(coords) - len(before) :]
    return tuple(ZERO if is_one(d) else c for d, c in zip(before, tail, strict=True))


def _pull_select(view: View, coords: Coords) -> Coords:
    axis, index = view.axis(1), view.number(2)
    if index < 0:
        dim = view.before[axis]
        return (*coords[:axis], Coord(f"{view.size(dim)} - {-index}"), *coords[axis:])
    return (*coords[:axis], Coord(str(index)), *coords[axis:])


def _pull_slice(view: View, coords: Coords) -> Coords:
    axis, step = view.axis(1), view.number(4, 1)
    start, dim = view.number(2), view.before[axis]
    if start < 0 and len(set(dim)) > 1:
        raise ProposalError("aten.slice.Tensor from the end of a size that varies")
    start = max(start + dim[0], 0) if start < 0 else start
    return (*coords[:axis], shift(coords[axis], start, step), *coords[axis + 1 :])


def _split(view: View, output: int, coords: Coords) -> Coords:
    node = view.node
    axis = view.axis(2 if node.op != "aten.unbind.int" else 1)
    if node.op == "aten.unbind.int":
        return (*coords[:axis], Coord(str(output)), *coords[axis:])
    start = sum(view.sizes.shape(v.name)[axis][0] for v in node.outputs[:output])
    if any(len(set(view.sizes.shape(v.name)[axis])) > 1 for v in node.outputs[:output]):
        raise ProposalError(f"{node.op} at a size that varies")
    return (*coords[:axis], shift(coords[axis], start), *coords[axis + 1 :])


SPLITS = frozenset(
    {"aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.unbind.int"}
)
_RESHAPES = (
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.flatten.using_ints",
    "aten.unflatten.int", "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim",
    "aten.squeeze.dims",
)  # fmt: skip
_PERMUTES = ("aten.permute.default", "aten.transpose.int", "aten.t.default", "aten.numpy_T.default")
_SAMES = ("aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default")

Rule = Callable[[View, Coords], Coords]
PULL: dict[str, Rule] = {
    **dict.fromkeys(_SAMES, _same),
    **dict.fromkeys(_RESHAPES, _pull_reshape),
    **dict.fromkeys(_PERMUTES, _pull_permute),
    **dict.fromkeys(("aten.expand.default", "aten.broadcast_to.default"), _pull_expand),
    **dict.fromkeys(SPLITS, _same),
    "aten.select.int": _pull_select,
    "aten.slice.Tensor": _pull_slice,
}
PUSH: dict[str, Rule] = {
    **dict.fromkeys(_SAMES, _same),
    **dict.fromkeys(_RESHAPES, _push_reshape),
    **dict.fromkeys(_PERMUTES, _push_permute),
}
