"""Depthwise convolutions: an output channel reads one input channel; there is no matrix product."""

from dataclasses import dataclass
from math import prod

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.propose.emit import Coord, Emitter, Kernel
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.conv_design import round_up
from mkevolve.propose.ops.conv_match import CONVOLUTIONS, Conv, ConvProblem, match_conv
from mkevolve.propose.ops.conv_pack import fold_lines
from mkevolve.propose.ops.conv_tile import (
    Run,
    coordinates,
    define_output,
    four,
    linear,
    pixel_count,
    plane_size,
    reach,
    store_result,
)
from mkevolve.propose.shapes import Dim, Sizes, power_of_two
from mkevolve.propose.source import Source

UNROLLED_TAPS = 25
PATCH_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """A 2-d tile: `across` (its second side) is `channels` or `pixels`; the other of both runs down it.

    With `patch` the pixels are a rectangle of one image, else consecutive ones. `taps` says how they are
    walked: `unrolled` (one load a tap in the code), `rows` (a loop over rows, unrolled along them) or `loop`.
    """

    across: str
    patch: bool
    taps: str

    def run(self, shift: str = "") -> Run:
        """How the pixels lie, where they are no patch."""
        return Run(shift, self.side("pixels"), batch=self.across == "channels")

    def side(self, name: str) -> str:
        """Text that spreads a vector over pixels or channels to the tile."""
        return "[None, :]" if name == self.across else "[:, None]"


