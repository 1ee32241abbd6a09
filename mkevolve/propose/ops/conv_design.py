"""Structural choices and block sizes of an implicit-GEMM convolution."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from mkevolve.data.graph import ITEMSIZE
from mkevolve.propose.ops.conv_match import Conv, ConvProblem
from mkevolve.propose.ops.conv_pack import Packing
from mkevolve.propose.shapes import power_of_two

Options = tuple[int, ...]
SHARED_BYTES = 227 * 1024
PATCH_WIDTHS: Options = (16, 8)


@dataclass(frozen=True, slots=True)
class Design:
    """One point of the table of structural choices; `precision` is None for 16-bit operands.

    `order` names what varies fastest from one program to the next: `channels`, `pixels` or, in groups of
    eight row tiles, `grouped`. `programs` is the number of persistent programs, 0 for one a tile.
    """

    fused_taps: bool = False
    patch: bool = False
    order: str = "channels"
    split: int = 1
    programs: int = 0
    repack: bool = False
    fold: bool = True
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One of the summed convolutions: its weights' layout and the step sizes over its inner dimension."""

    conv: Conv
    packing: Packing
    fused: bool
    channels: int  # of one group of the input


@dataclass(frozen=True, slots=True)
class Blocks:
    """Options of every tunable, defaults first."""

    rows: Options
    columns: Options
    inner: Options
    warps: Options
    stages: Options

    @property
    def table(self) -> dict[str, Options]:
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
        return dict(zip(names, (self.rows, self.columns, self.inner, self.warps, self.stages), strict=True))


def terms(problem: ConvProblem, design: Design) -> tuple[tuple[Term, ...], Blocks]:
    """Lay the weights out and choose block sizes for the target's sizes."""
    values = problem.graph.values()
    dtype = values[problem.convs[0].source].spec.dtype
    groups = problem.convs[0].groups
    planar = any(values[c.source].spec.stride[1] != 1 for c in problem.convs)
    shape = values[problem.result].spec.shape
    pixels, columns = prod(shape) // shape[1], _columns(shape[1] // groups, dtype, design)
    inner = _inner(problem.convs, design, dtype)
    across = tiles(shape[1] // groups, columns[0]) * groups
    # One address an element (no vectors along channels) takes registers: more threads share them.
    warps = (8, 4) if planar and not design.repack else (4, 8)
    blocks = _blocks(pixels, columns, inner, dtype, across, warps)
    if design.patch or len(columns) > 2:
        blocks = replace(blocks, rows=blocks.rows[:2])  # spaces of at most 64 are enumerated
    return tuple(_term(c, design, columns, inner) for c in problem.convs), blocks


def fuses(conv: Conv, design: Design) -> bool:
    """Whether a step of the inner loop takes channels of several taps."""
    return design.fused_taps and conv.window.taps > 1


def round_up(n: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not below `n`."""
    return -(-n // unit) * unit


def _term(conv: Conv, design: Design, columns: Options, inner: Options) -> Term:
    channels, taps = conv.ci // conv.groups, conv.window.taps
    fused = fuses(conv, design)
    per_tap = channels if fused else round_up(channels, max(inner))
    rows = round_up(taps * per_tap, max(inner))
    width = round_up(conv.co // conv.groups, max(columns))
    return Term(conv, Packing(conv.groups, taps, per_tap, rows, width), fused, channels)


def tiles(n: int, block: int) -> int:
    """How many blocks cover n elements."""
    return -(-n // block)


def _columns(channels: int, dtype: str, design: Design) -> Options:
    whole = power_of_two(max(channels, 16))
    if whole <= 64:
        return (whole,)
    options = (128, 64, 256) if channels >= 256 and ITEMSIZE[dtype] == 2 else (128, 64)
    if design.precision == "tf32x3":
        options = (64, 128)  # the split operands lie in registers
    return tuple(sorted(options, key=lambda b: (round_up(channels, b) > 1.34 * channels, options.index(b))))


def _inner(convs: Iterable[Conv], design: Design, dtype: str) -> Options:
    sums = [(c.window.taps if fuses(c, design) else 1) * (c.ci // c.groups) for c in convs]
    options = (64, 32) if ITEMSIZE[dtype] == 2 else (32, 64)
    largest = max(16, max(power_of_two(n) for n in sums))
    fitting = tuple(b for b in options if b <= largest) or (largest,)
    # A step that is mostly padding is a later guess than a short step without.
    return tuple(sorted(fitting, key=lambda b: sum(round_up(n, b) for n in sums) > 1.2 * sum(sums)))


def _blocks(pixels: int, columns: Options, inner: Options, dtype: str, across: int, warps: Options) -> Blocks:
    narrow = ITEMSIZE[dtype] == 2
    rows: Options = (128, 64, 256) if narrow else (128, 256, 64)
    stages: Options = (3, 2, 4) if narrow else (2, 3)
    if not narrow:
        warps = (8, 4)
        rows = (256, 128, 64) if columns[0] <= 64 else rows
    # Fewer tiles than processors leave some idle: halve the rows then.
    small = [r for r in (*rows, 32, 16) if r <= max(16, power_of_two(pixels))]
    busy = [r for r in small if r >= 64 and tiles(pixels, r) * across >= 128]
    first = busy[0] if busy else max((r for r in small if r <= 64), default=16)
    rest = tuple(r for r in small if r != first and (r >= 32 or first <= 32))[:2]
    if first <= 64:
        warps = tuple(sorted(warps))
    size = ITEMSIZE[dtype] * (first * inner[0] + inner[0] * columns[0])
    stages = tuple(sorted(stages, key=lambda s: size * s > SHARED_BYTES))
    count = 3 if len(columns) == 1 else 2
    return Blocks((first, *rest), columns, inner, warps, stages[:count])
