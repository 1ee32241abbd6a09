"""The canonical graph of a partition, and its `sg_` and `fam_` ids.

Names, the order of independent nodes, spellings of the same op, default arguments and copies of no effect do
not change it, so equal partitions of one model, or of two, meet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mkevolve.data.codec import Json, encode_arg
from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.ids import content_id
from mkevolve.partition.facts import Facts
from mkevolve.partition.identity import Identity
from mkevolve.partition.ops import Kind, packet
from mkevolve.partition.spelling import Call, spell

_KIND_ORDER = {kind: i for i, kind in enumerate(InputKind)}


@dataclass(frozen=True, slots=True)
class Cut:
    """A partition seen from outside: value names of the model's graph in the order of the subgraph's.

    `nodes` are those that the subgraph runs, in its order, with the views between them.
    """

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut_out(facts: Facts, members: Iterable[str]) -> Cut:
    """Find the boundary of a partition.

    Activations come in order of first use, then parameters, buffers and constants in the graph's order. A
    view of nothing but a parameter counts as that parameter.
    """
    inside = {m for m in members if not facts.is_view(m)}
    outputs = tuple(
        value
        for node in sorted(inside, key=lambda n: facts.index[n])
        for value in facts.results(node)
        if value in facts.returned or any(r not in inside for r in facts.readers.get(value, ()))
    )
    nodes = _in_order(facts, inside, outputs)
    own = {v for n in nodes for v in facts.results(n)}
    read = dict.fromkeys(r for n in nodes for r in facts.nodes[n].reads if r not in own)
    activations = [r for r in read if input_kind(facts, r) is InputKind.ACTIVATION]
    rest = sorted(
        (r for r in read if input_kind(facts, r) is not InputKind.ACTIVATION),
        key=lambda r: (_KIND_ORDER[input_kind(facts, r)], facts.rank[facts.root[r]], _position(facts, r)),
    )
    return Cut(nodes, (*activations, *rest), outputs)


def input_kind(facts: Facts, value: str) -> InputKind:
    """What a value is to a partition that reads it."""
    given = facts.inputs.get(facts.root[value])
    return given.kind if given is not None else InputKind.ACTIVATION


def _position(facts: Facts, value: str) -> int:
    return facts.index[facts.producer[value]] if value in facts.producer else -1


def _in_order(facts: Facts, inside: set[str], outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Depth first from the outputs, arguments from left to right: independent of the graph's interleaving.

    A draw of random numbers that nobody reads still moves the generator on.
    """
    done: dict[str, None] = {}
    draws = sorted(n for n in inside if facts.kinds[n] is Kind.RANDOM)
    for last in (*(facts.producer[o] for o in outputs), *draws):
        stack = [(last, False)]
        while stack:
            node, expanded = stack.pop()
            if node in done:
                continue
            if expanded:
                done[node] = None
                continue
            stack.append((node, True))
            for read in reversed(facts.nodes[node].reads):
                if facts.producer.get(facts.root[read]) in inside:
                    stack.append((facts.producer[read], False))
    return tuple(done)


def canonical(facts: Facts, graph: Graph, cut: Cut) -> Graph:
    """Write a partition of one variant's `graph` as a graph of its own; all variants get one structure."""
    return _Writer(facts, graph, cut).write()


@lru_cache(maxsize=16)
def _looked_up(key: Identity[Graph]) -> tuple[dict[str, Node], dict[str, TensorSpec]]:
    """Nodes and specs of a variant's graph by name, built once for all its partitions."""
    specs = {name: value.spec for name, value in key.item.values().items()}
    return {n.name: n for n in key.item.nodes}, specs


class _Writer:
    """Builds one canonical graph; `_names` maps values of the model's graph to canonical ones."""

    def __init__(self, facts: Facts, graph: Graph, cut: Cut) -> None:
        self._facts = facts
        self._cut = cut
        self._source, self._specs = _looked_up(Identity(graph))
        self._names: dict[str, str] = {}
        self._nodes: list[Node] = []
        self._kept = _kept_identities(facts, cut)

    def write(self) -> Graph:
        inputs = self._inputs()
        for name in self._cut.nodes:
            node = self._source[name]
            if name in self._facts.identities and name not in self._kept:
                self._names[node.outputs[0].name] = self._names[node.reads[0]]
            else:
                self._add(node)
        return Graph(inputs, tuple(self._nodes), tuple(Ref(self._names[o]) for o in self._cut.outputs))

    def _inputs(self) -> tuple[Input, ...]:
        found = []
        counts = {"x": 0, "p": 0}
        for value in self._cut.inputs:
            kind = input_kind(self._facts, value)
            letter = "x" if kind is InputKind.ACTIVATION else "p"
            self._names[value] = f"{letter}{counts[letter]}"
            counts[letter] += 1
            found.append(Input(Value(self._names[value], self._specs[value]), kind))
        return tuple(found)

    def _add(self, node: Node) -> None:
        source = self._specs[node.reads[0]] if node.reads else None
        calls = spell(node, self._facts.kinds[node.name], source)
        for call in calls[:-1]:
            self._names[""] = self._append(call)[0]
        for value, name in zip(node.outputs, self._append(calls[-1]), strict=True):
            self._names[value.name] = name

    def _append(self, call: Call) -> tuple[str, ...]:
        name = f"n{len(self._nodes)}"
        one = len(call.outputs) == 1
        names = (name,) if one else tuple(f"{name}.{i}" for i in range(len(call.outputs)))
        self._nodes.append(
            Node(
                name,
                call.op,
                tuple(self._renamed(a) for a in call.args),
                tuple((k, self._renamed(v)) for k, v in call.kwargs),
                tuple(Value(n, s) for n, s in zip(names, call.outputs, strict=True)),
            )
        )
        return names

    def _renamed(self, arg: Arg) -> Arg:
        if isinstance(arg, Ref):
            return Ref(self._names[arg.name])
        if isinstance(arg, tuple):
            return tuple(self._renamed(a) for a in arg)
        return arg


