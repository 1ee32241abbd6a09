"""Row reductions with what surrounds them: norms, softmax, sums, means, extremes, over any dimensions."""

from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Node, Ref
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import ZERO, Coord, Coords, Emitter, Linear, is_pointwise
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.reducers import REDUCERS, Domain, Reduction
from mkevolve.propose.ops.statistics import Rows, column_mask
from mkevolve.propose.shapes import Dim, Sizes, is_one, power_of_two
from mkevolve.propose.source import Source
from mkevolve.propose.views import View, is_view, push_view, reshape, unravel

WHOLE_LIMIT = 32768
"""Longest row that is tried in registers, in elements."""
PROGRAMS = 256
"""Programs that keep a large chip busy."""
WHOLE_BEST = 8192
"""Longest row for which registers are the best guess."""


@dataclass(frozen=True, slots=True)
class ReductionMatch:
    """Reductions over the same rows. `kept` and `reduced` are dimensions of the domain, slowest first."""

    sizes: Sizes
    ops: str
    nodes: tuple[Node, ...]
    domain: Domain
    kept: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def source(self) -> str:
        """The first reduction's operand, whose shape is the domain's."""
        return self.nodes[0].reads[0]

    @property
    def length(self) -> Dim:
        return self.sizes.product(*(self.domain.dims[d] for d in self.reduced))

    @property
    def height(self) -> Dim:
        return self.sizes.product(*(self.domain.dims[d] for d in self.kept))

    @property
    def along(self) -> bool:
        """Whether a row runs along the fastest dimension in memory."""
        wide = [d for d in (*self.kept, *self.reduced) if not is_one(self.domain.dims[d])]
        return not wide or min(wide, key=lambda d: _stride(self.sizes, self, d)) in self.reduced


class ReductionFamily(Family[ReductionMatch]):
    """One program takes some rows; what is pointwise before and after the reductions happens on the way.

    `row=registers` reads a row once. `two_pass` reads it in blocks: once for each sum or maximum, and once
    more for a full-size result. `online` makes do with one pass for a variance or a softmax.
    """

    def match(self, subgraph: Subgraph) -> ReductionMatch | None:
        graph = subgraph.target
        nodes = tuple(n for n in graph.nodes if n.op in REDUCERS)
        if not nodes:
            return None
        for node in graph.nodes:
            if node not in nodes and not is_pointwise(node):
                raise ProposalError(f"{node.op} beside {nodes[0].op}")
        sizes = Sizes(subgraph)
        domain = REDUCERS[nodes[0].op].domain(sizes, nodes[0])
        for node in nodes[1:]:
            if REDUCERS[node.op].domain(sizes, node) != domain:
                raise ProposalError(f"{node.op} over other rows than {nodes[0].op}")
        match = ReductionMatch(sizes, subgraph.ops, nodes, domain, (), ())
        order = sorted(range(len(domain.dims)), key=lambda d: -_stride(sizes, match, d))
        kept = tuple(d for d in order if d not in domain.reduced)
        reduced = tuple(d for d in order if d in domain.reduced)
        return ReductionMatch(sizes, subgraph.ops, nodes, domain, kept, reduced)

    def choices(
        self, match: ReductionMatch, chip: Chip, precision: Precision
    ) -> dict[str, tuple[Setting, ...]]:
        loops = ("two_pass", "online") if any(REDUCERS[n.op].several for n in match.nodes) else ("two_pass",)
        longest = max(match.length)
        if longest > WHOLE_LIMIT:
            return {"row": loops}
        return {"row": ("registers", *loops) if longest <= WHOLE_BEST else (*loops, "registers")}

    def render(self, match: ReductionMatch, point: Point) -> str | None:
        row = str(point["row"])
        whole = row == "registers"
        title = {"registers": "rows in registers", "online": "rows in blocks, one pass for its statistics"}
        source = Source(
            match.sizes, f"{match.ops}, {title.get(row, 'rows in blocks')}.", _tunables(match, whole)
        )
        kernel = source.kernel()
        emitter = Emitter(kernel)
        rows = _tile(emitter, match, whole, row == "online")
        for node in match.nodes:
            _reduce(Reduction(node, rows), emitter)
        _store(match, rows)
        source.launch(kernel)
        return source.render()


