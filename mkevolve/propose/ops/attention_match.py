"""What a scaled dot-product attention subgraph is made of."""

import math
from dataclasses import dataclass

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Node, Ref
from mkevolve.errors import ProposalError
from mkevolve.propose.emit import is_pointwise
from mkevolve.propose.ops.matmul_terms import Contraction
from mkevolve.propose.shapes import Dim, Sizes, is_constant, is_one

OP = "aten.scaled_dot_product_attention.default"


@dataclass(frozen=True, slots=True)
class Labelled:
    """Attention that is written out: its two products over common labels, and the input of the softmax."""

    scores: Contraction
    values: Contraction
    logits: str


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention, everything else pointwise around it.

    Shapes: query `[*lead, rows, depth]`, key `[*lead, columns, depth]`, value `[*lead, columns, width]`.
    `share` is how many query heads read one head of key and value. `mask` broadcasts to
    `[*lead, rows, columns]`. With `labelled` the operands may have their dimensions in any order, and scale
    and mask are nodes between its scores and its logits.
    """

    subgraph: Subgraph
    result: str
    query: str
    key: str
    value: str
    mask: str | None
    causal: bool
    scale: float
    share: int
    lead: tuple[Dim, ...]
    rows: Dim
    columns: Dim
    depth: int
    width: int
    labelled: Labelled | None = None

    @property
    def dtype(self) -> str:
        """Dtype of query, key and value."""
        return self.subgraph.target.values()[self.query].spec.dtype

    @property
    def is_additive(self) -> bool:
        """Whether the mask holds numbers that are added to the scores."""
        return self.mask is not None and self.subgraph.target.values()[self.mask].spec.dtype != "bool"


def match_attention(subgraph: Subgraph) -> Attention | None:
    """Find the attention of a subgraph; None without one.

    Raises `ProposalError` naming the op for dropout, a second attention, operands that broadcast in a way
    that eager's fused kernels do not take, and anything around it that is not pointwise.
    """
    nodes = [n for n in subgraph.target.nodes if n.op == OP]
    if not nodes:
        return None
    if len(nodes) > 1:
        raise ProposalError(f"{OP} twice")
    for other in subgraph.target.nodes:
        if other.op != OP and not is_pointwise(other):
            raise ProposalError(f"{other.op} beside {OP}")
    node = nodes[0]
    options = [_options(g, node.name) for _, g in subgraph.variants]
    if len({o[:2] for o in options}) > 1:
        raise ProposalError(f"{OP}: arguments differ between input sizes")
    sizes = Sizes(subgraph)
    query, key, value = (_tensor(node, i) for i in range(3))
    q, k, v = (sizes.shape(x) for x in (query, key, value))
    if not len(q) == len(k) == len(v) >= 3:
        raise ProposalError(f"{OP}: query, key and value differ in their number of dimensions")
    if not is_constant(q[-1]) or not is_constant(v[-1]):
        raise ProposalError(f"{OP}: the size of a head varies")
    if len({sizes.dtype(x) for x in (query, key, value)}) > 1 or sizes.dtype(query) not in DTYPES:
        raise ProposalError(f"{OP} on {sizes.dtype(query)}")
    causal, scale = options[0][:2]
    mask = options[0][2]
    share = _share(q, k, v)
    _check_lead(q, k, share)
    return Attention(
        subgraph=subgraph, result=node.outputs[0].name, query=query, key=key, value=value, mask=mask,
        causal=causal, scale=1.0 / math.sqrt(q[-1][0]) if scale is None else scale, share=share, lead=q[:-2],
        rows=q[-2], columns=k[-2], depth=q[-1][0], width=v[-1][0],
    )  # fmt: skip


DTYPES = frozenset({"float16", "bfloat16", "float32"})


def _tensor(node: Node, index: int) -> str:
    match node.args[index]:
        case Ref(name):
            return name
    raise ProposalError(f"{OP}: argument {index} is no tensor")


def _options(graph: Graph, name: str) -> tuple[bool, float | None, str | None]:
    """(is_causal, scale, mask) of one variant."""
    node = next(n for n in graph.nodes if n.name == name)

    def given(index: int, key: str) -> object:
        return node.args[index] if len(node.args) > index else node.kwarg(key)

    if given(4, "dropout_p") not in (None, 0, 0.0):
        raise ProposalError(f"{OP} with dropout")
    mask, scale = given(3, "attn_mask"), node.kwarg("scale")
    return (
        given(5, "is_causal") is True,
        float(scale) if isinstance(scale, int | float) else None,
        mask.name if isinstance(mask, Ref) else None,
    )


def _share(q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]) -> int:
    """Query heads for each head of key and value."""
    if k[:-1] != v[:-1]:
        raise ProposalError(f"{OP}: key and value differ in shape")
    if len(q) < 4 or q[-3] == k[-3] or is_one(k[-3]):
        return 1
    ratios = {a / b for a, b in zip(q[-3], k[-3], strict=True)}
    share = ratios.pop()
    if ratios or share != int(share):
        raise ProposalError(f"{OP}: {q[-3][0]} heads of query over {k[-3][0]} of key")
    return int(share)


def _check_lead(q: tuple[Dim, ...], k: tuple[Dim, ...], share: int) -> None:
    heads = len(q) - 3
    for axis, (mine, other) in enumerate(zip(q[:-2], k[:-2], strict=True)):
        if mine != other and not is_one(other) and not (share > 1 and axis == heads):
            raise ProposalError(f"{OP}: key does not broadcast to query")
