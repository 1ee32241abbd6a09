"""From a decomposition to what is searched and what is run: slots, subgraphs and their order."""

import re
from collections.abc import Iterable
from dataclasses import replace

from mkevolve.data.decomposition import Decomposition, Slot, Subgraph
from mkevolve.data.graph import Graph, Node, Ref
from mkevolve.data.model import CapturedModel
from mkevolve.partition.canonical import Cut, canonical, cut_out, family_id, sharing, subgraph_id
from mkevolve.partition.facts import Facts
from mkevolve.partition.legality import order
from mkevolve.partition.ops import packet
from mkevolve.partition.realize import facts_of, realize

_LONGEST_NAME = 48


def slots_of(
    captured: CapturedModel, decomposition: Decomposition
) -> tuple[tuple[Slot, ...], tuple[Subgraph, ...]]:
    """Return the slots in an order in which they can run, and the distinct subgraphs, first seen first.

    Slots with equal subgraphs share one `Subgraph`; its check variants are the union over the slots, equal
    graphs once, those of later slots named `check_1@slot`. Raises `IllegalPartition` for a cut without order.
    """
    model = realize(captured, decomposition)
    facts = facts_of(model)
    slots: list[Slot] = []
    found: dict[str, Subgraph] = {}
    names: set[str] = set()
    for number in order(facts, decomposition):
        cut = cut_out(facts, decomposition.partitions[number])
        name = _unique(_slot_name(facts, cut), names)
        subgraph = subgraph_of(model, facts, cut)
        known = found.get(subgraph.id)
        found[subgraph.id] = subgraph if known is None else _merged(known, subgraph, name)
        nodes = decomposition.partitions[number]
        slots.append(Slot(name, subgraph.id, nodes, cut.inputs, cut.outputs, subgraph.ops))
    return tuple(slots), tuple(found.values())


def subgraph_of(model: CapturedModel, facts: Facts, cut: Cut) -> Subgraph:
    """The canonical graphs of a cut at every variant of the model, equal ones once."""
    graphs = [(v.name, canonical(facts, v.graph, cut)) for v in model.variants]
    target = graphs[0][1]
    variants = [graphs[0]]
    seen = {target}
    for name, graph in graphs[1:]:
        if graph not in seen:
            seen.add(graph)
            variants.append((name, graph))
    ops = "+".join(_short_ops(n.op for n in target.nodes))
    return Subgraph(
        subgraph_id(target, sharing(facts, cut)), family_id(target), tuple(variants), ops or "copy"
    )


def _merged(known: Subgraph, new: Subgraph, slot: str) -> Subgraph:
    seen = {graph for _, graph in known.variants}
    more = tuple((f"{name}@{slot}", graph) for name, graph in new.checks if graph not in seen)
    return replace(known, variants=(*known.variants, *more), weight=known.weight + 1)


def with_checks_of(known: Subgraph, other: Subgraph) -> Subgraph:
    """The same subgraph with the check variants that it has in another cut as well."""
    seen = {graph for _, graph in known.variants}
    names = {name for name, _ in known.variants}
    more = tuple((_unique(name, names), graph) for name, graph in other.checks if graph not in seen)
    return replace(known, variants=(*known.variants, *more), weight=max(known.weight, other.weight))


def steps(facts: Facts, slots: Iterable[Slot], graph: Graph | None = None) -> tuple[Slot | Node, ...]:
    """Slots in their order, and before each the glue views (nodes of `graph`) that it needs.

    The views that the module returns come last.
    """
    source = {n.name: n for n in (graph or facts.graph).nodes}
    done: set[str] = set()
    found: list[Slot | Node] = []

    def add_views(values: Iterable[str]) -> None:
        for value in values:
            chain = [n for n in _views_to(facts, value) if n not in done]
            found.extend(source[n] for n in chain)
            done.update(chain)

    for slot in slots:
        add_views(slot.inputs)
        found.append(slot)
    add_views(o.name for o in facts.graph.outputs if isinstance(o, Ref))
    return tuple(found)


def _views_to(facts: Facts, value: str) -> list[str]:
    """The glue nodes that make a value from its root, first one first."""
    chain: dict[str, None] = {}
    stack = [value]
    while stack:
        node = facts.producer.get(stack.pop())
        if node is not None and facts.is_view(node):
            chain[node] = None
            stack.extend(facts.nodes[node].reads)
    return sorted(chain, key=lambda n: facts.index[n])


def _short_ops(ops: Iterable[str]) -> Iterable[str]:
    plain = {
        "view",
        "clone",
        "expand",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "t",
        "slice",
        "select",
    }
    names = [packet(op) for op in ops]
    loud = [n for n in names if n not in plain]
    short = {"scaled_dot_product_attention": "sdpa", "_native_batch_norm_legit_no_training": "batch_norm"}
    return [short.get(n, n).strip("_") for n in (loud or names)]


def _slot_name(facts: Facts, cut: Cut) -> str:
    """`conv1_bn1_relu`: the modules whose parameters are used, and the ops that have none."""
    words: list[str] = []
    for name in cut.nodes:
        node = facts.nodes[name]
        modules = [m for r in node.reads if (m := _module_of(facts, r))]
        if modules:
            words += [m for m in modules[:1] if m not in words]
        elif not facts.is_view(name) and name not in facts.identities:
            words.append(*_short_ops([node.op]))
    return _joined(words) or "copy"


def _module_of(facts: Facts, value: str) -> str:
    given = facts.inputs.get(facts.root[value])
    if given is None or given.target is None:
        return ""
    path, _, leaf = given.target.rpartition(".")
    return re.sub(r"\W+", "_", path.replace(".parametrizations", "") or leaf)


def _joined(words: list[str]) -> str:
    """Join words, writing the module path that they share once; long chains keep their ends."""
    merged: list[str] = []
    stem = ""
    for word in words:
        shared = stem and word.startswith(stem)
        merged.append(word[len(stem) :] if shared else word)
        if "_" in word and not shared:
            stem = word[: word.rindex("_") + 1]
    text = re.sub(r"\W+", "_", "_".join(merged))
    if len(text) > _LONGEST_NAME and len(merged) > 2:
        text = f"{merged[0]}_{len(merged) - 2}_ops_{merged[-1]}"
    return text[:_LONGEST_NAME].strip("_")


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def variant_name(subgraph: Subgraph, graph: Graph) -> str:
    """The variant of a subgraph that has this canonical graph; raises KeyError where none has."""
    for name, known in subgraph.variants:
        if known == graph:
            return name
    raise KeyError(f"{subgraph.id} has no such variant")