class DepthwiseFamily(Family[ConvProblem]):
    """conv1d and conv2d with as many groups as input channels, any kernel, stride, padding and dilation."""

    def match(self, subgraph: Subgraph) -> ConvProblem | None:
        if not any(n.op in CONVOLUTIONS for n in subgraph.target.nodes):
            return None
        problem = match_conv(subgraph)
        return problem if len(problem.convs) == 1 and problem.convs[0].is_depthwise else None

    def choices(self, match: ConvProblem, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        conv, values = match.convs[0], match.graph.values()
        channels_last = values[conv.source].spec.stride[1] == 1 and conv.ci > 1
        small = conv.window.taps <= UNROLLED_TAPS
        table: dict[str, tuple[Setting, ...]] = {
            "across": ("channels", "pixels") if channels_last else ("pixels", "channels"),
            "taps": ("unrolled", "loop") if small else ("loop", "unrolled"),
        }
        if min(conv.window.size) > 1:
            table["taps"] = ("unrolled", "rows", "loop") if small else ("rows", "loop", "unrolled")
        if conv.spatial == 2:
            table["tile"] = ("flat", "patch")
        return table

    def render(self, match: ConvProblem, point: Point) -> str | None:
        tile = Tile(str(point["across"]), point.get("tile") == "patch", str(point["taps"]))
        sizes, conv = Sizes(match.subgraph), match.convs[0]
        define_output(sizes, conv, match.result)
        blocks = _blocks(match, tile)
        source = Source(sizes, _doc(match, tile), blocks)
        _prepare(match, source, max(int(b) for b in blocks["BLOCK_C"]))
        kernel = source.kernel("_depthwise")
        _write(match, tile, Emitter(kernel))
        source.launch(kernel)
        return source.render()


def _blocks(match: ConvProblem, tile: Tile) -> dict[str, tuple[Setting, ...]]:
    """Options of every tunable; about a thousand outputs a program, or four thousand with channels across."""
    shape = match.graph.values()[match.result].spec.shape
    pixels, channels = prod(shape[2:]), shape[1]
    table: dict[str, tuple[Setting, ...]]
    if tile.across == "channels":
        wide = min(64, power_of_two(channels))
        table = {
            "BLOCK_P": (64, 16, 32),
            "BLOCK_C": tuple(dict.fromkeys((wide, max(wide // 2, 8), min(2 * wide, power_of_two(channels))))),
        }
    else:
        long = min(1024, max(16, power_of_two(pixels)))
        planes = max(1, 1024 // long)
        table = {
            "BLOCK_P": tuple(dict.fromkeys((long, max(16, long // 2), max(16, long // 4)))),
            "BLOCK_C": tuple(dict.fromkeys((planes, 2 * planes, max(1, planes // 2)))),
        }
    if tile.patch:
        table["BLOCK_W"] = (PATCH_WIDTH, 2 * PATCH_WIDTH)
    return {**table, "num_warps": (4, 8)}


def _prepare(match: ConvProblem, source: Source, block: int) -> None:
    """Weights become `[taps, channels]` in fp32, as they are few, with zero columns to a whole block."""
    conv = match.convs[0]
    width = round_up(conv.co, block)
    pad = f"(0, {width - conv.co})"
    lines = fold_lines(conv, "c0", into_weight=True)
    lines.append(f"weight = c0_w.reshape({conv.co}, {conv.window.taps}).t()")
    lines.append(f"weight = torch.nn.functional.pad(weight, {pad}).float().contiguous()")
    lines.append(f"shift = torch.nn.functional.pad(c0_bias, {pad}).float().contiguous()")
    around = {r for n in (*match.epilogue, *match.prologue(conv)) for r in n.reads}
    kept = [i.name for i in match.graph.params if i.name in around]
    source.prepare(lines, ("weight", "shift", *kept))


def _write(match: ConvProblem, tile: Tile, emit: Emitter) -> None:
    kernel, conv = emit.kernel, match.convs[0]
    _place(match, tile, emit)
    down, across = ("BLOCK_C", "BLOCK_P") if tile.across == "pixels" else ("BLOCK_P", "BLOCK_C")
    kernel.line(f"acc = tl.zeros(({down}, {across}), tl.float32)")
    rows, columns = conv.window.size
    if tile.taps == "rows":
        with emit.loop(f"for row in range({rows}):"), emit.loop(f"for along in tl.static_range({columns}):"):
            _add_tap(match, tile, emit, f"(row * {columns} + along)")
    else:
        count = "tl.static_range" if tile.taps == "unrolled" else "range"
        with emit.loop(f"for tap in {count}({rows * columns}):"):
            _add_tap(match, tile, emit, "tap")
    if conv.norm or conv.bias:
        kernel.line(f"acc += tl.load({kernel.pointer('shift')} + c){tile.side('channels')}")
    n, c, oh, ow = _coords(tile, "oh", "ow", ("rows",), ("channel",))
    coords = coordinates(n, c, oh, ow, conv.spatial)
    store_result(emit, match, coords, None if tile.patch else tile.run())


def _add_tap(match: ConvProblem, tile: Tile, emit: Emitter, tap: str) -> None:
    kernel = emit.kernel
    value = _input(match, tile, emit)
    at = f"{kernel.pointer('weight')} + {tap} * {kernel.scalar('width', 'weight.stride(0)')} + c"
    kernel.line(f"acc += {value} * tl.load({at}){tile.side('channels')}")


def _place(match: ConvProblem, tile: Tile, emit: Emitter) -> None:
    """Write `n`, `c`, `oh`, `ow` of the outputs, and which of them exist (`rows`, `channel`)."""
    kernel = emit.kernel
    dims = four(emit.sizes, match.result)
    n, channels, oh, ow = (kernel.size(d) for d in dims)
    for name in ("BLOCK_P", "BLOCK_C", *(("BLOCK_W",) if tile.patch else ())):
        kernel.constant(name)
    host = [_paren(emit.sizes.host(d)) for d in dims]
    planes = tile.across == "pixels"
    whole = emit.sizes.host(*(dims[2:] if planes else (dims[0], *dims[2:])))
    kernel.grid = f"({' * '.join(_tiles(tile, host, whole, 'triton'))},)"
    pixels = "" if tile.patch else plane_size(kernel, dims) if planes else pixel_count(kernel, dims)
    kernel.line(f"pid = {kernel.program_id()}")
    kernel.line(f"tiles = {_tiles(tile, [n, channels, oh, ow], pixels, 'tl')[0]}")
    kernel.line(f"lane = {kernel.arange('BLOCK_P')}")
    if planes:
        kernel.line("area = pid % tiles")
        kernel.line(f"line = pid // tiles * BLOCK_C + {kernel.arange('BLOCK_C')}")
        kernel.line(f"channel = line < {n} * {channels}")
        kernel.line(f"n = line // {channels}")
        kernel.line(f"c = line % {channels}")
    else:
        kernel.line(f"blocks = tl.cdiv({channels}, BLOCK_C)")
        kernel.line(f"c = pid % blocks * BLOCK_C + {kernel.arange('BLOCK_C')}")
        kernel.line(f"channel = c < {channels}")
        kernel.line("area = pid // blocks % tiles")
    if tile.patch:
        kernel.line(f"oh = area // tl.cdiv({ow}, BLOCK_W) * (BLOCK_P // BLOCK_W) + lane // BLOCK_W")
        kernel.line(f"ow = area % tl.cdiv({ow}, BLOCK_W) * BLOCK_W + lane % BLOCK_W")
        kernel.line(f"rows = (oh < {oh}) & (ow < {ow})")
    else:
        _run_of_pixels(planes, kernel, pixels, dims)
    if tile.across == "channels" and tile.patch:
        kernel.line("n = lane * 0 + pid // blocks // tiles")


def _run_of_pixels(planes: bool, kernel: Kernel, pixels: str, dims: tuple[Dim, ...]) -> None:
    """Write the place of consecutive pixels, of one image or of all."""
    name, columns = "pixel" if planes else "m", kernel.size(dims[3])
    kernel.line(f"{name} = area * BLOCK_P + lane")
    kernel.line(f"rows = {name} < {pixels}")
    if not planes:
        plane = plane_size(kernel, dims)
        kernel.line(f"n = m // {plane}")
        kernel.line(f"pixel = m % {plane}")
    kernel.line(f"oh = pixel // {columns}")
    kernel.line(f"ow = pixel % {columns}")


def _tiles(tile: Tile, sizes: list[str], pixels: str, module: str) -> list[str]:
    """Text of the number of tiles over pixels, then of the other factors of the grid.

    `pixels` counts those of an image, or of the batch where a tile goes on to the next image.
    """
    n, channels, oh, ow = sizes
    planes = tile.across == "pixels"
    lines = f"{n} * {channels}" if planes else channels
    factors = [f"{module}.cdiv({lines}, BLOCK_C)"]
    if tile.patch:
        area = f"{module}.cdiv({oh}, BLOCK_P // BLOCK_W) * {module}.cdiv({ow}, BLOCK_W)"
        return [area, *factors] if planes else [area, *factors, n]
    return [f"{module}.cdiv({pixels}, BLOCK_P)", *factors]


def _paren(text: str) -> str:
    return f"({text})" if " " in text else text


def _coords(
    tile: Tile, rows: str, columns: str, pixel: tuple[str, ...], channel: tuple[str, ...], c: str = "c"
) -> tuple[Coord, Coord, Coord, Coord]:
    """Batch, channel, row and column over the tile; `pixel` and `channel` are masks of its two sides."""
    p, q = tile.side("pixels"), tile.side("channels")
    whole = tuple(f"{m}{p}" for m in pixel)
    planes = tuple(f"{m}{q}" for m in channel)
    batch = Coord(f"n{q}", planes) if tile.across == "pixels" else Coord(f"n{p}", whole)
    return batch, Coord(f"{c}{q}", planes), Coord(f"{rows}{p}", whole), Coord(f"{columns}{p}", whole)


def _input(match: ConvProblem, tile: Tile, emit: Emitter) -> str:
    """Write the load of what one tap reads; return its text in fp32, zero outside the input."""
    kernel, conv = emit.kernel, match.convs[0]
    _, _, height, width = (kernel.size(d) for d in four(emit.sizes, conv.source))
    tests = []
    steps = ("row", "along") if tile.taps == "rows" else ("", "")
    for axis, (name, at, size) in enumerate((("ih", "oh", height), ("iw", "ow", width))):
        kernel.line(f"{name} = {reach(conv.window, axis, at, step=steps[axis])}")
        if conv.window.padded(axis):
            tests += [f"({name} >= 0)", f"({name} < {size})"]
    kernel.line(f"inside = {' & '.join(['rows', *tests])}")
    n, c, h, w = _coords(tile, "ih", "iw", ("inside",), ("channel",), _channel(conv))
    coords = coordinates(n, c, h, w, conv.spatial)
    if conv.source in emit.inputs:
        emit.linear = linear(emit, conv.source, coords, "x_at", _run(match, tile, emit, steps))
        return emit.pull(conv.source, coords).text
    value = emit.pull(conv.source, coords).cast("float32")
    # What precedes the convolution may turn the zeros that were loaded outside into something else.
    return f"tl.where(inside{tile.side('pixels')}, {value}, 0.0)" if tests else value


def _run(match: ConvProblem, tile: Tile, emit: Emitter, steps: tuple[str, str]) -> Run | None:
    """How the pixels lie in the input of one tap; None where they are not consecutive."""
    conv = match.convs[0]
    size = four(emit.sizes, conv.source)
    if tile.patch or conv.window.stride != (1, 1) or size[2:] != four(emit.sizes, match.result)[2:]:
        return None
    row, column = (reach(conv.window, axis, "0", step=steps[axis]) for axis in (0, 1))
    return tile.run(f" + ({row}) * {emit.kernel.size(size[3])} + {column}")


def _channel(conv: Conv) -> str:
    """Input channel of output channel `c`."""
    several = conv.co // conv.ci
    return "c" if several == 1 else f"(c // {several})"


def _doc(match: ConvProblem, tile: Tile) -> str:
    conv = match.convs[0]
    size = "x".join(str(n) for n in conv.window.size)
    parts = [f"depthwise conv {size} over {conv.ci} channels"] + ["folded batch norm"] * (
        conv.norm is not None
    )
    tail = [n.op.split(".")[1] for n in match.epilogue]
    if tail:
        parts.append("then " + ", ".join(tail))
    shape = "rectangles of pixels" if tile.patch else "runs of pixels"
    return f"{', '.join(parts)}: {tile.across} across the tile, {shape}, taps: {tile.taps}."
