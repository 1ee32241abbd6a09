"""Where one program of a convolution works: its rows (output pixels), its columns (output channels)."""

from dataclasses import dataclass

from mkevolve.data.graph import Ref
from mkevolve.propose.emit import ZERO, Coord, Coords, Emitter, Kernel, Linear
from mkevolve.propose.kernel import identifier
from mkevolve.propose.ops.conv_design import PATCH_WIDTHS, Blocks, Design, Term
from mkevolve.propose.ops.conv_match import Conv, ConvProblem, Window
from mkevolve.propose.shapes import Dim, Sizes, is_one


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be written: the problem at one design, with the sizes of its tensors."""

    sizes: Sizes
    problem: ConvProblem
    design: Design
    terms: tuple[Term, ...]
    blocks: Blocks

    @property
    def output(self) -> tuple[Dim, ...]:
        """Batch, channels, rows, columns of the result; a 1-d convolution has one row."""
        return four(self.sizes, self.problem.result)

    @property
    def channels(self) -> int:
        """Output channels of one group."""
        return self.output[1][0] // self.groups

    @property
    def groups(self) -> int:
        return self.terms[0].packing.groups

    @property
    def columns(self) -> int:
        """Padded output channels of all groups, as weights and biases are packed."""
        return self.groups * self.terms[0].packing.columns

    def input(self, term: Term) -> tuple[Dim, ...]:
        return four(self.sizes, term.conv.source)

    @property
    def ragged(self) -> bool:
        """Whether a tile can reach beyond the output channels of a group."""
        return any(self.channels % block for block in self.blocks.columns)

    def workspace(self, term: Term) -> str:
        """Name of the channels-last copy of a term's input."""
        return f"packed_x{self.terms.index(term)}"

    def repacked(self, term: Term) -> bool:
        """A lone tap reads its input once, so that a copy does not pay."""
        return self.design.repack and term.conv.window.taps > 1


def four(sizes: Sizes, value: str) -> tuple[Dim, ...]:
    """Batch, channels, rows, columns of a value; with one spatial dimension there is one row."""
    shape = sizes.shape(value)
    return shape if len(shape) == 4 else (*shape[:2], sizes.number(1), shape[2])


def coordinates(n: Coord, c: Coord, rows: Coord, columns: Coord, spatial: int) -> Coords:
    """The coordinates of a value with `spatial` dimensions behind its channels."""
    return (n, c, rows, columns) if spatial == 2 else (n, c, columns)


def define_output(sizes: Sizes, conv: Conv, result: str) -> None:
    """Say how the sizes of the result follow from those of the convolution's input."""
    window, output, source = conv.window, four(sizes, result), four(sizes, conv.source)
    for axis, name in ((0, "OH"), (1, "OW")):
        if is_one(output[2 + axis]):
            continue
        slack = window.pad[axis] + window.tail[axis] - window.dilation[axis] * (window.size[axis] - 1) - 1
        text = f"{sizes.host(source[2 + axis])} {'+' if slack >= 0 else '-'} {abs(slack)}"
        sizes.define(output[2 + axis], name, f"({text}) // {window.stride[axis]} + 1")


def reach(window: Window, axis: int, at: str, fused: bool = False, step: str = "") -> str:
    """Input row (axis 0) or column (1) that a tap reads for output row `at`.

    `step` is the tap's row (column), taken of `tap` by default. `fused` says that it runs along the second
    side of the tile: the text is then 2-d.
    """
    start = at if window.stride[axis] == 1 else f"{at} * {window.stride[axis]}"
    if window.pad[axis]:
        start = f"{start} - {window.pad[axis]}"
    if fused:
        start = f"({start})[:, None]"
    if window.size[axis] == 1:
        return start
    if not step and window.size[1 - axis] == 1:
        step = "tap"
    step = step or (f"tap // {window.size[1]}" if axis == 0 else f"tap % {window.size[1]}")
    step = step if window.dilation[axis] == 1 else f"{step} * {window.dilation[axis]}"
    return f"{start} + ({step})[None, :]" if fused else f"{start} + {step}"


