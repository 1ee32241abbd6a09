"""Pointwise regions: one kernel for each shape of output, flat or in rows."""

import math
from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Ref
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import Coord, Coords, Emitter, Kernel, Linear, is_pointwise
from mkevolve.propose.family import Family, Point
from mkevolve.propose.shapes import Dim, Sizes, dense_order, power_of_two
from mkevolve.propose.source import Source
from mkevolve.propose.views import unravel


@dataclass(frozen=True, slots=True)
class Group:
    """Outputs of one shape and memory order; `order` lists their dimensions, slowest first."""

    values: tuple[str, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PointwiseMatch:
    """A subgraph of pointwise ops and views."""

    sizes: Sizes
    ops: str
    groups: tuple[Group, ...]


class PointwiseFamily(Family[PointwiseMatch]):
    """Chains of pointwise ops with broadcasting, views between them and several outputs.

    `tile=flat` numbers the elements of an output in memory order; `tile=rows_K` makes a 2-D tile whose fast
    side is the K fastest dimensions, so that vectors along it are loaded once.
    """

    def match(self, subgraph: Subgraph) -> PointwiseMatch | None:
        graph = subgraph.target
        if not all(is_pointwise(node) for node in graph.nodes):
            return None
        sizes = Sizes(subgraph)
        made: dict[tuple[tuple[Dim, ...], tuple[int, ...]], list[str]] = {}
        for out in graph.outputs:
            if not isinstance(out, Ref):
                raise ProposalError(f"output {out!r} is not a tensor")
            made.setdefault((sizes.shape(out.name), dense_order(sizes, out.name)), []).append(out.name)
        groups = tuple(Group(tuple(values), order) for (_, order), values in made.items())
        return PointwiseMatch(sizes, subgraph.ops, groups)

    def choices(
        self, match: PointwiseMatch, chip: Chip, precision: Precision
    ) -> dict[str, tuple[Setting, ...]]:
        rank = max(len(g.order) for g in match.groups)
        rows = tuple(f"rows_{k}" for k in range(1, rank))
        return {"tile": ("flat", *rows)}

    def render(self, match: PointwiseMatch, point: Point) -> str | None:
        tile = str(point["tile"])
        fast = 0 if tile == "flat" else int(tile.removeprefix("rows_"))
        source = Source(match.sizes, f"{match.ops}, {_title(fast)}.", _tunables(match, fast))
        for number, group in enumerate(match.groups):
            kernel = source.kernel("_kernel" if len(match.groups) == 1 else f"_kernel_{number}")
            emitter = Emitter(kernel)
            coords = _tile(emitter, group, _fast(group, fast))
            for value in group.values:
                emitter.store(value, coords)
            source.launch(kernel)
        return source.render()


def _title(fast: int) -> str:
    return "flat in memory order" if fast == 0 else f"rows of the {fast} fastest dimensions"


def _fast(group: Group, fast: int) -> int:
    """How many dimensions the fast side of this group's tile has; 0 = flat."""
    return min(fast, max(len(group.order) - 1, 0))


def _tunables(match: PointwiseMatch, fast: int) -> dict[str, tuple[Setting, ...]]:
    found: dict[str, tuple[Setting, ...]] = {}
    tiled = [g for g in match.groups if _fast(g, fast)]
    if len(tiled) < len(match.groups):
        found["BLOCK"] = (1024, 512, 2048, 4096)
    if tiled:
        shape = match.sizes.shape(tiled[0].values[0])
        width = math.prod(shape[d][0] for d in tiled[0].order[-fast:])
        columns = min(1024, power_of_two(width))
        rows = max(1, 2048 // columns)
        found["ROWS"] = tuple(dict.fromkeys((rows, max(1, rows // 2), rows * 2, 1)))
        found["COLUMNS"] = tuple(dict.fromkeys((columns, max(columns // 2, 16), min(columns * 2, 2048))))
    return {**found, "num_warps": (4, 8)}


def _tile(emitter: Emitter, group: Group, fast: int) -> Coords:
    """Write the header of a tile and return the coordinates of the group's outputs."""
    kernel = emitter.kernel
    shape = emitter.sizes.shape(group.values[0])
    ordered = tuple(shape[d] for d in group.order)
    if fast == 0:
        found, offset = _flat(kernel, ordered)
    else:
        found, offset = _rows(emitter, ordered, fast)
    by_place = [
        c if c.text in ("0", "i") else _named(emitter, d, c) for d, c in zip(group.order, found, strict=True)
    ]
    coords = tuple(by_place[group.order.index(d)] for d in range(len(shape)))
    emitter.linear = Linear(coords, emitter.sizes.strides(group.values[0]), offset)
    return coords


def _named(emitter: Emitter, axis: int, coord: Coord) -> Coord:
    return Coord(emitter.define(f"i{axis}", coord.text), coord.mask)


def _flat(kernel: Kernel, ordered: tuple[Dim, ...]) -> tuple[Coords, str]:
    total = kernel.size(*ordered)
    kernel.constant("BLOCK")
    kernel.line(f"i = {kernel.program_id()} * BLOCK + {kernel.arange('BLOCK')}")
    kernel.line(f"inside = i < {total}")
    kernel.grid = f"(triton.cdiv({kernel.sizes.host(*ordered)}, BLOCK),)"
    return unravel(kernel.size, Coord("i", ("inside",)), ordered), "i"


def _rows(emitter: Emitter, ordered: tuple[Dim, ...], fast: int) -> tuple[Coords, str]:
    kernel = emitter.kernel
    slow, quick = ordered[:-fast], ordered[-fast:]
    height, width = kernel.size(*slow), kernel.size(*quick)
    for name in ("ROWS", "COLUMNS"):
        kernel.constant(name)
    kernel.line(f"blocks = tl.cdiv({width}, COLUMNS)")
    kernel.line(f"pid = {kernel.program_id()}")
    kernel.line(f"r = (pid // blocks * ROWS + {kernel.arange('ROWS')})[:, None]")
    kernel.line(f"c = (pid % blocks * COLUMNS + {kernel.arange('COLUMNS')})[None, :]")
    host = kernel.sizes.host
    kernel.grid = f"(triton.cdiv({host(*slow)}, ROWS) * triton.cdiv({host(*quick)}, COLUMNS),)"
    rows = unravel(kernel.size, Coord("r", (f"(r < {height})",)), slow)
    columns = unravel(kernel.size, Coord("c", (f"(c < {width})",)), quick)
    return (*rows, *columns), emitter.define("i", f"r * {width} + c")
