"""Any matrix product as a labelled contraction: which dimensions are batch, rows, columns and summed over."""

from collections.abc import Callable
from dataclasses import dataclass

from mkevolve.data.graph import Graph, Node, Ref
from mkevolve.errors import ProposalError

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """`out = alpha * sum over inner (lhs * rhs) + beta * addend`; `node` names the value that this makes.

    One label a dimension, in the order of the tensor's dimensions. `""` marks a dimension of size 1 that is
    broadcast, so its index is always 0. Sizes are not stored: they differ between variants. A term that is
    a part of a product (`gate, up = linear(x).chunk(2, -1)`) reads the columns of `rhs` from `start` on.
    """

    node: str
    lhs: str
    rhs: str
    lhs_labels: Labels
    rhs_labels: Labels
    out_labels: Labels
    addend: str | None = None
    addend_labels: Labels = ()
    alpha: float = 1.0
    beta: float = 1.0
    start: int = 0

    @property
    def batch(self) -> Labels:
        """Labels of both operands and of the result: one product each."""
        return tuple(x for x in self.out_labels if x in self.lhs_labels and x in self.rhs_labels)

    @property
    def rows(self) -> Labels:
        """Labels of the left operand alone, in the order of the result; walked as one index."""
        return tuple(x for x in self.out_labels if x in self.lhs_labels and x not in self.rhs_labels)

    @property
    def columns(self) -> Labels:
        """Labels of the right operand alone, in the order of the result."""
        return tuple(x for x in self.out_labels if x in self.rhs_labels and x not in self.lhs_labels)

    @property
    def inner(self) -> Labels:
        """Labels that are summed over."""
        return tuple(x for x in self.lhs_labels if x and x in self.rhs_labels and x not in self.out_labels)

    def sizes(self, graph: Graph) -> dict[str, int]:
        """Size of every label in one variant's graph; `ProposalError` where the labels do not fit."""
        values = graph.values()
        found: dict[str, int] = {}
        for name, labels in ((self.lhs, self.lhs_labels), (self.rhs, self.rhs_labels)):
            for label, size in zip(labels, values[name].spec.shape, strict=True):
                if size != (found.setdefault(label, size) if label else 1):
                    raise ProposalError(f"{self.node}: broadcasting differs between the variants")
        return found


def contraction(node: Node, graph: Graph) -> Contraction:
    """Read a product node; raises `ProposalError` where it is no plain contraction of two tensors."""
    rule = _RULES.get(node.op)
    if rule is None:
        raise ProposalError(f"{node.op} is no matrix product that the templates know")
    return rule(node, graph)


def is_product(node: Node) -> bool:
    """Whether `contraction` has a rule for the op of this node."""
    return node.op in _RULES


def _name(node: Node, index: int) -> str:
    match node.args[index]:
        case Ref(name):
            return name
    raise ProposalError(f"{node.op}: argument {index} is no tensor")


def _rank(graph: Graph, name: str) -> int:
    return len(graph.values()[name].spec.shape)


def _letters(count: int, prefix: str) -> Labels:
    return tuple(f"{prefix}{i}" for i in range(count))


def _linear(node: Node, graph: Graph) -> Contraction:
    x, weight = _name(node, 0), _name(node, 1)
    rows = _letters(_rank(graph, x) - 1, "m")
    columns: Labels = ("n",) if _rank(graph, weight) == 2 else ()
    bias = node.args[2] if len(node.args) > 2 else node.kwarg("bias")
    addend = bias.name if isinstance(bias, Ref) else None
    return Contraction(
        node.name,
        x,
        weight,
        (*rows, "k"),
        (*columns, "k"),
        (*rows, *columns),
        addend,
        columns if addend else (),
    )


def _matmul(node: Node, graph: Graph) -> Contraction:
    return _product(node, _name(node, 0), _name(node, 1), graph)


def _product(node: Node, lhs: str, rhs: str, graph: Graph) -> Contraction:
    """torch.matmul's rules: vectors lose their dimension, leading dimensions broadcast from the right."""
    values = graph.values()
    left, right = values[lhs].spec.shape, values[rhs].spec.shape
    if not left or not right:
        raise ProposalError(f"{node.op}: an operand without dimensions")
    lead = max(len(left) - 2, len(right) - 2, 0)
    names = _letters(lead, "b")
    left_lead = _lead(left[:-2], names, right[:-2])
    right_lead = _lead(right[:-2], names, left[:-2])
    rows: Labels = ("m",) if len(left) > 1 else ()
    columns: Labels = ("n",) if len(right) > 1 else ()
    return Contraction(
        node.name,
        lhs,
        rhs,
        (*left_lead, *rows, "k"),
        (*right_lead, "k", *columns),
        (*names, *rows, *columns),
    )


def _lead(mine: tuple[int, ...], names: Labels, other: tuple[int, ...]) -> Labels:
    """Labels of leading dimensions; a size of 1 against a larger one is broadcast."""
    picked = names[len(names) - len(mine) :]
    padded = (1,) * (len(mine) - len(other)) + other[max(len(other) - len(mine), 0) :]
    return tuple(
        "" if size == 1 and facing > 1 else label
        for size, facing, label in zip(mine, padded, picked, strict=True)
    )


def _added(node: Node, graph: Graph) -> Contraction:
    """addmm and baddbmm: the first argument is added, scaled by `beta`; the product is scaled by `alpha`."""
    base = _product(node, _name(node, 1), _name(node, 2), graph)
    addend = _name(node, 0)
    out = graph.values()[node.outputs[0].name].spec.shape
    mine = graph.values()[addend].spec.shape
    tail = len(out) - len(mine)
    labels = tuple(
        "" if size == 1 and full > 1 else label
        for size, full, label in zip(mine, out[tail:], base.out_labels[tail:], strict=True)
    )
    return Contraction(
        base.node, base.lhs, base.rhs, base.lhs_labels, base.rhs_labels, base.out_labels,
        addend, labels, _number(node, "alpha"), _number(node, "beta"),
    )  # fmt: skip


def _number(node: Node, name: str) -> float:
    match node.kwarg(name, 1.0):
        case int() | float() as value:
            return float(value)
    raise ProposalError(f"{node.op}: {name} is no number")


def _einsum(node: Node, graph: Graph) -> Contraction:
    equation, operands = node.args[0], node.args[1]
    if not isinstance(equation, str) or not isinstance(operands, tuple):
        raise ProposalError(f"{node.op}: equation or operands are not written out")
    left, _, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    names = [o.name for o in operands if isinstance(o, Ref)]
    if len(terms) != 2 or len(names) != 2 or "." in equation or "->" not in equation:
        raise ProposalError(f"{node.op}: {equation!r} is no product of two tensors with all dimensions named")
    if any(len(set(t)) != len(t) for t in (*terms, result)):
        raise ProposalError(f"{node.op}: {equation!r} takes a diagonal")
    found = Contraction(node.name, names[0], names[1], tuple(terms[0]), tuple(terms[1]), tuple(result))
    lone = (set(terms[0]) ^ set(terms[1])) - set(result)
    if lone or not found.inner:
        raise ProposalError(f"{node.op}: {equation!r} is no matrix product")
    found.sizes(graph)
    return found


_RULES: dict[str, Callable[[Node, Graph], Contraction]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _added,
    "aten.baddbmm.default": _added,
    "aten.einsum.default": _einsum,
}
