"""What a product subgraph is made of: its products, and weights that `prepare` may pack."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, InputKind, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import is_pointwise
from mkevolve.propose.ops.matmul_norm import LAYER, RMS, Norm, match_norm
from mkevolve.propose.ops.matmul_terms import Contraction, Labels, contraction, is_product
from mkevolve.propose.ops.matmul_tile import label_dims
from mkevolve.propose.shapes import Dim, Sizes, is_constant, is_one


@dataclass(frozen=True, slots=True)
class Weight:
    """A right operand that is a parameter, its dimensions permuted; labels follow the parameter."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Product:
    """One product, or several of equal sizes that share their left operand; all else is pointwise.

    `weights` has one entry a term where every right operand is a parameter that nothing else reads.
    """

    subgraph: Subgraph
    terms: tuple[Contraction, ...]
    dims: Mapping[str, Dim]
    weights: tuple[Weight, ...]
    norm: Norm | None = None

    @property
    def dtype(self) -> str:
        """Dtype of the operands."""
        return self.subgraph.target.values()[self.terms[0].lhs].spec.dtype

    def extent(self, labels: Labels) -> int:
        """Product of the sizes of several labels at the target."""
        total = 1
        for label in labels:
            total *= self.dims[label][0]
        return total

    def is_single(self, labels: Labels) -> bool:
        """Whether these labels have size 1 together at every variant."""
        return all(is_one(self.dims[x]) for x in labels)


def match_product(subgraph: Subgraph) -> Product | None:
    """Find the products of a subgraph; None without any.

    Raises `ProposalError` naming the op for a second product that is not a sibling of the first, and for
    anything that is neither a product nor pointwise, except a norm right before the product.
    """
    graph = subgraph.target
    nodes = [n for n in graph.nodes if is_product(n)]
    if not nodes:
        return None
    for node in graph.nodes:
        if not is_product(node) and not is_pointwise(node) and node.op not in (LAYER, RMS):
            raise ProposalError(f"{node.op} beside {nodes[0].op}")
    sizes = Sizes(subgraph)
    terms = tuple(_oriented(contraction(n, graph), sizes) for n in nodes)
    for _, other in subgraph.variants:
        for term in terms:
            term.sizes(other)
    _check_siblings(nodes, terms, sizes)
    dims = label_dims(sizes, terms[0])
    if len(terms) == 1 and (parts := _parts(graph, terms[0], sizes)):
        dims[parts[0].columns[0]] = sizes.number(parts[1].start)
        terms = parts
    if max(sizes.product(*(dims[x] for x in terms[0].batch))) > MOST_BATCH:
        raise ProposalError(f"{nodes[0].op}: a batch of more than {MOST_BATCH}")
    dtypes = {sizes.dtype(v) for t in terms for v in (t.lhs, t.rhs)}
    if len(dtypes) != 1 or not dtypes <= {"float16", "bfloat16", "float32"}:
        raise ProposalError(f"{nodes[0].op} on {', '.join(sorted(dtypes))}")
    weights = [_weight(graph, term) for term in terms] if terms[-1].start == 0 else [None]
    packable = tuple(w for w in weights if w is not None) if None not in weights else ()
    norm = match_norm(graph, terms, nodes, sizes.dtype(terms[0].lhs))
    return Product(subgraph, terms, dims, packable, norm)


def _oriented(term: Contraction, sizes: Sizes) -> Contraction:
    """Swap the operands where the right one has a single column, so that columns are worth a block."""
    dims = label_dims(sizes, term)
    single = {side: all(is_one(dims[x]) for x in getattr(term, side)) for side in ("rows", "columns")}
    if not single["columns"]:
        return term
    if single["rows"]:
        raise ProposalError("a product with one row and one column")
    return replace(term, lhs=term.rhs, rhs=term.lhs, lhs_labels=term.rhs_labels, rhs_labels=term.lhs_labels)


def _check_siblings(nodes: list[Node], terms: tuple[Contraction, ...], sizes: Sizes) -> None:
    first = terms[0]
    for node, term in zip(nodes[1:], terms[1:], strict=True):
        shape = (term.lhs, term.lhs_labels, term.rhs_labels, term.out_labels)
        if shape != (first.lhs, first.lhs_labels, first.rhs_labels, first.out_labels):
            raise ProposalError(f"{node.op} twice, of different operands")
        if label_dims(sizes, term) != label_dims(sizes, first):
            raise ProposalError(f"{node.op} twice, of different sizes")
    if len(terms) > MOST_TERMS:
        raise ProposalError(f"{nodes[0].op} {len(terms)} times")


def _parts(graph: Graph, term: Contraction, sizes: Sizes) -> tuple[Contraction, ...]:
    """The product as equal parts of its columns, where all that reads it is one split of them; else empty."""
    readers = [n for n in graph.nodes if term.node in n.reads]
    if len(readers) != 1 or readers[0].op not in _SPLITS or term.out_labels[-1:] != term.columns:
        return ()
    node, rank = readers[0], len(term.out_labels)
    dim = node.args[2] if len(node.args) > 2 else node.kwarg("dim", 0)
    widths = {sizes.shape(v.name)[rank - 1] for v in node.outputs}
    if dim not in (-1, rank - 1) or len(widths) > 1 or Ref(term.node) in graph.outputs:
        return ()
    width = widths.pop()
    if not is_constant(width) or not 2 <= len(node.outputs) <= MOST_TERMS:
        return ()
    return tuple(replace(term, node=v.name, start=i * width[0]) for i, v in enumerate(node.outputs))


MOST_TERMS = 3
MOST_BATCH = 65535  # programs along the second axis of a grid
_SPLITS = frozenset({"aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default"})
_PERMUTES = frozenset(
    {"aten.t.default", "aten.transpose.int", "aten.permute.default", "aten.numpy_T.default"}
)


def _weight(graph: Graph, term: Contraction) -> Weight | None:
    """The right operand as a packable parameter; None for an activation, or where others read it too."""
    producers = {n.outputs[0].name: n for n in graph.nodes}
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for name in node.reads:
            readers[name] = readers.get(name, 0) + 1
    name, labels = term.rhs, term.rhs_labels
    while name in producers:
        node = producers[name]
        if node.op not in _PERMUTES or readers[name] != 1:
            return None
        labels = tuple(labels[i] for i in _inverse(node, len(labels)))
        name = node.reads[0]
    kinds = {i.name: i.kind for i in graph.inputs}
    plain = all(labels) and not term.batch
    return (
        Weight(name, labels)
        if plain and kinds[name] is not InputKind.ACTIVATION and readers[name] == 1
        else None
    )


def _inverse(node: Node, rank: int) -> list[int]:
    """For every dimension of the operand, which dimension of the result it is."""
    order = list(range(rank))
    if node.op == "aten.permute.default":
        given = node.args[1]
        order = [d % rank for d in given if isinstance(d, int)] if isinstance(given, tuple) else order
    elif node.op == "aten.transpose.int":
        a, b = (d % rank for d in node.args[1:3] if isinstance(d, int))
        order[a], order[b] = order[b], order[a]
    else:
        order.reverse()
    return [order.index(d) for d in range(rank)]
