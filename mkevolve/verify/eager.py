"""Eager under the precision policy: what a captured graph gives on a device that obeys it, run on the CPU."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from mkevolve.data.graph import Arg, Graph, Node, Ref
from mkevolve.data.model import Precision
from mkevolve.reference import Result, run_graph, run_node
from mkevolve.verify.work import MATRIX_OPS

_OPERANDS = {  # positions of what is multiplied; a bias, an added matrix and a mask are not rounded
    "aten.addmm.default": (1, 2),
    "aten.baddbmm.default": (1, 2),
    "aten.einsum.default": (1,),
    "aten.scaled_dot_product_attention.default": (0, 1, 2),
}


def run_eager(graph: Graph, inputs: Mapping[str, torch.Tensor], precision: Precision) -> tuple[Result, ...]:
    """Run a graph in its captured dtypes; under `tf32` the operands of matrix products are rounded first."""
    if precision is not Precision.TF32 or not any(n.op in MATRIX_OPS for n in graph.nodes):
        return run_graph(graph, inputs)
    env = dict(inputs)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for node in graph.nodes:
            rounded, operands = _rounded(node)
            reads = {**env, **{new: to_tf32(env[name]) for new, name in operands.items()}}
            env.update((v.name, t) for v, t in zip(node.outputs, run_node(rounded, reads), strict=True))
    return tuple(env[v.name] for v in graph.output_values)


def to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round to the 10-bit mantissa of TF32 (to nearest, ties away), as matrix units read fp32 operands."""
    if tensor.dtype != torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded, tensor)


def _rounded(node: Node) -> tuple[Node, dict[str, str]]:
    """The node reading its operands under new names, which map to the old ones; by position, since one tensor
    may be both operand and bias.
    """
    if node.op not in MATRIX_OPS:
        return node, {}
    operands: dict[str, str] = {}

    def renamed(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(renamed(a) for a in arg)
        if not isinstance(arg, Ref):
            return arg
        new = f"{arg.name}:tf32"
        operands[new] = arg.name
        return Ref(new)

    places = _OPERANDS.get(node.op, (0, 1))
    args = tuple(renamed(a) if at in places else a for at, a in enumerate(node.args))
    return replace(node, args=args), operands
