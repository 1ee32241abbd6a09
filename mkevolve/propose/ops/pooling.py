"""Windows over an image: average, adaptive average and maximum pooling, with pointwise surroundings."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Node, Ref
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import ZERO, Coord, Coords, Emitter, is_pointwise
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.tiles import Group, fast_dimensions, tile, tile_options, title, tunables
from mkevolve.propose.shapes import Dim, Sizes, dense_order, is_one
from mkevolve.propose.source import Source
from mkevolve.propose.views import paren

AVERAGE = "aten.avg_pool2d.default"
ADAPTIVE = ("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default")
MAXIMUM = ("aten.max_pool2d.default", "aten.max_pool2d_with_indices.default")
UNROLLED = 16
"""Largest window that is unrolled unless a choice says so."""


@dataclass(frozen=True, slots=True)
class Side:
    """A window along one dimension: output `o` reads `o * stride - padding + k * dilation` for k < `size`.

    For an adaptive pool `size` is only the most that any output reads, and the other numbers do not count.
    """

    size: int
    stride: int
    padding: int
    dilation: int


@dataclass(frozen=True, slots=True)
class PoolMatch:
    """One pool; `sides` are those of the last two dimensions, `counted` says that padding counts."""

    sizes: Sizes
    ops: str
    node: Node
    sides: tuple[Side, Side]
    counted: bool
    divisor: int | None

    @property
    def adaptive(self) -> bool:
        return self.node.op in ADAPTIVE

    @property
    def group(self) -> Group:
        """The pool's result, in the memory order of the first output."""
        value = self.node.outputs[0].name
        outputs = self.sizes.graph.output_values
        same = [o.name for o in outputs if self.sizes.shape(o.name) == self.sizes.shape(value)]
        return Group((value,), dense_order(self.sizes, (same or [value])[0]))


