"""Applies the copies and boundary formats of a decomposition to the captured graphs, before they are cut."""

from dataclasses import replace
from functools import lru_cache

from mkevolve.data.decomposition import Copy, Decomposition
from mkevolve.data.graph import Arg, Graph, Node, Ref, TensorSpec, Value
from mkevolve.data.model import CapturedModel
from mkevolve.errors import IllegalPartition
from mkevolve.partition.facts import Facts, survey
from mkevolve.partition.identity import Identity
from mkevolve.partition.layout import strides_of


@lru_cache(maxsize=8)
def _survey(key: Identity[CapturedModel]) -> Facts:
    return survey([v.graph for v in key.item.variants])


def facts_of(captured: CapturedModel) -> Facts:
    """The facts of a captured model, remembered for the models used last."""
    return _survey(Identity(captured))


def realize(captured: CapturedModel, decomposition: Decomposition) -> CapturedModel:
    """Return the model that is cut: nodes recomputed, boundary values in their memory format.

    The result is the same object where the decomposition asks for neither. Raises `IllegalPartition` where a
    copy makes no sense or a view of a value has no strides in its new format.
    """
    if not decomposition.copies and not decomposition.formats:
        return captured
    graphs = [_copied(v.graph, decomposition.copies) for v in captured.variants]
    formats = dict(decomposition.formats)
    if formats:
        facts = survey(graphs)
        graphs = [_formatted(g, facts, formats) for g in graphs]
    variants = tuple(replace(v, graph=g) for v, g in zip(captured.variants, graphs, strict=True))
    return replace(captured, variants=variants)


def _copied(graph: Graph, copies: tuple[Copy, ...]) -> Graph:
    for copy in copies:
        nodes = {n.name: n for n in graph.nodes}
        if copy.node not in nodes or copy.name in nodes:
            raise IllegalPartition(f"known: cannot copy node: {copy.node} as {copy.name}")
        renamed = {v.name: v.name.replace(copy.node, copy.name, 1) for v in nodes[copy.node].outputs}
        twin = replace(
            nodes[copy.node],
            name=copy.name,
            outputs=tuple(Value(renamed[v.name], v.spec) for v in nodes[copy.node].outputs),
        )
        rows: list[Node] = []
        for node in graph.nodes:
            rows.append(_reading(node, renamed) if node.name in copy.consumers else node)
            if node.name == copy.node:
                rows.append(twin)
        graph = replace(graph, nodes=tuple(rows))
    return graph


def _reading(node: Node, renamed: dict[str, str]) -> Node:
    return replace(
        node,
        args=tuple(_renamed(a, renamed) for a in node.args),
        kwargs=tuple((k, _renamed(v, renamed)) for k, v in node.kwargs),
    )


def _renamed(arg: Arg, names: dict[str, str]) -> Arg:
    if isinstance(arg, Ref):
        return Ref(names.get(arg.name, arg.name))
    if isinstance(arg, tuple):
        return tuple(_renamed(a, names) for a in arg)
    return arg


def _formatted(graph: Graph, facts: Facts, formats: dict[str, str]) -> Graph:
    """Give boundary values new strides and work out those of the views that share their memory."""
    specs: dict[str, TensorSpec] = {}
    rows: list[Node] = []
    for node in graph.nodes:
        if facts.is_view(node.name) and facts.root[node.outputs[0].name] in formats:
            found = _view_specs(node, specs)
        else:
            found = tuple(_restrided(v, formats.get(v.name)) for v in node.outputs)
        outputs = tuple(Value(v.name, s) for v, s in zip(node.outputs, found, strict=True))
        specs.update((v.name, v.spec) for v in outputs)
        rows.append(replace(node, outputs=outputs))
    return replace(graph, nodes=tuple(rows))


def _restrided(value: Value, layout: str | None) -> TensorSpec:
    if layout is None:
        return value.spec
    name = "channels_last" if layout == "channels_last" else "contiguous_format"
    return replace(value.spec, stride=strides_of(value.spec.shape, name))


def _view_specs(node: Node, specs: dict[str, TensorSpec]) -> tuple[TensorSpec, ...]:
    import torch

    from mkevolve.reference import run_node

    env = {
        name: torch.empty_strided(
            specs[name].shape, specs[name].stride, dtype=getattr(torch, specs[name].dtype), device="meta"
        )
        for name in node.reads
    }
    try:
        results = run_node(node, env, torch.device("meta"))
    except RuntimeError as error:
        raise IllegalPartition(
            f"formats: {node.name} cannot view its input in that format: {error}"
        ) from None
    return tuple(
        TensorSpec(tuple(t.shape), v.spec.dtype, tuple(t.stride()))
        for t, v in zip(results, node.outputs, strict=True)
    )
