"""A matrix product without tensor cores, for few rows: each row is a program of its own."""

from mkevolve.propose.ops.matmul_kernels import batch_places, new_tile, write_results, zeros
from mkevolve.propose.ops.matmul_match import Product
from mkevolve.propose.ops.matmul_tile import ACROSS, ALONE, DOWN, Walk, at, shifted
from mkevolve.propose.source import Source


def write_rows(source: Source, product: Product) -> None:
    """One row of the left operand a program against `BLOCK_N` columns: multiply and add, no tensor cores."""
    tile = new_tile(source, product, "_kernel")
    kernel, first = tile.kernel, product.terms[0]
    kernel.constant("BLOCK_N")
    batch = batch_places(tile, product, axis=2)
    kernel.line(f"row = {kernel.program_id(1)}")
    kernel.line(f"rn = {kernel.program_id(0)} * BLOCK_N + {kernel.arange('BLOCK_N')}")
    columns, inside = tile.size(first.columns), f"rn < {tile.size(first.columns)}"
    kernel.line(f"n = rn % {columns}")
    rows = tile.places(first.rows, "row", ALONE)
    inputs = tile.places(first.columns, "n", DOWN)
    sums = zeros(kernel, product, "(BLOCK_N, BLOCK_K)")

    def body(mask: str) -> None:
        across = f"({mask})[None, :]" if mask else ""
        down = tile.places(first.inner, "ks", ACROSS, (across,) if across else ())
        value = tile.emitter.pull(first.lhs, at(first.lhs_labels, {**batch, **rows, **down})).cast("float32")
        for acc, term in zip(sums, product.terms, strict=True):
            there = shifted(term, {**batch, **inputs, **down})
            weight = tile.emitter.pull(term.rhs, at(term.rhs_labels, there)).cast("float32")
            text = f"{value} * {weight}"
            kernel.line(f"{acc} += tl.where({across}, {text}, 0)" if across else f"{acc} += {text}")

    Walk("0", tile.size(first.inner), tile.size(first.inner), True).write(tile.emitter, body)
    for acc in sums:
        kernel.line(f"{acc}_row = tl.sum({acc}, 1)")
    results = {**batch, **rows, **tile.places(first.columns, "rn", ALONE, (f"({inside})",))}
    write_results(tile, product, tuple(f"{acc}_row" for acc in sums), results)
    sides = (
        f"triton.cdiv({tile.host(first.columns)}, BLOCK_N)",
        tile.host(first.rows),
        tile.host(first.batch),
    )
    kernel.grid = f"({', '.join(sides)})"
    source.launch(kernel)
