"""Tiles over an output in its memory order: flat, or rows by columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.propose.emit import Coord, Coords, Emitter, Kernel, Linear
from mkevolve.propose.shapes import Dim, Sizes, is_one, power_of_two
from mkevolve.propose.views import unravel

NARROW = 64
"""Elements below which the fast side of a tile is too short to fill memory transactions."""

NARROWEST = 8
"""Elements below which rows are not worth offering."""
SQUARE = 64
"""Columns of a tile that is read along its rows and written along its columns."""


@dataclass(frozen=True, slots=True)
class Group:
    """Values of one shape and memory order; `order` lists their dimensions, slowest first."""

    values: tuple[str, ...]
    order: tuple[int, ...]


def tile_options(sizes: Sizes, groups: Sequence[Group]) -> tuple[str, ...]:
    """`flat` and `rows_K` (K fast dimensions), best guess first.

    Rows come first where something is broadcast along them, or where an operand lies in another memory
    order: then K puts its fastest dimension on the slow side of the tile.
    """
    group = max(groups, key=lambda g: len(g.order))
    shape = sizes.shape(group.values[0])
    widths = {k: math.prod(shape[d][0] for d in group.order[-k:]) for k in range(1, len(group.order))}
    total = math.prod(dim[0] for dim in shape)
    rows = [k for k, width in widths.items() if width >= NARROWEST and width < total] or list(widths)
    crossing = _crossing(sizes, group)
    shapes = {sizes.shape(i.name) for i in sizes.graph.inputs}
    if not rows or (shapes <= {shape, ()} and crossing is None):
        return ("flat", *(f"rows_{k}" for k in rows))
    wide = next((k for k in rows if widths[k] >= NARROW), rows[0])
    best = crossing if crossing in rows else wide
    return (f"rows_{best}", "flat", *(f"rows_{k}" for k in rows if k != best))


def _crossing(sizes: Sizes, group: Group) -> int | None:
    """K such that the fastest dimension of an operand in another memory order is the next slower one."""
    shape = sizes.shape(group.values[0])
    order = [d for d in group.order if not is_one(shape[d])]
    for item in sizes.graph.inputs:
        if sizes.shape(item.name) != shape:
            continue
        unit = [d for d in order if is_one(sizes.strides(item.name)[d])]
        if unit and unit[-1] != order[-1]:
            return len(group.order) - 1 - group.order.index(unit[-1])
    return None


def fast_dimensions(option: str) -> int:
    """K of `rows_K`; 0 of `flat`."""
    return 0 if option == "flat" else int(option.removeprefix("rows_"))


def title(fast: int) -> str:
    """The tile in words."""
    return "flat in memory order" if fast == 0 else f"rows of the {fast} fastest dimensions"


def _fast(group: Group, fast: int) -> int:
    """How many dimensions the fast side of this group's tile has; 0 = flat."""
    return min(fast, max(len(group.order) - 1, 0))


def tunables(
    sizes: Sizes, groups: Sequence[Group], fast: int, elements: int = 2048
) -> dict[str, tuple[Setting, ...]]:
    """Block sizes and warps for these groups; `elements` is the best guess for a tile."""
    found: dict[str, tuple[Setting, ...]] = {}
    tiled = [g for g in groups if _fast(g, fast)]
    if len(tiled) < len(groups):
        half = elements // 2
        found["BLOCK"] = (half, half // 2, half * 2, half * 4)
    if tiled:
        shape = sizes.shape(tiled[0].values[0])
        width = math.prod(shape[d][0] for d in tiled[0].order[-fast:])
        columns = min(elements // 2, power_of_two(width))
        if _crossing(sizes, tiled[0]) == fast:
            columns = min(columns, SQUARE)
        rows = max(1, elements // columns)
        found["ROWS"] = tuple(dict.fromkeys((rows, max(1, rows // 2), rows * 2, 1)))
        found["COLUMNS"] = tuple(dict.fromkeys((columns, max(columns // 2, 16), min(columns * 2, elements))))
    return {**found, "num_warps": (4, 8)}


def tile(emitter: Emitter, group: Group, fast: int) -> Coords:
    """Write the header of a tile and the grid; return the coordinates of the group's values."""
    kernel, fast = emitter.kernel, _fast(group, fast)
    shape = emitter.sizes.shape(group.values[0])
    ordered = tuple(shape[d] for d in group.order)
    if fast == 0:
        found, offset, mask = _flat(kernel, ordered)
    else:
        found, offset, mask = _rows(emitter, ordered, fast)
    by_place = [
        c if c.text in ("0", "i") else _named(emitter, d, c) for d, c in zip(group.order, found, strict=True)
    ]
    coords = tuple(by_place[group.order.index(d)] for d in range(len(shape)))
    emitter.linear = Linear(coords, emitter.sizes.strides(group.values[0]), offset, mask)
    return coords


def _named(emitter: Emitter, axis: int, coord: Coord) -> Coord:
    return Coord(emitter.define(f"i{axis}", coord.text), coord.mask)


def _flat(kernel: Kernel, ordered: tuple[Dim, ...]) -> tuple[Coords, str, tuple[str, ...]]:
    total = kernel.size(*ordered)
    kernel.constant("BLOCK")
    kernel.line(f"i = {kernel.program_id()} * BLOCK + {kernel.arange('BLOCK')}")
    kernel.line(f"inside = i < {total}")
    kernel.grid = f"(triton.cdiv({kernel.sizes.host(*ordered)}, BLOCK),)"
    linear = Coord("i", ("inside",))
    return unravel(kernel.size, linear, ordered), linear.text, linear.mask


def _rows(emitter: Emitter, ordered: tuple[Dim, ...], fast: int) -> tuple[Coords, str, tuple[str, ...]]:
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
    row, column = Coord("r", (f"(r < {height})",)), Coord("c", (f"(c < {width})",))
    found = (*unravel(kernel.size, row, slow), *unravel(kernel.size, column, quick))
    return found, emitter.define("i", f"r * {width} + c"), (*row.mask, *column.mask)
