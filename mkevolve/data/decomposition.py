"""How a captured model is cut: decompositions, the slots they make and the subgraphs that are searched."""

from dataclasses import dataclass, field

from mkevolve.data.graph import Graph
from mkevolve.data.ids import content_id


@dataclass(frozen=True, slots=True)
class Copy:
    """Recomputation: `node` is repeated as `name`, and `consumers` read the copy. Applied before
    partitioning.
    """

    node: str
    name: str
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Disjoint, convex partitions (node names, in graph order) that cover every compute node.

    A *view* node (its result aliases its input: transpose, select, a reshape that needs no copy) may lie in
    no
    partition: it is glue, which the composition runs as a torch view. `formats` overrides the memory format
    (`contiguous` or `channels_last`) of a boundary value. The id depends on the cut alone, not on its
    history.
    """

    partitions: tuple[tuple[str, ...], ...]
    formats: tuple[tuple[str, str], ...] = ()
    copies: tuple[Copy, ...] = ()
    parent: str | None = None
    mutation: str | None = None

    @property
    def id(self) -> str:
        return content_id(
            "d",
            [
                [list(p) for p in self.partitions],
                [list(f) for f in self.formats],
                [[c.node, c.name, list(c.consumers)] for c in self.copies],
            ],
        )


def placed_id(decomposition: str, place: str) -> str:
    """The id of a decomposition's row: a cut names nodes, which are the same in a model's every dtype and
    size, so what is known of it belongs to one capture in one environment (`place`).
    """
    return content_id("d", [decomposition, place]) if place else decomposition


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in the model where a partition sits.

    `inputs` are value names of the model's graph in the order of the subgraph's inputs (activations, then
    parameters, buffers, constants); `outputs` likewise. `ops` is a short text for people: `conv2d+relu`.
    """

    name: str
    subgraph: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: str


@dataclass(frozen=True, slots=True)
class Subgraph:
    """What is searched: the canonical graph of a partition at every variant, `target` first.

    Canonical names: inputs `x0, x1, ...` (activations) and `p0, p1, ...` (the rest), nodes `n0, n1, ...`
    (outputs of a several-output node: `n3.0`, `n3.1`). Slots with equal ids share one search; the check
    variants are the union over those slots, so their names may carry the slot. `weight` = number of slots.
    """

    id: str
    family: str
    variants: tuple[tuple[str, Graph], ...]
    ops: str
    weight: int = field(default=1, compare=False)

    @property
    def target(self) -> Graph:
        return self.variants[0][1]

    @property
    def checks(self) -> tuple[tuple[str, Graph], ...]:
        return self.variants[1:]
