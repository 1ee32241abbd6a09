"""What one ATen op costs at least: the floating-point operations of its products, and which ops are free."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from mkevolve.data.graph import Node, Ref, TensorSpec

Specs = Mapping[str, TensorSpec]

# Results that share their input's memory: no kernel runs.
VIEWS = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "t",
        "numpy_T",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "broadcast_to",
        "select",
        "slice",
        "narrow",
        "split",
        "split_with_sizes",
        "chunk",
        "unbind",
        "alias",
        "detach",
        "as_strided",
        "diagonal",
        "movedim",
        "unfold",
        "swapaxes",
        "view_as",
        "lift_fresh",
        "_reshape_alias",
        "real",
        "imag",
    ]
)
# They read only part of their first input.
PARTIAL = frozenset(["embedding", "index", "index_select", "gather", "select", "slice", "narrow"])
# Written by exponentials and divisions: the library's kernels are bound by instructions, not by memory.
TRANSCENDENTAL = frozenset(
    [
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "exp",
        "log",
        "softmax",
        "_softmax",
        "log_softmax",
        "_log_softmax",
        "erf",
        "pow",
        "mish",
        "softplus",
        "elu",
        "selu",
        "hardswish",
        "sin",
        "cos",
        "native_layer_norm",
        "layer_norm",
        "rms_norm",
        "_fused_rms_norm",
        "group_norm",
        "native_group_norm",
    ]
)


@dataclass(frozen=True, slots=True)
class Product:
    """Multiply-adds of an op, two operations each, of an operand dtype; `grouped`: no matrix unit fits."""

    flops: float
    operand: str
    grouped: bool = False


def short(op: str) -> str:
    """`aten.conv2d.default` -> `conv2d`."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def is_view(node: Node) -> bool:
    """Whether an op runs no kernel."""
    return short(node.op) in VIEWS


def product(node: Node, specs: Specs) -> Product | None:
    """The matrix product inside an op; None where it has none."""
    rule = _PRODUCTS.get(short(node.op))
    if rule is None:
        return None
    inputs = [specs[name] for name in node.reads if name in specs]
    return rule(node, inputs) if inputs else None


def _contraction(first: int) -> Callable[[Node, list[TensorSpec]], Product]:
    """Products whose operand number `first` has the contracted size last: mm, bmm, linear."""

    def rule(node: Node, inputs: list[TensorSpec]) -> Product:
        left = inputs[first]
        return Product(2.0 * node.outputs[0].spec.numel * left.shape[-1], left.dtype)

    return rule


def _convolution(node: Node, inputs: list[TensorSpec]) -> Product:
    image, weight = inputs[0], inputs[1]
    out = node.outputs[0].spec
    if _transposed(node):
        return Product(2.0 * image.numel * prod(weight.shape[1:]), image.dtype, weight.shape[1] == 1)
    each = prod(weight.shape[1:])
    grouped = weight.shape[1] == 1 and weight.shape[0] > 1 and image.shape[1] > 1
    return Product(2.0 * out.numel * each, image.dtype, grouped)


def _transposed(node: Node) -> bool:
    if "transpose" in short(node.op):
        return True
    return short(node.op) == "convolution" and len(node.args) > 6 and node.args[6] is True


def _attention(node: Node, inputs: list[TensorSpec]) -> Product:
    query, key, value = inputs[:3]
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    causal = node.kwarg("is_causal", False) is True or (len(node.args) > 5 and node.args[5] is True)
    flops = 2.0 * pairs * (query.shape[-1] + value.shape[-1])
    return Product(flops / 2 if causal else flops, query.dtype)


def _einsum(node: Node, inputs: list[TensorSpec]) -> Product | None:
    equation = node.args[0]
    if not isinstance(equation, str) or "." in equation:
        return None
    labels = equation.replace(" ", "").split("->")[0].split(",")
    if len(labels) < 2 or [len(x) for x in labels] != [len(i.shape) for i in inputs]:
        return None
    sizes = {k: n for term, i in zip(labels, inputs, strict=True) for k, n in zip(term, i.shape, strict=True)}
    return Product(2.0 * prod(sizes.values()), inputs[0].dtype)


_PRODUCTS: dict[str, Callable[[Node, list[TensorSpec]], Product | None]] = {
    "mm": _contraction(0),
    "bmm": _contraction(0),
    "matmul": _contraction(0),
    "linear": _contraction(0),
    "mv": _contraction(0),
    "dot": _contraction(0),
    "addmm": _contraction(1),
    "baddbmm": _contraction(1),
    "einsum": _einsum,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "convolution": _convolution,
    "conv_transpose1d": _convolution,
    "conv_transpose2d": _convolution,
    "conv_transpose3d": _convolution,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
}


def bytes_read(node: Node, specs: Specs) -> int:
    """Bytes that an op must read; an indexing op reads no more of its source than it returns."""
    names = dict.fromkeys(node.reads)
    total = 0
    for position, name in enumerate(names):
        size = specs[name].nbytes
        if position == 0 and short(node.op) in PARTIAL:
            size = min(size, bytes_written(node))
        total += size
    return total


def bytes_written(node: Node) -> int:
    """Bytes of an op's results."""
    return sum(v.spec.nbytes for v in node.outputs)


def reads_of(node: Node, name: str, specs: Specs) -> int:
    """Bytes of one value that an op must read."""
    first = next((a.name for a in node.args if isinstance(a, Ref)), None)
    if name == first and (short(node.op) in PARTIAL or is_view(node)):
        return min(specs[name].nbytes, bytes_written(node))
    return specs[name].nbytes
