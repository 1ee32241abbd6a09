"""Kernels of a matrix product: tiles on tensor cores, and a second pass over partial sums."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mkevolve.data.graph import Ref
from mkevolve.propose.emit import Emitter
from mkevolve.propose.kernel import Kernel
from mkevolve.propose.ops.matmul_match import Product
from mkevolve.propose.ops.matmul_norm import place_normalised, write_statistics
from mkevolve.propose.ops.matmul_tile import ACROSS, ALONE, DOWN, Places, Tile, Walk, at, shifted
from mkevolve.propose.source import Source

PARTIAL = "partial"
GROUP = 8  # rows of tiles that share a column in grouped order
SECOND_ROWS, SECOND_COLUMNS = 16, 128  # tile of the second pass


@dataclass(frozen=True, slots=True)
class Plan:
    """One structural variant. `packed` says which index of a packed weight is fastest: `n`, `k` or none.

    `precision` is the dot's `input_precision`. With `persistent`, `PROGRAMS` programs share the tiles.
    `separate` moves the epilogue to the second pass even without `split_k`.
    """

    precision: str
    packed: str
    order: str
    split_k: int
    persistent: bool
    split_tail: bool
    separate: bool

    @property
    def two_passes(self) -> bool:
        return self.split_k > 1 or self.separate


def write_dot(source: Source, product: Product, plan: Plan) -> None:
    """Tiles of `BLOCK_M x BLOCK_N` on tensor cores."""
    tile = new_tile(source, product, "_kernel")
    kernel = tile.kernel
    for name in ("BLOCK_M", "BLOCK_N"):
        kernel.constant(name)
    batch_places(tile, product)
    with _tiles(tile, product, plan):
        _dot_tile(tile, product, plan)
    source.launch(kernel)
    if plan.two_passes:
        _second_pass(source, product, plan)


def new_tile(source: Source, product: Product, name: str) -> Tile:
    """An empty kernel for this product."""
    kernel = source.kernel(name)
    return Tile(kernel, Emitter(kernel), product.dims)


def batch_places(tile: Tile, product: Product, axis: int = 1) -> Places:
    """Write the index of the product within a batch, which is a program number, and split it."""
    labels = product.terms[0].batch
    if not labels:
        return {}
    tile.kernel.line(f"batch = {tile.kernel.program_id(axis)}")
    return tile.places(labels, "batch", ALONE)


def zeros(kernel: Kernel, product: Product, shape: str) -> tuple[str, ...]:
    """Write one accumulator a term; return their names."""
    names = ("acc",) if len(product.terms) == 1 else tuple(f"acc{i}" for i in range(len(product.terms)))
    for name in names:
        kernel.line(f"{name} = tl.zeros({shape}, tl.float32)")
    return names


@contextmanager
def _tiles(tile: Tile, product: Product, plan: Plan) -> Iterator[None]:
    """Number the tiles: one a program, or a loop over them; sets `pid` and the grid."""
    kernel, first = tile.kernel, product.terms[0]
    blocks = (
        f"triton.cdiv({tile.host(first.rows)}, BLOCK_M) * triton.cdiv({tile.host(first.columns)}, BLOCK_N)"
    )
    sides = [blocks, tile.host(first.batch), str(plan.split_k)]
    kernel.line(f"tiles_m = tl.cdiv({tile.size(first.rows)}, BLOCK_M)")
    kernel.line(f"tiles_n = tl.cdiv({tile.size(first.columns)}, BLOCK_N)")
    if plan.persistent:
        sides[0] = f"min({blocks}, PROGRAMS)"
        kernel.grid = f"({', '.join(sides)})"
        with tile.emitter.loop("for pid in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):"):
            yield
        return
    kernel.grid = f"({', '.join(sides)})"
    kernel.line("pid = tl.program_id(0)")
    yield


def _order(kernel: Kernel, order: str) -> None:
    """Which tile number `pid` is: rows of tiles, columns of tiles, or groups of rows that share a column."""
    if order == "row":
        kernel.line("pid_m = pid // tiles_n\npid_n = pid % tiles_n")
    elif order == "column":
        kernel.line("pid_m = pid % tiles_m\npid_n = pid // tiles_m")
    else:
        kernel.line(f"first_m = pid // ({GROUP} * tiles_n) * {GROUP}")
        kernel.line(f"height = tl.minimum(tiles_m - first_m, {GROUP})")
        kernel.line(f"pid_m = first_m + pid % ({GROUP} * tiles_n) % height")
        kernel.line(f"pid_n = pid % ({GROUP} * tiles_n) // height")


@dataclass(frozen=True, slots=True)
class Sides:
    """Where the operands of a tile are read: places of batch, row and column labels, the masks of rows and
    columns (empty where the indices wrap around instead), and the name of the column index.
    """

    batch: Places
    rows: Places
    columns: Places
    row_mask: str
    column_mask: str
    column: str


def _dot_tile(tile: Tile, product: Product, plan: Plan) -> None:
    kernel, first = tile.kernel, product.terms[0]
    wide = ".to(tl.int64)" if kernel.sizes.wide else ""
    _order(kernel, plan.order)
    kernel.line(f"rm = pid_m{wide} * BLOCK_M + {kernel.arange('BLOCK_M')}")
    kernel.line(f"rn = pid_n{wide} * BLOCK_N + {kernel.arange('BLOCK_N')}")
    sides = _sides(tile, product, plan)
    if product.norm is not None:
        kernel.constant("BLOCK_K")
        places = {**sides.batch, **sides.rows}
        write_statistics(
            tile,
            product.norm,
            tile.size(first.inner),
            lambda place: at(first.lhs_labels, {**places, **dict.fromkeys(first.inner, place)}),
        )
    sums = zeros(kernel, product, "(BLOCK_M, BLOCK_N)")
    walk = _walk(tile, product, plan)
    walk.write(tile.emitter, lambda inside: _multiply(tile, product, plan, sides, sums, inside))
    if plan.two_passes:
        _store_partial(tile, product, sums, plan)
        return
    write_results(tile, product, sums, {**sides.batch, **_result_places(tile, product)})


def _result_places(tile: Tile, product: Product) -> Places:
    """Rows `rm` and columns `rn` of the result, masked."""
    first = product.terms[0]
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    found = tile.places(first.rows, "rm", DOWN, (f"(rm < {rows})[:, None]",))
    return found | tile.places(first.columns, "rn", ACROSS, (f"(rn < {columns})[None, :]",))


def _sides(tile: Tile, product: Product, plan: Plan) -> Sides:
    kernel, first = tile.kernel, product.terms[0]
    batch = tile.places(first.batch, "batch", ALONE)
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    if plan.split_tail:
        kernel.line(f"m = rm % {rows}\nn = rn % {columns}")
        left, right = tile.places(first.rows, "m", DOWN), tile.places(first.columns, "n", ACROSS)
        return Sides(batch, left, right, "", "", "n")
    row_mask, column_mask = f"(rm < {rows})[:, None]", f"(rn < {columns})[None, :]"
    left = tile.places(first.rows, "rm", DOWN, (row_mask,))
    right = tile.places(first.columns, "rn", ACROSS, (column_mask,))
    return Sides(batch, left, right, row_mask, column_mask, "rn")


def _multiply(
    tile: Tile, product: Product, plan: Plan, sides: Sides, sums: tuple[str, ...], inside: str
) -> None:
    """One block of the inner dimension; `inside` keeps `ks` in range, empty where it always is."""
    first = product.terms[0]
    across = (f"({inside})[None, :]",) if inside else ()
    down = (f"({inside})[:, None]",) if inside else ()
    inner = tile.places(first.inner, "ks", ACROSS, across)
    there = at(first.lhs_labels, {**sides.batch, **sides.rows, **inner})
    if product.norm is not None:
        place_normalised(tile, product.norm, there)
    keep = " & ".join(m for m in (sides.row_mask, *across) if m)
    a = tile.operand(first.lhs, there, ("BLOCK_M", "BLOCK_K"), keep)
    keep = " & ".join(m for m in (sides.column_mask, *down) if m)
    for number, (acc, term) in enumerate(zip(sums, product.terms, strict=True)):
        if plan.packed:
            b = _packed(tile, product, number, plan.packed, (sides.column, keep))
        else:
            inner = tile.places(term.inner, "ks", DOWN, down)
            there = at(term.rhs_labels, shifted(term, {**sides.batch, **sides.columns, **inner}))
            b = tile.operand(term.rhs, there, ("BLOCK_K", "BLOCK_N"), keep)
        tile.kernel.line(f'{acc} = tl.dot({a}, {b}, {acc}, input_precision="{plan.precision}")')


def _packed(tile: Tile, product: Product, number: int, fastest: str, where: tuple[str, str]) -> str:
    """Load a tile of weight `number` as `prepare` packed it; `where` is the column index and the mask."""
    index, mask = where
    kernel, term = tile.kernel, product.terms[number]
    pointer = kernel.pointer(f"w{number}")
    inner, columns = tile.size(term.inner), tile.size(term.columns)
    if fastest == "n":
        offset = f"ks[:, None] * {columns} + {index}[None, :]"
    else:
        offset = f"{index}[None, :] * {inner} + ks[:, None]"
    tail = f", mask={mask}, other=0" if mask else ""
    return kernel.assign(f"w{number}_tile", f"tl.load({pointer} + {offset}{tail})")


def _walk(tile: Tile, product: Product, plan: Plan) -> Walk:
    size = tile.size(product.terms[0].inner)
    if plan.split_k == 1:
        return Walk("0", size, size, plan.split_tail)
    kernel = tile.kernel
    kernel.constant("BLOCK_K")
    kernel.line(f"part = tl.cdiv({size}, {plan.split_k} * BLOCK_K) * BLOCK_K")
    kernel.line(f"begin = tl.minimum(tl.program_id(2) * part, {size})")
    kernel.line(f"end = tl.minimum(begin + part, {size})")
    return Walk("begin", "end", size, plan.split_tail)


def write_results(tile: Tile, product: Product, sums: tuple[str, ...], places: Places) -> None:
    """Bias, epilogue and stores of a tile whose sums are complete."""
    for acc, term in zip(sums, product.terms, strict=True):
        tile.finish(term, acc, places)
    graph = tile.kernel.sizes.graph
    tile.emitter.push(graph.nodes)
    for out in graph.outputs:
        if isinstance(out, Ref):
            tile.emitter.store(out.name)


def _partial_offset(tile: Tile, product: Product, split: str) -> str:
    """Where the partial sums of one split begin: `[split, batch, row, column]`."""
    first = product.terms[0]
    area = f"{tile.size(first.rows)} * {tile.size(first.columns)}"
    if not first.batch:
        return f"{split} * ({area})"
    return f"({split} * {tile.size(first.batch)} + batch) * ({area})"


def _store_partial(tile: Tile, product: Product, sums: tuple[str, ...], plan: Plan) -> None:
    kernel, first = tile.kernel, product.terms[0]
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    pointer = kernel.pointer(PARTIAL)
    kernel.line(f"inside = (rm < {rows})[:, None] & (rn < {columns})[None, :]")
    kernel.line(f"spot = rm[:, None] * {columns} + rn[None, :]")
    for number, acc in enumerate(sums):
        split = f"(tl.program_id(2).to(tl.int64) + {number * plan.split_k})"
        kernel.line(
            f"tl.store({pointer} + {_partial_offset(tile, product, split)} + spot, {acc}, mask=inside)"
        )


def _second_pass(source: Source, product: Product, plan: Plan) -> None:
    """Add the partial sums in a fixed order, then bias, epilogue and stores."""
    tile = new_tile(source, product, "_combine")
    kernel, first = tile.kernel, product.terms[0]
    for name, host in (("ROWS", SECOND_ROWS), ("COLUMNS", SECOND_COLUMNS)):
        kernel.constant(name, str(host))
    batch = batch_places(tile, product, axis=2)
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    kernel.line(f"rm = {kernel.program_id(0)} * ROWS + {kernel.arange('ROWS')}")
    kernel.line(f"rn = {kernel.program_id(1)} * COLUMNS + {kernel.arange('COLUMNS')}")
    kernel.line(f"inside = (rm < {rows})[:, None] & (rn < {columns})[None, :]")
    kernel.line(f"spot = rm[:, None] * {columns} + rn[None, :]")
    pointer = kernel.pointer(PARTIAL)
    sums = zeros(kernel, product, "(ROWS, COLUMNS)")
    with tile.emitter.loop(f"for split in range({plan.split_k}):"):
        for number, acc in enumerate(sums):
            split = f"(tl.cast(split, tl.int64) + {number * plan.split_k})"
            offset = _partial_offset(tile, product, split)
            kernel.line(f"{acc} += tl.load({pointer} + {offset} + spot, mask=inside, other=0)")
    write_results(tile, product, sums, {**batch, **_result_places(tile, product)})
    host_rows, host_columns = tile.host(first.rows), tile.host(first.columns)
    sides = (f"triton.cdiv({host_rows}, {SECOND_ROWS})", f"triton.cdiv({host_columns}, {SECOND_COLUMNS})")
    kernel.grid = f"({', '.join((*sides, tile.host(first.batch)))})"
    source.launch(kernel)
