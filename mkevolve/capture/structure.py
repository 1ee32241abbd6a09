"""Compares the structure of two graphs: everything but sizes and other numbers."""

from mkevolve.data.graph import Arg, Graph, Input, InputKind, Node


def first_difference(a: Graph, b: Graph) -> str:
    """Name the first place where two graphs have another structure; empty where they have the same.

    Names, ops, uses, dtypes and ranks must agree, and parameters entirely; sizes, strides and numbers among
    the arguments may differ.
    """
    if [_input(i) for i in a.inputs] != [_input(i) for i in b.inputs]:
        return "it reads other inputs"
    for left, right in zip(a.nodes, b.nodes, strict=False):
        if _node(left) != _node(right):
            return f"{left.op} ({left.name}) against {right.op} ({right.name})"
    if len(a.nodes) != len(b.nodes):
        return f"{len(a.nodes)} nodes against {len(b.nodes)}"
    if a.outputs != b.outputs:
        return "it returns other values"
    return ""


def _input(item: Input) -> object:
    if item.kind is InputKind.ACTIVATION:
        return (item.name, item.kind, item.spec.dtype, len(item.spec.shape))
    return item


def _node(node: Node) -> object:
    results = tuple((v.name, v.spec.dtype, len(v.spec.shape)) for v in node.outputs)
    return (node.name, node.op, _shape(node.args), tuple((k, _shape(v)) for k, v in node.kwargs), results)


def _shape(arg: Arg) -> object:
    if isinstance(arg, tuple):
        return tuple(_shape(a) for a in arg)
    return type(arg) if isinstance(arg, int | float) and not isinstance(arg, bool) else arg
