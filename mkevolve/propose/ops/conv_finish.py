"""What follows the matrix product of a convolution: bias, pointwise ops, stores; split-K's reduction."""

from mkevolve.propose.emit import Coord, Emitter, Kernel
from mkevolve.propose.ops.conv_tile import (
    Job,
    Run,
    column_index,
    column_tiles,
    coordinates,
    flat_rows,
    host_pixels,
    host_text,
    store_result,
)

REDUCE_ROWS = 16


def finish(job: Job, emit: Emitter) -> None:
    """Scale, bias, everything behind the convolution, and the stores."""
    kernel, design = emit.kernel, job.design
    if not design.fold and any(t.conv.norm for t in job.terms):
        kernel.line(f"acc = acc * tl.load({kernel.pointer('scale')} + column)[None, :]")
    if any(t.conv.norm or t.conv.bias for t in job.terms):
        kernel.line(f"acc = acc + tl.load({kernel.pointer('shift')} + column)[None, :]")
    rows, cols = ("rows[:, None]",), ("cols[None, :]",) if job.ragged else ()
    n, h, w = (Coord(f"{name}[:, None]", rows) for name in ("n", "oh", "ow"))
    coords = coordinates(n, Coord("co[None, :]", cols), h, w, job.terms[0].conv.spatial)
    patch = job.design.patch and job.design.split == 1
    store_result(emit, job.problem, coords, None if patch else Run())


def write_reduce(job: Job, kernel: Kernel) -> None:
    """Adds the partial sums in a fixed order, then does what follows the convolution."""
    emit = Emitter(kernel)
    block = kernel.constant("BLOCK_N")
    kernel.grid = f"(triton.cdiv({host_pixels(job)}, {REDUCE_ROWS}), {host_text(column_tiles(job))})"
    flat_rows(kernel, job.output, kernel.program_id(), str(REDUCE_ROWS))
    column_index(job, kernel, "tl.program_id(1)")
    kernel.line(f"acc = tl.zeros(({REDUCE_ROWS}, {block}), tl.float32)")
    kernel.line(f"for split in range({job.design.split}):")
    at = f"(m.to(tl.int64) + split * pixels)[:, None] * {job.columns} + column[None, :]"
    kernel.line(f"    acc += tl.load({kernel.pointer('partial')} + {at}, mask=rows[:, None], other=0.0)")
    finish(job, emit)