def _kept_identities(facts: Facts, cut: Cut) -> frozenset[str]:
    """Copies that must stay: without them an output would share memory with an input or another output."""
    resolved = {v: v for v in cut.inputs}
    for name in cut.nodes:
        for value in facts.results(name):
            reads = facts.nodes[name].reads
            through = name in facts.identities or facts.is_view(name)
            resolved[value] = resolved[reads[0]] if through else value
    taken = set(cut.inputs) | {o for o in cut.outputs if resolved[o] == o}
    kept: set[str] = set()
    for output in cut.outputs:
        if resolved[output] == output:
            continue
        if resolved[output] in taken:
            kept.add(facts.producer[output])
        taken.add(resolved[output])
    return frozenset(kept)


def subgraph_id(graph: Graph, groups: Iterable[int] = ()) -> str:
    """Hash a canonical graph; `groups` numbers the inputs that share memory (see `sharing`)."""
    return content_id("sg", [_exact(graph), list(groups)])


def family_id(graph: Graph) -> str:
    """Hash a canonical graph without its sizes."""
    return content_id("fam", _sizeless(graph))


def sharing(facts: Facts, cut: Cut) -> tuple[int, ...]:
    """Number each input by the first input that shares its memory."""
    first: dict[str, int] = {}
    return tuple(first.setdefault(facts.root[v], i) for i, v in enumerate(cut.inputs))


def _exact(graph: Graph) -> Json:
    specs = {name: v.spec for name, v in graph.values().items()}
    return {
        "inputs": [
            [i.kind.value, list(i.spec.shape), i.spec.dtype, list(i.spec.stride)] for i in graph.inputs
        ],
        "nodes": [
            [
                n.op,
                encode_arg(n.args),
                [[k, encode_arg(v)] for k, v in n.kwargs],
                [[list(v.spec.shape), v.spec.dtype] for v in n.outputs],
            ]
            for n in graph.nodes
        ],
        "outputs": [[o.name, list(specs[o.name].stride)] for o in graph.outputs if isinstance(o, Ref)],
    }


_SIZED_OPS = """
    view expand full arange new_full new_zeros new_ones zeros ones slice split split_with_sizes narrow
    unflatten layer_norm native_layer_norm rms_norm _fused_rms_norm native_group_norm slice_scatter repeat
    adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d as_strided upsample_nearest2d
    upsample_bilinear2d
"""
_SIZED = frozenset(_SIZED_OPS.split())
_CONVS = frozenset({"conv1d", "conv2d", "conv3d", "convolution"})


def _sizeless(graph: Graph) -> Json:
    specs = {name: v.spec for name, v in graph.values().items()}
    return {
        "inputs": [[i.kind.value, *_form(i.spec)] for i in graph.inputs],
        "nodes": [_sizeless_node(n, specs) for n in graph.nodes],
        "outputs": [[o.name, *_form(specs[o.name])] for o in graph.outputs if isinstance(o, Ref)],
    }


def _form(spec: TensorSpec) -> list[Json]:
    """Rank, dtype and memory order: which dimension varies fastest, and which do not vary at all."""
    moving = [d for d, size in enumerate(spec.shape) if size != 1 and spec.stride[d] != 0]
    inner = min(moving, key=lambda d: spec.stride[d], default=-1)
    return [len(spec.shape), spec.dtype, len(spec.shape) - inner if inner >= 0 else 0]


def _sizeless_node(node: Node, specs: Mapping[str, TensorSpec]) -> Json:
    name = packet(node.op)
    args: tuple[Arg, ...] = node.args
    if name in _SIZED:
        args = tuple(_unsized(a) for a in args)
    read = [specs[r] for r in node.reads]
    shapes: list[Json] = [[_broadcast(s, node.outputs[0].spec) for s in read]]
    if name in _CONVS:
        args = (*args[:6], _grouping(args, read)) if len(args) > 6 else args
        shapes = [[*read[1].shape[2:]]]  # the window is part of the method, the channels are not
    if name == "scaled_dot_product_attention":
        return [node.op, encode_arg(args), [k for k, _ in node.kwargs]]
    return [node.op, encode_arg(args), [[k, encode_arg(v)] for k, v in node.kwargs], shapes]


def _unsized(arg: Arg) -> Arg:
    if isinstance(arg, tuple):
        return tuple(_unsized(a) for a in arg) if any(isinstance(a, Ref) for a in arg) else "sizes"
    return "size" if isinstance(arg, int) and not isinstance(arg, bool) else arg


def _grouping(args: tuple[Arg, ...], read: list[TensorSpec]) -> str:
    return "depthwise" if args[6] == read[0].shape[1] else "groups"


def _broadcast(source: TensorSpec, result: TensorSpec) -> Json:
    """The dimensions, counted from the last, in which a source is repeated to fill the result."""
    pairs = zip(reversed(source.shape), reversed(result.shape), strict=False)
    return [i for i, (a, b) in enumerate(pairs) if a == 1 and b != 1]
