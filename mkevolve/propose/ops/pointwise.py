"""Pointwise regions: one kernel for each shape of output, flat or in rows."""

from dataclasses import dataclass

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Ref
from mkevolve.data.model import Precision
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import Emitter, is_pointwise
from mkevolve.propose.family import Family, Point
from mkevolve.propose.ops.tiles import Group, fast_dimensions, tile, tile_options, title, tunables
from mkevolve.propose.shapes import Dim, Sizes, dense_order
from mkevolve.propose.source import Source


@dataclass(frozen=True, slots=True)
class PointwiseMatch:
    """A subgraph of pointwise ops and views."""

    sizes: Sizes
    ops: str
    groups: tuple[Group, ...]


class PointwiseFamily(Family[PointwiseMatch]):
    """Chains of pointwise ops with broadcasting, views between them and several outputs.

    `tile=flat` numbers the elements of an output in memory order; `tile=rows_K` makes a 2-D tile whose fast
    side is the K fastest dimensions, so that vectors along it are loaded once.
    """

    def match(self, subgraph: Subgraph) -> PointwiseMatch | None:
        graph = subgraph.target
        if not all(is_pointwise(node) for node in graph.nodes):
            return None
        sizes = Sizes(subgraph)
        made: dict[tuple[tuple[Dim, ...], tuple[int, ...]], list[str]] = {}
        for out in graph.outputs:
            if not isinstance(out, Ref):
                raise ProposalError(f"output {out!r} is not a tensor")
            made.setdefault((sizes.shape(out.name), dense_order(sizes, out.name)), []).append(out.name)
        groups = tuple(Group(tuple(values), order) for (_, order), values in made.items())
        return PointwiseMatch(sizes, subgraph.ops, groups)

    def choices(
        self, match: PointwiseMatch, chip: Chip, precision: Precision
    ) -> dict[str, tuple[Setting, ...]]:
        return {"tile": tile_options(match.sizes, match.groups)}

    def render(self, match: PointwiseMatch, point: Point) -> str | None:
        fast = fast_dimensions(str(point["tile"]))
        source = Source(
            match.sizes, f"{match.ops}, {title(fast)}.", tunables(match.sizes, match.groups, fast)
        )
        for number, group in enumerate(match.groups):
            kernel = source.kernel("_kernel" if len(match.groups) == 1 else f"_kernel_{number}")
            emitter = Emitter(kernel)
            coords = tile(emitter, group, fast)
            for value in group.values:
                emitter.store(value, coords)
            source.launch(kernel)
        return source.render()