class PoolingFamily(Family[PoolMatch]):
    """One element of a tile walks over its window; `window` says whether that loop is unrolled."""

    def match(self, subgraph: Subgraph) -> PoolMatch | None:
        graph = subgraph.target
        nodes = [n for n in graph.nodes if n.op in (AVERAGE, *ADAPTIVE, *MAXIMUM)]
        if not nodes:
            return None
        for node in graph.nodes:
            if node is not nodes[0] and not is_pointwise(node):
                raise ProposalError(f"{node.op} beside {nodes[0].op}")
        return _read(Sizes(subgraph), subgraph.ops, nodes[0])

    def choices(self, match: PoolMatch, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        area = match.sides[0].size * match.sides[1].size
        window = ("unrolled", "loop") if area <= UNROLLED else ("loop", "unrolled")
        return {
            "tile": tile_options(match.sizes, (match.group,)),
            "window": window if area <= 128 else ("loop",),
        }

    def render(self, match: PoolMatch, point: Point) -> str | None:
        fast = fast_dimensions(str(point["tile"]))
        unrolled = point["window"] == "unrolled"
        text = f"{match.ops}, {title(fast)}, window {'unrolled' if unrolled else 'in a loop'}."
        source = Source(match.sizes, text, tunables(match.sizes, (match.group,), fast, elements=1024))
        kernel = source.kernel()
        emitter = Emitter(kernel)
        coords = tile(emitter, match.group, fast)
        _pool(emitter, match, coords, unrolled)
        emitter.push(match.sizes.graph.nodes)
        for out in match.sizes.graph.outputs:
            if isinstance(out, Ref):
                emitter.store(out.name)
        source.launch(kernel)
        return source.render()


def _pool(emitter: Emitter, match: PoolMatch, coords: Coords, unrolled: bool) -> None:
    """Accumulate every window and place the pool's result."""
    kernel, maximum = emitter.kernel, match.node.op in MAXIMUM
    shape = "[BLOCK]" if "BLOCK" in kernel.constants else "[ROWS, COLUMNS]"
    start = '-float("inf")' if maximum else "0.0"
    acc = kernel.assign("acc", f"tl.full({shape}, {start}, tl.float32)")
    counted = match.adaptive or not match.counted
    count = kernel.assign("count", f"tl.zeros({shape}, tl.float32)") if counted and not maximum else ""
    with ExitStack() as stack:
        window = []
        for axis, (side, coord) in enumerate(zip(match.sides, coords[-2:], strict=True)):
            window.append(stack.enter_context(_window(emitter, match, axis, side, coord, unrolled)))
        inside = " & ".join(dict.fromkeys(m for c in window for m in c.mask)) or "True"
        x = emitter.pull(match.node.reads[0], (*coords[:-2], *window)).cast("float32")
        if maximum:
            kernel.line(f"x = tl.where({inside}, {x}, {start})")
            kernel.line(f"{acc} = tl.maximum({acc}, x, propagate_nan=tl.PropagateNan.ALL)")
        else:
            kernel.line(f"{acc} += tl.where({inside}, {x}, 0.0)")
        if count:
            kernel.line(f"{count} += tl.where({inside}, 1.0, 0.0)")
    if not maximum:
        area = match.sides[0].size * match.sides[1].size
        acc = kernel.assign("average", f"{acc} / {count or match.divisor or area}")
    emitter.place(match.node.outputs[0].name, coords, acc)


@contextmanager
def _window(
    emitter: Emitter, match: PoolMatch, axis: int, side: Side, coord: Coord, unrolled: bool
) -> Iterator[Coord]:
    """The loop along one side of the window; yields the coordinate it reads."""
    kernel, name = emitter.kernel, "hw"[axis]
    rank = len(match.sizes.shape(match.node.reads[0]))
    size = kernel.size(match.sizes.shape(match.node.reads[0])[rank - 2 + axis])
    # A plain 0 would make Python numbers of coordinates and masks.
    lanes = "i" if "BLOCK" in kernel.constants else "r"
    at = f"({lanes} * 0)" if coord == ZERO else emitter.position(coord)
    with emitter.loop(f"for k{name} in {'tl.static_range' if unrolled else 'range'}({side.size}):"):
        if match.adaptive:
            out = kernel.size(match.sizes.shape(match.node.outputs[0].name)[rank - 2 + axis])
            kernel.line(f"{name} = {at} * {size} // {out} + k{name}")
            limit = f"({name} < (({at} + 1) * {size} + {out} - 1) // {out})"
            yield Coord(name, (*coord.mask, limit))
        else:
            step = f"k{name}" if side.dilation == 1 else f"k{name} * {side.dilation}"
            kernel.line(f"{name} = {paren(at)} * {side.stride} - {side.padding} + {step}")
            low = (f"({name} >= 0)",) if side.padding else ()
            yield Coord(name, (*coord.mask, *low, f"({name} < {size})"))


def _read(sizes: Sizes, ops: str, node: Node) -> PoolMatch:
    before, after = sizes.shape(node.reads[0])[-2:], sizes.shape(node.outputs[0].name)[-2:]
    if node.op in ADAPTIVE:
        if all(is_one(dim) for dim in after):
            raise ProposalError(f"{node.op} to 1 x 1: a mean, not a window")
        sides = tuple(Side(_most(b, a), 1, 0, 1) for b, a in zip(before, after, strict=True))
        return PoolMatch(sizes, ops, node, (sides[0], sides[1]), False, None)
    kernel = _pair(node, 1, "kernel_size", 1)
    stride = _pair(node, 2, "stride", kernel)
    padding = _pair(node, 3, "padding", 0)
    dilation = _pair(node, 4, "dilation", 1) if node.op in MAXIMUM else (1, 1)
    pair = tuple(Side(*numbers) for numbers in zip(kernel, stride, padding, dilation, strict=True))
    for axis, side in enumerate(pair):
        _define(sizes, node, before[axis], after[axis], side)
    counted = _argument(node, 5, "count_include_pad", True) if node.op == AVERAGE else False
    divisor = _argument(node, 6, "divisor_override", None) if node.op == AVERAGE else None
    return PoolMatch(
        sizes, ops, node, (pair[0], pair[1]), counted is not False or divisor is not None,
        divisor if isinstance(divisor, int) else None,
    )  # fmt: skip


def _define(sizes: Sizes, node: Node, before: Dim, after: Dim, side: Side) -> None:
    """Say how the output's size arises; `ceil_mode` counts only where it makes no difference."""
    less = 2 * side.padding - side.dilation * (side.size - 1) - 1
    if after != tuple((b + less) // side.stride + 1 for b in before):
        raise ProposalError(f"{node.op} with ceil_mode")
    ((name, host),) = sizes.factors(before)[:1]
    if len(sizes.factors(before)) == 1:
        sign = "+" if less >= 0 else "-"
        sizes.define(after, f"{name}_out", f"(({host} {sign} {abs(less)}) // {side.stride} + 1)")


def _most(before: Dim, after: Dim) -> int:
    """The most elements that an adaptive window holds, at any size."""
    return max(
        ((i + 1) * b + a - 1) // a - i * b // a for b, a in zip(before, after, strict=True) for i in range(a)
    )


def _argument(node: Node, index: int, name: str, default: int | None) -> object:
    return node.args[index] if index < len(node.args) else node.kwarg(name, default)


def _pair(node: Node, index: int, name: str, default: int | tuple[int, int]) -> tuple[int, int]:
    arg = _argument(node, index, name, None)
    numbers = [a for a in arg if isinstance(a, int)] if isinstance(arg, tuple) else [arg]
    found = [n for n in numbers if isinstance(n, int)]
    if not found:
        return default if isinstance(default, tuple) else (default, default)
    return found[0], found[-1]