def _stride(sizes: Sizes, match: ReductionMatch, d: int) -> float:
    """Where dimension `d` of the domain stands in the memory of the operand (or of its first input)."""
    strides = _domain_strides(sizes, match)
    return strides[d] if strides else -d


def _domain_strides(sizes: Sizes, match: ReductionMatch) -> tuple[float, ...]:
    shape, stride = sizes.shape(match.source), [s[0] for s in sizes.strides(match.source)]
    if match.domain.dims == shape:
        return tuple(s - d * 1e-3 for d, s in enumerate(stride))
    inner = match.domain.dims[2][0]
    full = (stride[0], stride[1] * inner, stride[1], *stride[2:])
    return tuple(s - d * 1e-3 for d, s in enumerate(full))


def _tunables(match: ReductionMatch, whole: bool) -> dict[str, tuple[Setting, ...]]:
    length, height = power_of_two(match.length[0]), match.height[0]
    if whole:
        longest = power_of_two(max(match.length))
        best = _spread(max(1, (1024 if match.along else 4096) // length), height)
        rows = [
            r for r in (best, best * 2, best * 4, best // 2, 1) if 1 <= r <= max(1, WHOLE_BEST // longest)
        ]
        return {"ROWS": tuple(dict.fromkeys(rows)), "num_warps": _warps(length * rows[0])}
    if match.along:
        block = min(length, 2048)
        blocks = dict.fromkeys(b for b in (block, block // 2, block * 2) if 16 <= b <= max(length, 16))
        return {"ROWS": (1, 2, 4), "BLOCK": tuple(blocks) or (block,), "num_warps": _warps(block)}
    best = max(_spread(64, height), 16)
    block = min(length, 4096 // best)
    blocks = dict.fromkeys((block, max(block // 2, 1), max(block // 4, 1)))
    return {"ROWS": (best, best * 2, max(best // 2, 16)), "BLOCK": tuple(blocks), "num_warps": (4, 8)}


def _spread(rows: int, height: int) -> int:
    """Rows a program, fewer where that leaves processors without a program."""
    while rows > 1 and height < rows * PROGRAMS:
        rows //= 2
    return rows


def _warps(elements: int) -> tuple[Setting, ...]:
    best = min(max(elements // 512, 1), 16)
    best = 1 << (best.bit_length() - 1)
    best = max(best, 2)
    return tuple(dict.fromkeys((best, min(best * 2, 32), max(best // 2, 1))))


def _tile(emitter: Emitter, match: ReductionMatch, whole: bool, one_pass: bool) -> Rows:
    kernel, dims = emitter.kernel, match.domain.dims
    kept, reduced = [dims[d] for d in match.kept], [dims[d] for d in match.reduced]
    height, length = kernel.size(*kept), kernel.size(*reduced)
    kernel.constant("ROWS")
    host = kernel.sizes.host(*reduced)
    kernel.constant("BLOCK", f"triton.next_power_of_2({host})" if whole else None)
    kernel.line(f"r = ({kernel.program_id()} * ROWS + {kernel.arange('ROWS')})[:, None]")
    if whole:
        kernel.line(f"c = {kernel.arange('BLOCK')}[None, :]")
    kernel.grid = f"(triton.cdiv({kernel.sizes.host(*kept)}, ROWS),)"
    emitter.lane = Coord("r", (f"(r < {height})",))
    outer = unravel(kernel.size, emitter.lane, tuple(kept))
    column = Coord("c", (column_mask(length),))
    inner = unravel(kernel.size, column, tuple(reduced))
    by_dim = {**dict(zip(match.kept, outer, strict=True)), **dict(zip(match.reduced, inner, strict=True))}
    named = tuple(
        c if c.text in ("0", "r", "c") else Coord(emitter.define(f"i{d}", c.text), c.mask)
        for d, c in sorted(by_dim.items())
    )
    shape = match.sizes.shape(match.source)
    coords = reshape(kernel.size, named, dims, shape)
    strides = _linear(match)
    if strides is not None:
        mask = (*emitter.lane.mask, *column.mask)
        emitter.linear = Linear(coords, strides, emitter.define("i", f"r * {length} + c"), mask)
    held = tuple(ZERO if d in match.reduced else c for d, c in enumerate(named))
    return Rows(emitter, coords, held, match.domain.reduced, length, whole, one_pass)


def _linear(match: ReductionMatch) -> tuple[Dim, ...] | None:
    """Strides of the domain when numbered row after row; None where the operand's shape has no such."""
    order, dims = (*match.kept, *match.reduced), match.domain.dims
    if dims != match.sizes.shape(match.source):
        if order != tuple(range(len(dims))):
            return None
        dims = match.sizes.shape(match.source)
        order = tuple(range(len(dims)))
    strides: dict[int, Dim] = {}
    step = match.sizes.number(1)
    for d in reversed(order):
        strides[d] = step
        step = match.sizes.product(step, dims[d])
    return tuple(strides[d] for d in range(len(dims)))


def _reduce(call: Reduction, emitter: Emitter) -> None:
    rule = REDUCERS[call.node.op]
    if rule.norm is not None:
        emitter.supply(call.node.outputs[0].name, rule.norm(call))
    if rule.write is not None:
        for value, text in zip(call.node.outputs, rule.write(call), strict=False):
            emitter.place(value.name, call.rows.row_coords(value.name), text)


def _store(match: ReductionMatch, rows: Rows) -> None:
    """Results along rows first, then the full-size ones while sweeping over the columns."""
    emitter = rows.emitter
    places = _places(match, rows)
    full = []
    for out in match.sizes.graph.outputs:
        if not isinstance(out, Ref):
            raise ProposalError(f"output {out!r} is not a tensor")
        coords = _where(match, rows, places, out.name)
        if any(rows.column_mask in c.mask for c in coords):
            full.append((out.name, coords))
        else:
            emitter.store(out.name, coords)
    if full:
        with rows.sweep():
            for value, coords in full:
                emitter.store(value, coords)


def _places(match: ReductionMatch, rows: Rows) -> dict[str, Coords]:
    """Coordinates of everything that follows from the operand of the first reduction, as far as it goes."""
    places = {match.source: rows.coords}
    for node in match.sizes.graph.nodes:
        for number, value in enumerate(node.outputs):
            if node in match.nodes:
                full = REDUCERS[node.op].norm is not None and number == 0
                places[value.name] = rows.coords if full else rows.row_coords(value.name)
            elif (coords := _follow(node, value.name, places, rows)) is not None:
                places[value.name] = coords
    return places


def _follow(node: Node, value: str, places: dict[str, Coords], rows: Rows) -> Coords | None:
    """Where the result of a view or pointwise node lies; None where its operands do not say."""
    sizes = rows.emitter.sizes
    if not is_view(node):
        shape = sizes.shape(value)
        return next((places[r] for r in node.reads if r in places and sizes.shape(r) == shape), None)
    if node.reads[0] not in places:
        return None
    try:
        return push_view(View(node, sizes, rows.emitter.kernel.size), places[node.reads[0]])
    except ProposalError:
        return None  # not one to one: found by its shape, or not at all


def _where(match: ReductionMatch, rows: Rows, places: dict[str, Coords], value: str) -> Coords:
    if value in places:
        return places[value]
    if match.sizes.shape(value) == match.sizes.shape(match.source):
        return rows.coords
    raise ProposalError(f"{value} has another shape than the operand of {match.nodes[0].op}")
