"""What must be known about a graph before it is cut: which nodes are views, who produces and who reads what.

A view is transparent: whoever reads it reads its *root*, the tensor whose memory it shares. So edges run
between compute nodes only, and a view can be repeated wherever it is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mkevolve.data.graph import Graph, Input, Node, Ref, TensorSpec
from mkevolve.partition.ops import Kind, kind_of


@dataclass(frozen=True, slots=True)
class Facts:
    """`kinds` by node name, `rank` of inputs by their order. `root`, `producer` and `readers` by value name;
    a graph input has no producer.

    `sources` are the distinct roots that a compute node reads, in order; `readers` the compute nodes that
    read a root; `returned` the roots among the graph's outputs. `identities` are nodes whose result equals
    their input in values, dtype and strides, at every variant.
    """

    graph: Graph
    nodes: Mapping[str, Node]
    index: Mapping[str, int]
    inputs: Mapping[str, Input]
    rank: Mapping[str, int]
    specs: Mapping[str, TensorSpec]
    kinds: Mapping[str, Kind]
    identities: frozenset[str]
    producer: Mapping[str, str]
    root: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    returned: frozenset[str]

    def is_view(self, node: str) -> bool:
        return self.kinds[node] is Kind.VIEW

    @property
    def compute(self) -> tuple[str, ...]:
        """Names of the nodes that a decomposition must cover, in graph order."""
        return tuple(n.name for n in self.graph.nodes if self.kinds[n.name] is not Kind.VIEW)

    def parents(self, node: str) -> tuple[str, ...]:
        """The compute nodes whose results a compute node reads."""
        return tuple(self.producer[r] for r in self.sources[node] if r in self.producer)

    def results(self, node: str) -> tuple[str, ...]:
        return tuple(v.name for v in self.nodes[node].outputs)


def survey(graphs: Sequence[Graph]) -> Facts:
    """Collect the facts of a model from its variants' graphs, the target's first.

    A node is a view, or an identity, only if it is one at every variant: the cut is the same for all.
    """
    graph = graphs[0]
    kinds, identities = _agreed(graphs)
    specs = {name: value.spec for name, value in graph.values().items()}
    producer: dict[str, str] = {}
    root = {i.name: i.name for i in graph.inputs}
    sources: dict[str, tuple[str, ...]] = {}
    readers: dict[str, dict[str, None]] = {}
    for node in graph.nodes:
        view = kinds[node.name] is Kind.VIEW
        read = tuple(dict.fromkeys(root[r] for r in node.reads))
        for value in node.outputs:
            producer[value.name] = node.name
            root[value.name] = root[node.reads[0]] if view else value.name
        if not view:
            sources[node.name] = read
            for name in read:
                readers.setdefault(name, {})[node.name] = None
    return Facts(
        graph=graph,
        nodes={n.name: n for n in graph.nodes},
        index={n.name: i for i, n in enumerate(graph.nodes)},
        inputs={i.name: i for i in graph.inputs},
        rank={i.name: n for n, i in enumerate(graph.inputs)},
        specs=specs,
        kinds=kinds,
        identities=identities,
        producer=producer,
        root=root,
        sources=sources,
        readers={name: tuple(nodes) for name, nodes in readers.items()},
        returned=frozenset(root[o.name] for o in graph.outputs if isinstance(o, Ref)),
    )


def _agreed(graphs: Sequence[Graph]) -> tuple[dict[str, Kind], frozenset[str]]:
    kinds: dict[str, Kind] = {}
    identities: set[str] | None = None
    for graph in graphs:
        specs = {name: value.spec for name, value in graph.values().items()}
        same: set[str] = set()
        for node in graph.nodes:
            kind = kind_of(node, specs)
            if kinds.get(node.name, Kind.VIEW) is Kind.VIEW:
                kinds[node.name] = kind
            if _is_identity(node, kind, specs):
                same.add(node.name)
        identities = same if identities is None else identities & same
    return kinds, frozenset(identities or ())


def _is_identity(node: Node, kind: Kind, specs: Mapping[str, TensorSpec]) -> bool:
    if kind not in (Kind.VIEW, Kind.COPY) or len(node.outputs) != 1 or node.op == "aten.as_strided.default":
        return False
    return specs[node.reads[0]] == node.outputs[0].spec