def check_design(job: Job) -> str | None:
    """Say why the choices of a design exclude each other; None where they do not."""
    design = job.design
    if design.split > 1 and (len(job.terms) > 1 or design.programs):
        return "split-K takes one convolution and a program a tile"
    if not design.fold and len(job.terms) > 1:
        return "one accumulator cannot scale two convolutions apart"
    if design.order != "channels" and column_tiles(job) == "1":
        return "one column tile has one order"
    if design.patch and min(PATCH_WIDTHS) > min(job.blocks.rows):
        return "the tile has fewer rows than a patch has columns"
    if design.repack and not any(job.repacked(t) for t in job.terms):
        return "a lone tap is not repacked"
    return None


def host_pixels(job: Job) -> str:
    """Host text of the number of rows of the matrix product."""
    return job.sizes.host(job.output[0], job.output[2], job.output[3])


def host_text(text: str) -> str:
    """Kernel text of a tile count as host text."""
    return text.replace("tl.cdiv", "triton.cdiv")


def row_tiles(job: Job, kernel: Kernel) -> tuple[str, str]:
    """Kernel and host text of the number of row tiles."""
    kernel.constant("BLOCK_M")
    n, _, oh, ow = (kernel.size(d) for d in job.output)
    if not job.design.patch:
        pixels = pixel_count(kernel, job.output)
        return f"tl.cdiv({pixels}, BLOCK_M)", f"triton.cdiv({host_pixels(job)}, BLOCK_M)"
    kernel.constant("BLOCK_W")
    host = [job.sizes.host(d) for d in job.output]
    text = "{0} * {1}cdiv({2}, BLOCK_M // BLOCK_W) * {1}cdiv({3}, BLOCK_W)"
    return text.format(n, "tl.", oh, ow), text.format(host[0], "triton.", host[2], host[3])


def column_tiles(job: Job) -> str:
    """Kernel text of the number of column tiles; "1" where every option of BLOCK_N covers all channels."""
    if job.channels <= min(job.blocks.columns):
        return str(job.groups)
    tiles = f"tl.cdiv({job.channels}, BLOCK_N)"
    return tiles if job.groups == 1 else f"{job.groups} * {tiles}"


def flat_rows(kernel: Kernel, dims: tuple[Dim, ...], tile: str, block: str) -> None:
    """Write the pixel (batch, -, rows, columns are `dims`) of every row: consecutive ones of the batch."""
    pixels, plane = pixel_count(kernel, dims), plane_size(kernel, dims)
    columns = kernel.size(dims[3])
    kernel.line(f"m = {tile} * {block} + {kernel.arange(block)}")
    kernel.line(f"rows = m < {pixels}")
    kernel.line(f"n = m // {plane}")
    kernel.line(f"pixel = m % {plane}")
    kernel.line(f"oh = pixel // {columns}")
    kernel.line(f"ow = pixel % {columns}")


def pixel_count(kernel: Kernel, dims: tuple[Dim, ...]) -> str:
    """Kernel text of the number of pixels of the batch.

    As an argument of its own its divisibility is known, and with it which addresses are neighbours.
    """
    return kernel.scalar("pixels", kernel.sizes.host(dims[0], dims[2], dims[3]))


def plane_size(kernel: Kernel, dims: tuple[Dim, ...]) -> str:
    """Kernel text of the number of pixels of one image."""
    return kernel.scalar("plane", kernel.sizes.host(dims[2], dims[3]))


def patch_rows(job: Job, kernel: Kernel) -> None:
    """Write the output pixel of every row: a rectangle of one image, whose taps overlap in the cache."""
    _, _, oh, ow = (kernel.size(d) for d in job.output)
    kernel.line(f"lane = {kernel.arange('BLOCK_M')}")
    kernel.line(f"across = tl.cdiv({ow}, BLOCK_W)")
    kernel.line(f"down = tl.cdiv({oh}, BLOCK_M // BLOCK_W)")
    kernel.line("n = lane * 0 + tile_m // (across * down)")
    kernel.line("oh = tile_m // across % down * (BLOCK_M // BLOCK_W) + lane // BLOCK_W")
    kernel.line("ow = tile_m % across * BLOCK_W + lane % BLOCK_W")
    kernel.line(f"rows = (oh < {oh}) & (ow < {ow})")


