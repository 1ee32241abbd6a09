"""Kernels of a matrix product: tensor-core tiles, a second pass over partial sums, and plain rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mkevolve.data.graph import Ref
from mkevolve.propose.emit import Emitter
from mkevolve.propose.kernel import Kernel
from mkevolve.propose.ops.matmul_match import Product
from mkevolve.propose.ops.matmul_tile import ACROSS, ALONE, DOWN, Places, Tile, Walk, at
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
    tile = _tile(source, product, "_kernel")
    kernel = tile.kernel
    for name in ("BLOCK_M", "BLOCK_N"):
        kernel.constant(name)
    _batch(tile, product)
    with _tiles(tile, product, plan):
        _dot_tile(tile, product, plan)
    source.launch(kernel)
    if plan.two_passes:
        _second_pass(source, product, plan)


def write_rows(source: Source, product: Product) -> None:
    """One row of the left operand a program against `BLOCK_N` columns: multiply and add, no tensor cores."""
    tile = _tile(source, product, "_kernel")
    kernel, first = tile.kernel, product.terms[0]
    kernel.constant("BLOCK_N")
    batch = _batch(tile, product, axis=2)
    kernel.line(f"row = {kernel.program_id(1)}")
    kernel.line(f"rn = {kernel.program_id(0)} * BLOCK_N + {kernel.arange('BLOCK_N')}")
    columns, inside = tile.size(first.columns), f"rn < {tile.size(first.columns)}"
    kernel.line(f"n = rn % {columns}")
    rows = tile.places(first.rows, "row", ALONE)
    inputs = tile.places(first.columns, "n", DOWN)
    sums = _zeros(kernel, product, "(BLOCK_N, BLOCK_K)")

    def body(mask: str) -> None:
        across = f"({mask})[None, :]" if mask else ""
        down = tile.places(first.inner, "ks", ACROSS, (across,) if across else ())
        value = tile.emitter.pull(first.lhs, at(first.lhs_labels, {**batch, **rows, **down})).cast("float32")
        for acc, term in zip(sums, product.terms, strict=True):
            there = {**batch, **inputs, **down}
            weight = tile.emitter.pull(term.rhs, at(term.rhs_labels, there)).cast("float32")
            text = f"{value} * {weight}"
            kernel.line(f"{acc} += tl.where({across}, {text}, 0)" if across else f"{acc} += {text}")

    Walk("0", tile.size(first.inner), tile.size(first.inner), True).write(tile.emitter, body)
    for acc in sums:
        kernel.line(f"{acc}_row = tl.sum({acc}, 1)")
    results = {**batch, **rows, **tile.places(first.columns, "rn", ALONE, (f"({inside})",))}
    _results(tile, product, tuple(f"{acc}_row" for acc in sums), results)
    sides = (
        f"triton.cdiv({tile.host(first.columns)}, BLOCK_N)",
        tile.host(first.rows),
        tile.host(first.batch),
    )
    kernel.grid = f"({', '.join(sides)})"
    source.launch(kernel)


def _tile(source: Source, product: Product, name: str) -> Tile:
    kernel = source.kernel(name)
    return Tile(kernel, Emitter(kernel), product.dims)


def _batch(tile: Tile, product: Product, axis: int = 1) -> Places:
    labels = product.terms[0].batch
    if not labels:
        return {}
    tile.kernel.line(f"batch = {tile.kernel.program_id(axis)}")
    return tile.places(labels, "batch", ALONE)


def _zeros(kernel: Kernel, product: Product, shape: str) -> tuple[str, ...]:
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


def _dot_tile(tile: Tile, product: Product, plan: Plan) -> None:
    kernel, first = tile.kernel, product.terms[0]
    wide = ".to(tl.int64)" if kernel.sizes.wide else ""
    _order(kernel, plan.order)
    kernel.line(f"rm = pid_m{wide} * BLOCK_M + {kernel.arange('BLOCK_M')}")
    kernel.line(f"rn = pid_n{wide} * BLOCK_N + {kernel.arange('BLOCK_N')}")
    batch = tile.places(first.batch, "batch", ALONE)
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    row_mask, column_mask = f"(rm < {rows})[:, None]", f"(rn < {columns})[None, :]"
    if plan.split_tail:
        kernel.line(f"m = rm % {rows}\nn = rn % {columns}")
        left = tile.places(first.rows, "m", DOWN)
        right = tile.places(first.columns, "n", ACROSS)
        masks, index = ("", ""), "n"
    else:
        left = tile.places(first.rows, "rm", DOWN, (row_mask,))
        right = tile.places(first.columns, "rn", ACROSS, (column_mask,))
        masks, index = (row_mask, column_mask), "rn"
    sums = _zeros(kernel, product, "(BLOCK_M, BLOCK_N)")

    def body(mask: str) -> None:
        across = tuple(f"({mask})[None, :]" for _ in (1,) if mask)
        down = tuple(f"({mask})[:, None]" for _ in (1,) if mask)
        inner = tile.places(first.inner, "ks", ACROSS, across)
        there = at(first.lhs_labels, {**batch, **left, **inner})
        keep = " & ".join(m for m in (masks[0], *across) if m)
        a = tile.operand(first.lhs, there, ("BLOCK_M", "BLOCK_K"), keep)
        keep = " & ".join(m for m in (masks[1], *down) if m)
        for number, (acc, term) in enumerate(zip(sums, product.terms, strict=True)):
            if plan.packed:
                b = _packed(tile, product, number, plan.packed, (index, keep))
            else:
                inner = tile.places(term.inner, "ks", DOWN, down)
                there = at(term.rhs_labels, {**batch, **right, **inner})
                b = tile.operand(term.rhs, there, ("BLOCK_K", "BLOCK_N"), keep)
            kernel.line(f'{acc} = tl.dot({a}, {b}, {acc}, input_precision="{plan.precision}")')

    _walk(tile, product, plan).write(tile.emitter, body)
    if plan.two_passes:
        _store_partial(tile, product, sums, plan)
        return
    results = {**batch, **tile.places(first.rows, "rm", DOWN, (row_mask,))}
    results |= tile.places(first.columns, "rn", ACROSS, (column_mask,))
    _results(tile, product, sums, results)


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


def _results(tile: Tile, product: Product, sums: tuple[str, ...], places: Places) -> None:
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
    tile = _tile(source, product, "_combine")
    kernel, first = tile.kernel, product.terms[0]
    for name, host in (("ROWS", SECOND_ROWS), ("COLUMNS", SECOND_COLUMNS)):
        kernel.constant(name, str(host))
    batch = _batch(tile, product, axis=2)
    rows, columns = tile.size(first.rows), tile.size(first.columns)
    kernel.line(f"rm = {kernel.program_id(0)} * ROWS + {kernel.arange('ROWS')}")
    kernel.line(f"rn = {kernel.program_id(1)} * COLUMNS + {kernel.arange('COLUMNS')}")
    kernel.line(f"inside = (rm < {rows})[:, None] & (rn < {columns})[None, :]")
    kernel.line(f"spot = rm[:, None] * {columns} + rn[None, :]")
    pointer = kernel.pointer(PARTIAL)
    sums = _zeros(kernel, product, "(ROWS, COLUMNS)")
    with tile.emitter.loop(f"for split in range({plan.split_k}):"):
        for number, acc in enumerate(sums):
            split = f"(tl.cast(split, tl.int64) + {number * plan.split_k})"
            offset = _partial_offset(tile, product, split)
            kernel.line(f"{acc} += tl.load({pointer} + {offset} + spot, mask=inside, other=0)")
    results = {**batch, **tile.places(first.rows, "rm", DOWN, (f"(rm < {rows})[:, None]",))}
    results |= tile.places(first.columns, "rn", ACROSS, (f"(rn < {columns})[None, :]",))
    _results(tile, product, sums, results)
    host_rows, host_columns = tile.host(first.rows), tile.host(first.columns)
    sides = (f"triton.cdiv({host_rows}, {SECOND_ROWS})", f"triton.cdiv({host_columns}, {SECOND_COLUMNS})")
    kernel.grid = f"({', '.join((*sides, tile.host(first.batch)))})"
    source.launch(kernel)
