"""How much work and memory a graph is: whether its reference can be computed at the target sizes."""

import math
from collections.abc import Mapping
from dataclasses import replace

from mkevolve.data.graph import ITEMSIZE, Arg, Graph, Node, Ref, Symbol, TensorSpec

# Ops whose fp32 operands a matrix unit may round under the tf32 policy; the first two tensors are operands.
MATRIX_OPS = frozenset(
    {
        "aten.conv1d.default",
        "aten.conv2d.default",
        "aten.conv2d.padding",
        "aten.conv3d.default",
        "aten.convolution.default",
        "aten.conv_transpose2d.input",
        "aten.linear.default",
        "aten.mm.default",
        "aten.bmm.default",
        "aten.matmul.default",
        "aten.addmm.default",
        "aten.baddbmm.default",
        "aten.einsum.default",
        "aten.scaled_dot_product_attention.default",
    }
)


def in_float32(graph: Graph) -> Graph:
    """The graph with its casts to 16-bit floats replaced by casts to float32, for inputs that are widened."""
    nodes = tuple(
        replace(
            node,
            args=tuple(_widened(a) for a in node.args),
            kwargs=tuple((k, _widened(v)) for k, v in node.kwargs),
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _widened(arg: Arg) -> Arg:
    if isinstance(arg, tuple):
        return tuple(_widened(a) for a in arg)
    if isinstance(arg, Symbol) and arg.kind == "dtype" and arg.name in ("float16", "bfloat16"):
        return Symbol("dtype", "float32")
    return arg


def flops(graph: Graph) -> float:
    """Multiply-adds count two; everything else counts one an element written."""
    specs = {name: value.spec for name, value in graph.values().items()}
    return sum(_node_flops(node, specs) for node in graph.nodes)


def _node_flops(node: Node, specs: Mapping[str, TensorSpec]) -> float:
    written = float(sum(v.spec.numel for v in node.outputs))
    if node.op not in MATRIX_OPS:
        return written
    reads = [specs[name].shape for name in node.reads]
    if "scaled_dot" in node.op:
        return 4.0 * math.prod(reads[0]) * reads[1][-2]
    if "conv" in node.op:
        weight = reads[1]
        return 2.0 * written * math.prod(weight[1:])
    operand = reads[1] if "addmm" in node.op or "baddbmm" in node.op else reads[0]
    return 2.0 * written * (operand[-1] if operand else 1)


def peak_bytes(graph: Graph, itemsize: int) -> int:
    """The most bytes alive while the graph runs with floats of `itemsize`; inputs stay, values die early."""
    last = {name: at for at, node in enumerate(graph.nodes) for name in node.reads}
    kept = {o.name for o in graph.outputs if isinstance(o, Ref)}
    fixed = sum(_bytes(i.spec, itemsize) for i in graph.inputs)
    alive: dict[str, int] = {}
    peak = 0
    for at, node in enumerate(graph.nodes):
        alive.update({v.name: _bytes(v.spec, itemsize) for v in node.outputs})
        peak = max(peak, sum(alive.values()))
        for name in [n for n in alive if last.get(n, at) <= at and n not in kept]:
            del alive[name]
    return fixed + peak


def _bytes(spec: TensorSpec, itemsize: int) -> int:
    return spec.numel * (itemsize if spec.is_float else ITEMSIZE[spec.dtype])
