"""Writes the tiles of a matrix product: indices, operand loads, the inner loop, results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mkevolve.propose.emit import ZERO, Coord, Coords, Emitter
from mkevolve.propose.kernel import Kernel
from mkevolve.propose.ops.matmul_terms import Contraction, Labels
from mkevolve.propose.rules import computed, literal
from mkevolve.propose.shapes import Dim, Sizes, is_one
from mkevolve.propose.views import is_view, paren, shift, unravel

Places = dict[str, Coord]
"""Where a tile lies along each label."""

DOWN, ACROSS, ALONE = "[:, None]", "[None, :]", ""
"""How a vector of indices spreads over a tile."""


def label_dims(sizes: Sizes, term: Contraction) -> dict[str, Dim]:
    """Size of every label at every variant."""
    found: dict[str, Dim] = {}
    for value, labels in ((term.lhs, term.lhs_labels), (term.rhs, term.rhs_labels)):
        found.update({x: d for x, d in zip(labels, sizes.shape(value), strict=True) if x})
    return found


@dataclass(frozen=True, slots=True)
class Tile:
    """One kernel that computes tiles of a product. `dims` are the sizes of the labels."""

    kernel: Kernel
    emitter: Emitter
    dims: Mapping[str, Dim]

    def group(self, labels: Labels) -> tuple[Dim, ...]:
        """Sizes of several labels."""
        return tuple(self.dims[x] for x in labels)

    def size(self, labels: Labels) -> str:
        """Kernel text of the product of the sizes of several labels."""
        return self.kernel.size(*self.group(labels))

    def host(self, labels: Labels) -> str:
        """The same as Python text in `run`."""
        return paren(self.kernel.sizes.host(*self.group(labels)))

    def places(self, labels: Labels, index: str, spread: str, mask: tuple[str, ...] = ()) -> Places:
        """Split one index over several labels, the last one fastest; `spread` shapes vectors to the tile."""
        found: Places = {}
        coords = unravel(self.kernel.size, Coord(index, mask), self.group(labels))
        for label, coord in zip(labels, coords, strict=True):
            if coord == ZERO:
                found[label] = ZERO
                continue
            text = coord.text if coord.text.isidentifier() else self.kernel.assign(f"i_{label}", coord.text)
            found[label] = Coord(text + spread, mask)
        return found

    def operand(self, value: str, coords: Coords, shape: tuple[str, str], mask: str) -> str:
        """Load or compute a tile of an operand in its own dtype, zero where `mask` does not hold.

        A loaded tile is zero there already, because `mask` is part of the coordinates.
        """
        stored = self.kernel.sizes.dtype(value)
        term = self.emitter.pull(value, coords, raw=True)
        if is_loaded(self.emitter, value):
            text = term.text
        else:
            text = f"tl.where({mask}, {term.text}, 0)" if mask else term.text
            if computed(stored) != stored:
                text = f"{text}.to(tl.{stored})"
        if not self._is_whole(value, coords):
            text = f"tl.broadcast_to({text}, ({', '.join(shape)}))"
        return text if text.isidentifier() else self.kernel.assign("tile", text)

    def finish(self, term: Contraction, acc: str, places: Places) -> None:
        """Scale, add the bias and place the result of a product whose sum is in `acc`."""
        kernel, emitter = self.kernel, self.emitter
        if term.alpha != 1.0:
            kernel.line(f"{acc} *= {literal(term.alpha)}")
        if term.addend is not None and term.beta != 0.0:
            where = at(term.addend_labels, shifted(term, places))
            added = emitter.pull(term.addend, where).cast("float32")
            kernel.line(f"{acc} += {added if term.beta == 1.0 else f'{literal(term.beta)} * {added}'}")
        emitter.place(term.node, at(term.out_labels, places), acc)

    def _is_whole(self, value: str, coords: Coords) -> bool:
        """Whether a tile of this operand surely has its full shape before any broadcast."""
        if value not in self.emitter.inputs or ZERO in coords:
            return False
        strides = self.kernel.sizes.strides(value)
        return all(any(s) for s in strides) and not any(is_one(d) for d in self.kernel.sizes.shape(value))


def at(labels: Labels, places: Places) -> Coords:
    """Coordinates of a tensor with these labels; a broadcast dimension lies at 0."""
    return tuple(places[x] if x else ZERO for x in labels)


def shifted(term: Contraction, places: Places) -> Places:
    """Places as the right operand and the bias of a part of a product are read at."""
    if term.start == 0:
        return places
    return {x: shift(c, term.start) if x in term.columns else c for x, c in places.items()}


def is_loaded(emitter: Emitter, value: str) -> bool:
    """Whether a value is an input seen through views alone."""
    while value not in emitter.inputs:
        node, _ = emitter.producers[value]
        if not is_view(node):
            return False
        value = node.reads[0]
    return True


@dataclass(frozen=True, slots=True)
class Walk:
    """The loop over the inner dimension of a tile.

    `begin` and `end` bound it (kernel text); `size` is the whole inner size. With `split_tail` whole blocks
    are read without masks and the rest in a second loop, which is not compiled where the size is a known
    multiple of the block; otherwise every block is masked.
    """

    begin: str
    end: str
    size: str
    split_tail: bool

    def write(self, emitter: Emitter, body: Callable[[str], None]) -> None:
        """Write the loops; `body` gets the condition that keeps `ks` in range, empty where it always is."""
        kernel = emitter.kernel
        kernel.constant("BLOCK_K")
        if not self.split_tail:
            with emitter.loop(f"for k in range({self.begin}, {self.end}, BLOCK_K):"):
                self._block(kernel, body, f"ks < {self.end}")
            return
        span = self.end if self.begin == "0" else f"({self.end} - {self.begin})"
        whole = f"{span} // BLOCK_K * BLOCK_K"
        start = whole if self.begin == "0" else f"{self.begin} + {whole}"
        with emitter.loop(f"for k in range({self.begin}, {start}, BLOCK_K):"):
            self._block(kernel, body, "")
        with (
            emitter.loop(f"if {self.size} % BLOCK_K != 0:"),
            emitter.loop(f"for k in range({start}, {self.end}, BLOCK_K):"),
        ):
            self._block(kernel, body, f"ks < {self.end}")

    @staticmethod
    def _block(kernel: Kernel, body: Callable[[str], None], inside: str) -> None:
        kernel.line("ks = k + tl.arange(0, BLOCK_K)")
        body(inside)
