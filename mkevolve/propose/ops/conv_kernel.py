"""The jit function of an implicit-GEMM convolution, and the launch that repacks its input before it."""

from mkevolve.propose.emit import Coord, Emitter, Kernel
from mkevolve.propose.ops.conv_design import Term
from mkevolve.propose.ops.conv_finish import finish
from mkevolve.propose.ops.conv_tile import (
    Job,
    Run,
    column_index,
    column_tiles,
    coordinates,
    flat_rows,
    host_text,
    linear,
    patch_rows,
    pixel_count,
    reach,
    row_tiles,
)
from mkevolve.propose.shapes import power_of_two

REPACK_PIXELS = 64


def write_main(job: Job, kernel: Kernel) -> None:
    """The matrix product; with split-K its partial sums, else everything behind it too."""
    emit = Emitter(kernel)
    tiles_m, grid_m = row_tiles(job, kernel)
    tiles_n = column_tiles(job)
    tiles = grid_m if tiles_n == "1" else f"{grid_m} * {host_text(tiles_n)}"
    programs = f"min({tiles}, {job.design.programs})" if job.design.programs else tiles
    kernel.grid = f"({programs}, {job.design.split})" if job.design.split > 1 else f"({programs},)"
    if job.design.programs:
        total = tiles_m if tiles_n == "1" else f"{tiles_m} * {tiles_n}"
        with emit.loop(f"for pid in range({kernel.program_id()}, {total}, tl.num_programs(0)):"):
            _tile(job, emit, tiles_m, tiles_n)
    else:
        kernel.line(f"pid = {kernel.program_id()}")
        _tile(job, emit, tiles_m, tiles_n)


def write_repack(job: Job, kernel: Kernel, term: Term) -> None:
    """Copies an input, with what precedes the convolution applied, to a dense channels-last workspace."""
    emit = Emitter(kernel)
    dims, source, channels = job.input(term), term.conv.source, term.conv.ci
    block = min(64, power_of_two(channels))
    kernel.grid = (
        f"(triton.cdiv({job.sizes.host(dims[0], *dims[2:])}, {REPACK_PIXELS}), {-(-channels // block)})"
    )
    flat_rows(kernel, dims, kernel.program_id(), str(REPACK_PIXELS))
    kernel.line(f"c = tl.program_id(1) * {block} + tl.arange(0, {block})")
    kernel.line(f"cols = c < {channels}")
    n, h, w = (Coord(f"{name}[:, None]", ("rows[:, None]",)) for name in ("n", "oh", "ow"))
    coords = coordinates(n, Coord("c[None, :]", ("cols[None, :]",)), h, w, term.conv.spatial)
    if source in emit.inputs:
        emit.linear = linear(emit, source, coords, "x_at", Run())
    value = emit.pull(source, coords, raw=True).cast(job.sizes.dtype(source))
    at = f"{kernel.pointer(job.workspace(term))} + m[:, None] * {channels} + c[None, :]"
    kernel.line(f"tl.store({at}, {value}, mask=rows[:, None] & cols[None, :])")


def _tile(job: Job, emit: Emitter, tiles_m: str, tiles_n: str) -> None:
    kernel = emit.kernel
    _tile_order(job, kernel, tiles_m, tiles_n)
    if job.design.patch:
        patch_rows(job, kernel)
    else:
        flat_rows(kernel, job.output, "tile_m", "BLOCK_M")
    column_index(job, kernel, "tile_n")
    kernel.line(f"acc = tl.zeros((BLOCK_M, {kernel.constant('BLOCK_N')}), tl.float32)")
    for term in job.terms:
        _accumulate(job, emit, term)
    if job.design.split > 1:
        _, _, oh, ow = (kernel.size(d) for d in job.output)
        row = f"(n * {oh} + oh) * {ow} + ow" if job.design.patch else "m"
        pixels = pixel_count(kernel, job.output)
        kernel.line(f"row = ({row}).to(tl.int64) + tl.program_id(1).to(tl.int64) * {pixels}")
        target = f"{kernel.pointer('partial')} + row[:, None] * {job.columns} + column[None, :]"
        kernel.line(f"tl.store({target}, acc, mask=rows[:, None])")
    else:
        finish(job, emit)


def _tile_order(job: Job, kernel: Kernel, tiles_m: str, tiles_n: str) -> None:
    if tiles_n == "1":
        kernel.line("tile_m = pid")
        kernel.line("tile_n = 0")
    elif job.design.order == "channels":
        kernel.line(f"tile_m = pid // ({tiles_n})")
        kernel.line(f"tile_n = pid % ({tiles_n})")
    elif job.design.order == "pixels":
        kernel.line(f"tile_m = pid % ({tiles_m})")
        kernel.line(f"tile_n = pid // ({tiles_m})")
    else:
        kernel.line(f"first = pid // (8 * {tiles_n}) * 8")
        kernel.line(f"height = tl.minimum({tiles_m} - first, 8)")
        kernel.line(f"tile_m = first + pid % (8 * {tiles_n}) % height")
        kernel.line(f"tile_n = pid % (8 * {tiles_n}) // height")


