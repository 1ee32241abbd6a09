"""The whole module as one subgraph, for a kernel that replaces all of it."""

from collections.abc import Iterable

from mkevolve.data.decomposition import Slot, Subgraph
from mkevolve.data.graph import Ref
from mkevolve.data.model import CapturedModel
from mkevolve.errors import CaptureError
from mkevolve.partition.canonical import Cut
from mkevolve.partition.extract import subgraph_of
from mkevolve.partition.facts import Facts
from mkevolve.partition.ops import Kind
from mkevolve.partition.realize import facts_of


def whole_of(captured: CapturedModel) -> tuple[Slot, Subgraph]:
    """The slot `whole` and its subgraph.

    Inputs are what is used of the module's activations in `forward` order, then of its parameters, buffers
    and constants in export-signature order. Outputs are the tensors that the module returns, with its
    strides; each counts once, and what only passes an input on, or views it, is left out. Raises
    `CaptureError` where nothing is left to compute or where random numbers are drawn.
    """
    facts = facts_of(captured)
    cut = _cut(facts)
    if not cut.outputs:
        raise CaptureError(f"{captured.name} computes nothing: it returns its inputs or views of them")
    refuse_draws(facts, cut.nodes, captured.name)
    subgraph = subgraph_of(captured, facts, cut)
    return Slot("whole", subgraph.id, cut.nodes, cut.inputs, cut.outputs, subgraph.ops), subgraph


def refuse_draws(facts: Facts, nodes: Iterable[str], name: str) -> None:
    """Raise `CaptureError` where one of the nodes draws random numbers: there is nothing to compare with."""
    drawn = next((n for n in nodes if facts.kinds[n] is Kind.RANDOM), None)
    if drawn is not None:
        raise CaptureError(
            f"{name} draws random numbers ({facts.nodes[drawn].op}), which no kernel can be verified against;"
            " verify another subgraph (show=subgraphs lists them)"
        )


def _cut(facts: Facts) -> Cut:
    returned = dict.fromkeys(o.name for o in facts.graph.outputs if isinstance(o, Ref))
    outputs = tuple(o for o in returned if facts.root[o] not in facts.inputs)
    nodes = _needed(facts, outputs)
    read = {r for n in nodes for r in facts.nodes[n].reads}
    inputs = tuple(i.name for i in facts.graph.inputs if i.name in read)
    return Cut(nodes, inputs, outputs)


def _needed(facts: Facts, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes behind some values, views included, in graph order."""
    found: set[str] = set()
    stack = [facts.producer[o] for o in outputs]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(facts.producer[r] for r in facts.nodes[node].reads if r in facts.producer)
    return tuple(sorted(found, key=lambda n: facts.index[n]))
