"""The attention kernel: a block of queries against all keys with a running softmax.

The method is that of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), in the tiled
form of Dao et al., "FlashAttention" (2022).
"""

import math
from dataclasses import dataclass

from mkevolve.data.graph import Ref
from mkevolve.propose.emit import ZERO, Coord, Coords, Emitter
from mkevolve.propose.kernel import Kernel
from mkevolve.propose.ops.attention_match import Attention, Labelled
from mkevolve.propose.ops.matmul_tile import Places, Tile, at
from mkevolve.propose.shapes import is_one, power_of_two
from mkevolve.propose.source import Source
from mkevolve.propose.views import unravel

LOG2E = 1.0 / math.log(2.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """One structural variant. With `split` whole blocks of keys are read without masks before the rest."""

    precision: str
    split: bool
    base_two: bool
    order: str


class AttentionKernel:
    """Writes the kernel of one variant."""

    def __init__(self, source: Source, match: Attention, plan: Plan) -> None:
        self.source, self.match, self.plan = source, match, plan
        self.kernel: Kernel = source.kernel("_attention")
        self.emitter = Emitter(self.kernel)
        self.tile = Tile(self.kernel, self.emitter, {})
        self.depth, self.width = (power_of_two(max(n, 16)) for n in (match.depth, match.width))
        self.columns = self.kernel.size(match.columns)

    def write(self) -> None:
        """Write the kernel, its epilogue and its launch."""
        kernel, match = self.kernel, self.match
        for name in ("BLOCK_M", "BLOCK_N"):
            kernel.constant(name)
        self._programs()
        self.query_rows = Coord("rm[:, None]", (f"(rm < {kernel.size(match.rows)})[:, None]",))
        feature = self._feature("rd", match.depth, self.depth, "[None, :]")
        query = self._coords("query", self.query_rows, feature)
        keep = " & ".join(self.query_rows.mask + feature.mask)
        self.query = self.tile.operand(match.query, query, ("BLOCK_M", str(self.depth)), keep)
        kernel.line('top = tl.full((BLOCK_M,), float("-inf"), tl.float32)')
        kernel.line("total = tl.zeros((BLOCK_M,), tl.float32)")
        kernel.line(f"acc = tl.zeros((BLOCK_M, {self.width}), tl.float32)")
        self._loops()
        self._finish()

    def _programs(self) -> None:
        """Index vectors of one block of queries, and the grid."""
        kernel, match, host = self.kernel, self.match, self.source.sizes.host
        blocks, heads = f"triton.cdiv({host(match.rows)}, BLOCK_M)", host(*match.lead)
        if self.plan.order == "heads":
            kernel.grid, axes = f"({heads}, {blocks})", (1, 0)
        else:
            kernel.grid, axes = f"({blocks}, {heads})", (0, 1)
        kernel.line(f"block = tl.program_id({axes[0]})")
        if self.plan.order == "down":
            kernel.line("block = tl.num_programs(0) - 1 - block")
        kernel.line(f"head = {kernel.program_id(axes[1])}")
        wide = ".to(tl.int64)" if kernel.sizes.wide else ""
        kernel.line(f"rm = block{wide} * BLOCK_M + {kernel.arange('BLOCK_M')}")
        kernel.line(f"rd = {kernel.arange(str(self.depth))}")
        if self.width != self.depth:
            kernel.line(f"rv = {kernel.arange(str(self.width))}")
        found = unravel(kernel.size, Coord("head"), match.lead)
        self.lead = tuple(c if c == ZERO else Coord(kernel.assign("i_head", c.text)) for c in found)

    def _feature(self, name: str, size: int, block: int, spread: str) -> Coord:
        mask = (f"({name} < {size}){spread}",) if size != block else ()
        return Coord(f"{name}{spread}", mask)

    @property
    def _value_vector(self) -> str:
        return "rd" if self.width == self.depth else "rv"

    def _loops(self) -> None:
        kernel, emitter, match = self.kernel, self.emitter, self.match
        if match.causal:
            kernel.line(f"last = tl.minimum({self.columns}, (block + 1) * BLOCK_M)")
            kernel.line(f"whole = tl.minimum({self.columns}, block * BLOCK_M) // BLOCK_N * BLOCK_N")
            last, whole = "last", "whole"
        else:
            last, whole = self.columns, f"{self.columns} // BLOCK_N * BLOCK_N"
        if not self.plan.split:
            with emitter.loop(f"for j in range(0, {last}, BLOCK_N):"):
                self._block(masked=True)
            return
        with emitter.loop(f"for j in range(0, {whole}, BLOCK_N):"):
            self._block(masked=False)
        loop = f"for j in range({whole}, {last}, BLOCK_N):"
        if match.causal:
            with emitter.loop(loop):
                self._block(masked=True)
            return
        with emitter.loop(f"if {self.columns} % BLOCK_N != 0:"), emitter.loop(loop):
            self._block(masked=True)

    def _block(self, masked: bool) -> None:
        """One block of keys and values; `masked` where some of its columns may not count."""
        kernel, match = self.kernel, self.match
        kernel.line(f"cols = j + {kernel.arange('BLOCK_N')}")
        inside = f"cols < {self.columns}"
        across: tuple[str, ...] = (f"({inside})[None, :]",) if masked else ()
        down: tuple[str, ...] = (f"({inside})[:, None]",) if masked else ()
        columns = Coord("cols[None, :]", across)
        feature = self._feature("rd", match.depth, self.depth, "[:, None]")
        keep = " & ".join((*across, *feature.mask))
        key = self._coords("key", columns, feature)
        k_tile = self.tile.operand(match.key, key, (str(self.depth), "BLOCK_N"), keep)
        scores = f'tl.dot({self.query}, {k_tile}, input_precision="{self.plan.precision}")'
        folded = self.plan.base_two and not match.is_additive and match.labelled is None
        if match.labelled is None:
            z = kernel.assign("z", f"{scores} * {match.scale * (LOG2E if folded else 1.0)!r}")
            self._mask(z, columns)
        else:
            z = self._logits(match.labelled, kernel.assign("z", scores), columns)
        if masked:
            kept = f"({inside})[None, :]" + (" & (cols[None, :] <= rm[:, None])" if match.causal else "")
            kernel.line(f'{z} = tl.where({kept}, {z}, float("-inf"))')
        self._update(z, folded)
        values = self._feature(self._value_vector, match.width, self.width, "[None, :]")
        value = self._coords("value", Coord("cols[:, None]", down), values)
        keep = " & ".join((*down, *values.mask))
        v_tile = self.tile.operand(match.value, value, ("BLOCK_N", str(self.width)), keep)
        probabilities = "p" if match.dtype == "float32" else f"p.to(tl.{match.dtype})"
        kernel.line(
            f"acc = tl.dot({probabilities}, {v_tile}, acc * rescale[:, None], "
            f'input_precision="{self.plan.precision}")'
        )

    def _logits(self, labelled: Labelled, z: str, columns: Coord) -> str:
        """What the graph makes of the scores before its softmax."""
        scores, emitter = labelled.scores, self.emitter
        places = self._labels(labelled) | {scores.rows[0]: self.query_rows, scores.columns[0]: columns}
        self.tile.finish(scores, z, places)
        text = emitter.pull(labelled.logits, at(scores.out_labels, places)).cast("float32")
        return self.kernel.assign("logits", text)

    def _mask(self, z: str, columns: Coord) -> None:
        match, kernel = self.match, self.kernel
        if match.mask is None:
            return
        shape = kernel.sizes.shape(match.mask)
        full = (*self.lead, self.query_rows, columns)
        tail = full[len(full) - len(shape) :]
        coords = tuple(ZERO if is_one(d) else c for d, c in zip(shape, tail, strict=True))
        term = self.emitter.pull(match.mask, coords)
        if match.is_additive:
            kernel.line(f"{z} += {term.cast('float32')}")
        else:
            kernel.line(f'{z} = tl.where({term.text}, {z}, float("-inf"))')

    def _update(self, z: str, folded: bool) -> None:
        """Running maximum and sum; a row without any key so far keeps weight 0 instead of NaN."""
        kernel = self.kernel
        kernel.line(f"new = tl.maximum(top, tl.max({z}, 1))")
        base = "new"
        if self.match.mask is not None or self.match.labelled is not None:
            kernel.line('base = tl.where(new == float("-inf"), 0.0, new)')
            base = "base"
        function = "tl.exp2" if self.plan.base_two else "tl.exp"
        factor = f" * {LOG2E!r}" if self.plan.base_two and not folded else ""
        kernel.line(f"p = {_exponential(function, f'{z} - {base}[:, None]', factor)}")
        kernel.line(f"rescale = {_exponential(function, f'top - {base}', factor)}")
        kernel.line("total = total * rescale + tl.sum(p, 1)\ntop = new")

    def _labels(self, labelled: Labelled) -> Places:
        return dict(zip(labelled.scores.batch, self.lead, strict=True))

    def _coords(self, operand: str, vector: Coord, feature: Coord) -> Coords:
        """Coordinates of an operand or the result: `vector` along rows or columns, `feature` in a head."""
        labelled = self.match.labelled
        if labelled is None:
            lead = self._key_lead() if operand in ("key", "value") else self.lead
            return (*lead, vector, feature)
        scores, values = labelled.scores, labelled.values
        labels, row, column = {
            "query": (scores.lhs_labels, scores.rows[0], scores.inner[0]),
            "key": (scores.rhs_labels, scores.columns[0], scores.inner[0]),
            "value": (values.rhs_labels, scores.columns[0], values.columns[0]),
            "result": (values.out_labels, scores.rows[0], values.columns[0]),
        }[operand]
        return at(labels, self._labels(labelled) | {row: vector, column: feature})

    def _key_lead(self) -> Coords:
        """Leading coordinates of key and value: shared heads, and dimensions of size 1 that broadcast."""
        match = self.match
        shape = self.kernel.sizes.shape(match.key)[:-2]
        found = []
        for axis, (dim, coord) in enumerate(zip(shape, self.lead, strict=True)):
            if is_one(dim):
                found.append(ZERO)
            elif match.share > 1 and axis == len(shape) - 1:
                found.append(Coord(f"{coord.text} // {match.share}"))
            else:
                found.append(coord)
        return tuple(found)

    def _finish(self) -> None:
        kernel, emitter, match = self.kernel, self.emitter, self.match
        if match.mask is not None:
            kernel.line("total = tl.where(total == 0.0, 1.0, total)")
        kernel.line("acc = acc / total[:, None]")
        feature = self._feature(self._value_vector, match.width, self.width, "[None, :]")
        emitter.place(match.result, self._coords("result", self.query_rows, feature), "acc")
        single = ((self.query_rows, is_one(match.rows)), (feature, match.width == 1))
        emitter.sides = tuple(side for side, alone in single if alone)
        graph = kernel.sizes.graph
        emitter.push(graph.nodes)
        for out in graph.outputs:
            if isinstance(out, Ref):
                emitter.store(out.name)
        self.source.launch(kernel)


def _exponential(function: str, text: str, factor: str) -> str:
    return f"{function}(({text}){factor})" if factor else f"{function}({text})"