def _accumulate(job: Job, emit: Emitter, term: Term) -> None:
    """The loop over taps and input channels of one convolution."""
    kernel, packing = emit.kernel, term.packing
    kernel.constant("BLOCK_K")
    depth = packing.taps * packing.tap_channels if term.fused else term.channels
    steps = f"tl.cdiv({depth}, BLOCK_K)"
    if not term.fused and packing.taps > 1:
        steps = f"{packing.taps} * {steps}"
    header = f"for i in range({steps}):"
    if job.design.split > 1:
        kernel.line(f"share = tl.cdiv({steps}, {job.design.split})")
        kernel.line("first_step = tl.program_id(1) * share")
        header = f"for i in range(first_step, tl.minimum(first_step + share, {steps})):"
    weights = kernel.pointer(f"packed_w{job.terms.index(term)}")
    group = "" if job.groups == 1 else f"group * {packing.rows * packing.columns} + "
    column = "column" if job.groups == 1 else "inner"
    with emit.loop(header):
        k = _inner_index(kernel, term)
        a = _input_tile(job, emit, term)
        kernel.line(f"b = tl.load({weights} + {group}{k}[:, None] * {packing.columns} + {column}[None, :])")
        precision = f', input_precision="{job.design.precision}"' if job.design.precision else ""
        kernel.line(f"acc = tl.dot({a}, b, acc{precision})")


def _inner_index(kernel: Kernel, term: Term) -> str:
    """Write `tap` and `c` (input channel in the group) of one step; return the row of the weights."""
    packing, lane = term.packing, kernel.arange("BLOCK_K")
    if term.fused:
        kernel.line(f"k = i * BLOCK_K + {lane}")
        kernel.line(f"tap = k // {term.channels}")
        kernel.line(f"c = k % {term.channels}")
        return "k"
    if packing.taps == 1:
        kernel.line(f"c = i * BLOCK_K + {lane}")
        return "c"
    steps = f"tl.cdiv({term.channels}, BLOCK_K)"
    kernel.line(f"tap = i // {steps}")
    kernel.line(f"c = i % {steps} * BLOCK_K + {lane}")
    kernel.line(f"k = tap * {packing.tap_channels} + c")
    return "k"


def _input_tile(job: Job, emit: Emitter, term: Term) -> str:
    """Write the load of one `[BLOCK_M, BLOCK_K]` tile of the input; return its text, zero outside."""
    kernel, conv = emit.kernel, term.conv
    sizes = [kernel.size(d) for d in job.input(term)]
    tests = []
    for axis, (name, at) in enumerate((("ih", "oh"), ("iw", "ow"))):
        kernel.line(f"{name} = {reach(conv.window, axis, at, term.fused)}")
        if conv.window.padded(axis):
            tests += [f"({name} >= 0)", f"({name} < {sizes[2 + axis]})"]
    ragged = _ragged(job, term)
    flat = "rows[:, None]" if term.fused else "rows"
    kernel.line(f"inside = {' & '.join([flat, *tests])}")
    spread = "" if term.fused else "[:, None]"
    mask = (f"inside{spread}", *ragged)
    channel = "c[None, :]" if job.groups == 1 else f"(group * {term.channels} + c)[None, :]"
    place = {"n": "n[:, None]", "c": channel, "h": f"ih{spread}", "w": f"iw{spread}"}
    if job.repacked(term):
        return _workspace_tile(job, kernel, term, mask, place)
    n, c, h, w = (Coord(place[d], mask) for d in "nchw")
    coords = coordinates(n, c, h, w, conv.spatial)
    if conv.source in emit.inputs:
        emit.linear = linear(emit, conv.source, coords, "a_at", _run(job, kernel, term))
        return emit.pull(conv.source, coords, raw=True).text
    value = emit.pull(conv.source, coords).cast(job.sizes.dtype(conv.source))
    if not tests and not ragged:
        return value
    # What precedes the convolution may turn the zeros that were loaded outside into something else.
    return f"tl.where({' & '.join(mask)}, {value}, 0.0).to(tl.{job.sizes.dtype(conv.source)})"


def _run(job: Job, kernel: Kernel, term: Term) -> Run | None:
    """How the rows of a tile lie in the input of one tap; None where they are not consecutive pixels."""
    window, size = term.conv.window, job.input(term)
    if job.design.patch or term.fused or window.stride != (1, 1) or size[2:] != job.output[2:]:
        return None
    if window.taps == 1:
        return Run()
    return Run(f" + ({reach(window, 0, '0')}) * {kernel.size(size[3])} + {reach(window, 1, '0')}")


def _ragged(job: Job, term: Term) -> tuple[str, ...]:
    """Masks of the inner dimension, where some option of BLOCK_K does not divide it."""
    if term.fused:
        depth = term.packing.taps * term.packing.tap_channels
        return () if _divides(job, depth) else (f"(k < {depth})[None, :]",)
    return () if _divides(job, term.channels) else (f"(c < {term.channels})[None, :]",)


def _divides(job: Job, depth: int) -> bool:
    return all(depth % block == 0 for block in job.blocks.inner)


def _workspace_tile(
    job: Job, kernel: Kernel, term: Term, mask: tuple[str, ...], place: dict[str, str]
) -> str:
    _, _, h, w = (kernel.size(d) for d in job.input(term))
    run = _run(job, kernel, term)
    pixel = f"(({place['n']} * {h} + {place['h']}) * {w} + {place['w']})"
    if run is not None:
        pixel = f"(m{run.shift})[:, None]"
    text = f"{kernel.pointer(job.workspace(term))} + {pixel} * {term.conv.ci} + {place['c']}"
    return kernel.assign("a", f"tl.load({text}, mask={' & '.join(mask)}, other=0.0)")
