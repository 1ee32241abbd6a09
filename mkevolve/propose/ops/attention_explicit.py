"""Attention written out: a product, pointwise work on the scores, a softmax, a second product."""

from dataclasses import replace

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import is_pointwise
from mkevolve.propose.ops.attention_match import DTYPES, Attention, Labelled
from mkevolve.propose.ops.matmul_terms import Contraction, contraction, is_product
from mkevolve.propose.ops.matmul_tile import label_dims
from mkevolve.propose.shapes import Sizes, is_constant

SOFTMAX = frozenset({"aten.softmax.int", "aten._softmax.default"})
_CASTS = frozenset(
    {"aten._to_copy.default", "aten.to.dtype", "aten.clone.default", "aten.contiguous.default"}
)


def match_explicit(subgraph: Subgraph) -> Attention | None:
    """Find two products with a softmax between them; None for any other number of these ops.

    Raises `ProposalError` where the products do not fit attention (other dimensions, a softmax over another
    one) or where something else lies around them.
    """
    graph = subgraph.target
    products = [n for n in graph.nodes if is_product(n)]
    softmaxes = [n for n in graph.nodes if n.op in SOFTMAX]
    if len(products) != 2 or len(softmaxes) != 1:
        return None
    for node in graph.nodes:
        if not is_product(node) and node.op not in SOFTMAX and not is_pointwise(node):
            raise ProposalError(f"{node.op} beside {softmaxes[0].op} and two products")
    sizes = Sizes(subgraph)
    scores, values = (contraction(n, graph) for n in products)
    for _, other in subgraph.variants:
        scores.sizes(other)
        values.sizes(other)
    softmax = softmaxes[0]
    logits = softmax.reads[0]
    _check_chain(graph, softmax, scores, values, sizes)
    values = _relabelled(values, scores)
    dims = {**label_dims(sizes, values), **label_dims(sizes, scores)}
    depth, width = dims[scores.inner[0]], dims[values.columns[0]]
    if not is_constant(depth) or not is_constant(width):
        raise ProposalError(f"{products[0].op}: the size of a head varies")
    operands = (scores.lhs, scores.rhs, values.rhs)
    if len({sizes.dtype(x) for x in operands}) > 1 or sizes.dtype(scores.lhs) not in DTYPES:
        raise ProposalError(f"{products[0].op} on {sizes.dtype(scores.lhs)}")
    return Attention(
        subgraph=subgraph, result=values.node, query=scores.lhs, key=scores.rhs, value=values.rhs, mask=None,
        causal=False, scale=1.0, share=1, lead=tuple(dims[x] for x in scores.batch),
        rows=dims[scores.rows[0]], columns=dims[scores.columns[0]], depth=depth[0], width=width[0],
        labelled=Labelled(scores, values, logits),
    )  # fmt: skip


def _check_chain(graph: Graph, softmax: Node, scores: Contraction, values: Contraction, sizes: Sizes) -> None:
    """That the second product reads the softmax over the columns of the first one's result."""
    producers = {v.name: n for n in graph.nodes for v in n.outputs}
    name = values.lhs
    while name in producers and producers[name].op in _CASTS:
        name = producers[name].reads[0]
    dim, rank = softmax.args[1], len(scores.out_labels)
    single = all(len(x) == 1 for x in (scores.rows, scores.columns, scores.inner, values.columns))
    fits = (
        name == softmax.outputs[0].name
        and single
        and isinstance(dim, int)
        and scores.out_labels[dim % rank] == scores.columns[0]
        and sizes.shape(softmax.reads[0]) == sizes.shape(scores.node)
        and sizes.shape(values.lhs) == sizes.shape(scores.node)
        and len(values.inner) == 1
        and values.lhs_labels.index(values.inner[0]) == dim % rank
        and values.addend is None
    )
    inside = {scores.node, softmax.reads[0], softmax.outputs[0].name, values.lhs}
    if not fits or any(isinstance(o, Ref) and o.name in inside for o in graph.outputs):
        raise ProposalError(f"{softmax.op} between two products that are not attention")


def _relabelled(values: Contraction, scores: Contraction) -> Contraction:
    """The second product with the labels of the first one's result for what both have."""
    names = dict(zip(values.lhs_labels, scores.out_labels, strict=True))
    if len(names) < len(values.lhs_labels) or values.columns[0] in names:
        raise ProposalError("an attention whose heads broadcast")

    def renamed(labels: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(x, f"{x}_width" if x else x) for x in labels)

    return replace(
        values,
        lhs_labels=scores.out_labels,
        rhs_labels=renamed(values.rhs_labels),
        out_labels=renamed(values.out_labels),
    )