def column_index(job: Job, kernel: Kernel, tile: str) -> None:
    """`column` counts in the packed weights (all groups), `co` in the result."""
    kernel.constant("BLOCK_N")
    if job.groups == 1:
        kernel.line(f"column = {tile} * BLOCK_N + {kernel.arange('BLOCK_N')}")
        kernel.line("co = column")
        if job.ragged:
            kernel.line(f"cols = co < {job.channels}")
        return
    width = job.terms[0].packing.columns
    per_group = "1" if job.channels <= min(job.blocks.columns) else f"tl.cdiv({job.channels}, BLOCK_N)"
    kernel.line(f"group = {tile} // {per_group}")
    kernel.line(f"inner = {tile} % {per_group} * BLOCK_N + {kernel.arange('BLOCK_N')}")
    kernel.line(f"column = group * {width} + inner")
    kernel.line(f"co = group * {job.channels} + inner")
    if job.ragged:
        kernel.line(f"cols = inner < {job.channels}")


@dataclass(frozen=True, slots=True)
class Run:
    """Says that one side of a tile holds consecutive pixels of a tensor, from `pixel` plus `shift` on.

    With `batch` they go on from one image to the next, and `m` counts them over all images.
    """

    shift: str = ""
    side: str = "[:, None]"
    batch: bool = True


def linear(emit: Emitter, value: str, coords: Coords, name: str, run: Run | None = None) -> Linear:
    """The offset of a tile with what varies along its first side added up first, once a row of the tile.

    Where the pixels of a run are evenly spaced, one multiplication does for all their dimensions.
    """
    kernel = emit.kernel
    parts, rest = ([], tuple(range(len(coords)))) if run is None else _evenly(emit, value, run)
    for axis in sorted(rest, key=lambda a: not coords[a].text.endswith("[:, None]")):
        if is_one(emit.sizes.shape(value)[axis]):
            continue
        text = coords[axis].text if coords[axis].text.endswith("]") else f"({coords[axis].text})"
        parts.append(_times(text, kernel.stride(value, axis)))
    emit.define(name, " + ".join(parts) or "0")
    return Linear(coords, emit.sizes.strides(value), name)


def _evenly(emit: Emitter, value: str, run: Run) -> tuple[list[str], tuple[int, ...]]:
    """Offsets along evenly spaced pixels, and the axes that they do not cover."""
    shape = emit.sizes.shape(value)
    if len(shape) != 4 or (is_one(shape[2]) and is_one(shape[3])):
        return [], tuple(range(len(shape)))
    n, _, h, w = shape
    strides = emit.sizes.strides(value)
    row = emit.sizes.product(strides[3], w)
    if not _spaced(h, strides[2], row):
        return [], tuple(range(len(shape)))
    step = emit.kernel.stride(value, 3)
    if run.batch and _spaced(n, strides[0], emit.sizes.product(row, h)):
        return [_times(_spread("m", run), step)], (1,)
    return [_times(_spread("pixel", run), step)], (0, 1)


def _spread(name: str, run: Run) -> str:
    return f"({name}{run.shift}){run.side}" if run.shift else f"{name}{run.side}"


def _spaced(dim: Dim, stride: Dim, wanted: Dim) -> bool:
    """Whether a dimension has a stride at every variant where it has more than one element."""
    return all(d == 1 or s == t for d, s, t in zip(dim, stride, wanted, strict=True))


def _times(text: str, factor: str) -> str:
    return text if factor == "1" else f"{text} * {factor}"


def store_result(emit: Emitter, problem: ConvProblem, coords: Coords, run: Run | None) -> None:
    """Write what follows the result of the convolutions, which is in `acc` at `coords`, and the stores.

    `run` says that the tile holds consecutive pixels of the result.
    """
    outputs = [o.name for o in problem.graph.outputs if isinstance(o, Ref)]
    shape = emit.sizes.shape(problem.result)
    mask = tuple(dict.fromkeys(m for c in coords for m in c.mask))
    emit.sides = tuple(c for d, c in zip(shape, coords, strict=True) if is_one(d) and c.text.endswith("]"))
    coords = tuple(ZERO if is_one(d) else c for d, c in zip(shape, coords, strict=True))
    emit.place(problem.result, coords, "acc", "float32")
    if emit.sizes.shape(outputs[0]) == shape:
        emit.kernel.pointer(outputs[0], host=f"out_{identifier(outputs[0])}")
        emit.linear = linear(emit, outputs[0], coords, "at", run)
    emit.push(problem.epilogue)
    for value in outputs:
        emit.store(value, mask=mask)
