"""What each ATen op is to the partitioner: tables, and the few ops whose kind depends on their arguments."""

from collections.abc import Callable
from enum import StrEnum

from mkevolve.data.graph import Arg, Node, Symbol, TensorSpec
from mkevolve.partition.layout import is_contiguous, viewable


class Kind(StrEnum):
    """The part that a node plays in a cut. The first eight are anchors: a partition has at most one."""

    CONV = "conv"
    MATMUL = "matmul"
    ATTENTION = "attention"
    NORM = "norm"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    POOL = "pool"
    EMBEDDING = "embedding"
    POINTWISE = "pointwise"
    COPY = "copy"  # values unchanged, memory new: clone, contiguous, a reshape that cannot be a view
    VIEW = "view"  # the result shares the input's memory
    CREATION = "creation"  # a constant of some shape
    RANDOM = "random"
    OTHER = "other"


ANCHORS = frozenset(
    {
        Kind.CONV,
        Kind.MATMUL,
        Kind.ATTENTION,
        Kind.NORM,
        Kind.SOFTMAX,
        Kind.REDUCTION,
        Kind.POOL,
        Kind.EMBEDDING,
    }
)

_NAMES: dict[Kind, str] = {
    Kind.CONV: """
        conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d
    """,
    Kind.MATMUL: "linear mm bmm addmm baddbmm matmul mv addmv dot einsum _scaled_mm",
    Kind.ATTENTION: """
        scaled_dot_product_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math
    """,
    Kind.NORM: """
        layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm instance_norm
    """,
    Kind.SOFTMAX: "softmax _softmax log_softmax _log_softmax _safe_softmax",
    Kind.REDUCTION: """
        sum mean amax amin prod var std var_mean std_mean logsumexp max min argmax argmin any all norm
        linalg_vector_norm aminmax _weight_norm _weight_norm_interface count_nonzero
    """,
    Kind.POOL: """
        avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices
        max_pool3d_with_indices max_pool1d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    """,
    Kind.EMBEDDING: "embedding",
    Kind.POINTWISE: """
        abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
        bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min copysign
        copy cos cosh deg2rad div divide elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax
        fmin fmod frac ge gelu glu_jvp greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh
        hypot isfinite isinf isnan isneginf isposinf ldexp le leaky_relu lerp less less_equal lgamma log
        log10 log1p log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
        logit log_sigmoid_forward lt masked_fill maximum minimum mish mul multiply nan_to_num ne neg negative
        nextafter not_equal polygamma pow prelu _prelu_kernel rad2deg reciprocal relu relu6 remainder round
        rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_erf
        special_erfc special_expit special_exp2 special_expm1 special_log1p sqrt square sub subtract tan tanh
        tanhshrink threshold true_divide trunc where xlogy
    """,
    Kind.VIEW: """
        view _unsafe_view _reshape_alias transpose permute t expand squeeze unsqueeze select slice split
        split_with_sizes chunk unbind narrow detach alias as_strided diagonal unfold view_as_real
        view_as_complex movedim moveaxis swapaxes swapdims numpy_T mT mH matrix_H adjoint lift lift_fresh
        unflatten tensor_split hsplit vsplit dsplit real imag
    """,
    Kind.CREATION: """
        full zeros ones scalar_tensor full_like zeros_like ones_like new_full new_zeros new_ones
    """,
    Kind.RANDOM: """
        rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal poisson
        native_dropout uniform exponential geometric cauchy log_normal rrelu_with_noise
        rrelu_with_noise_functional binomial
    """,
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def packet(op: str) -> str:
    """`conv2d` of `aten.conv2d.default`."""
    return op.split(".")[1] if op.count(".") >= 2 else op


def argument(node: Node, position: int, name: str, default: Arg = None) -> Arg:
    """An argument given by position or by keyword."""
    return node.args[position] if len(node.args) > position else node.kwarg(name, default)


def kind_of(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    """Classify a node; `specs` holds at least the tensors that it reads."""
    name = packet(node.op)
    if name in _CONDITIONAL:
        return _CONDITIONAL[name](node, specs)
    if not node.op.startswith("aten."):
        return Kind.OTHER
    return _KINDS.get(name) or _kind_by_schema(node)


def _source(node: Node, specs: dict[str, TensorSpec]) -> TensorSpec:
    return specs[node.reads[0]]


def _reshape(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.VIEW if viewable(_source(node, specs), node.outputs[0].spec.shape) else Kind.COPY


def _contiguous(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    wanted = argument(node, 1, "memory_format")
    layout = wanted.name if isinstance(wanted, Symbol) else "contiguous_format"
    return Kind.VIEW if is_contiguous(_source(node, specs), layout) else Kind.COPY


def _cast(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    source, result = _source(node, specs), node.outputs[0].spec
    if source.dtype != result.dtype:
        return Kind.POINTWISE
    copies = packet(node.op) == "_to_copy" or node.kwarg("copy") is True or source.stride != result.stride
    return Kind.COPY if copies else Kind.VIEW


def _copy(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.COPY


def _dropout(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.RANDOM if argument(node, 2, "train") else Kind.VIEW


def _batch_norm(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.OTHER if is_training_norm(node) else Kind.POINTWISE


def _native_dropout(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.OTHER if argument(node, 2, "train") is False else Kind.RANDOM


def _attention(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    where = 4 if packet(node.op) == "scaled_dot_product_attention" else 3
    return Kind.RANDOM if argument(node, where, "dropout_p", 0.0) else Kind.ATTENTION


def _minmax(node: Node, specs: dict[str, TensorSpec]) -> Kind:
    return Kind.POINTWISE if node.op.endswith(".other") else Kind.REDUCTION


def is_training_norm(node: Node) -> bool:
    """Does this batch norm use the statistics of its batch?"""
    name = packet(node.op)
    if name == "_native_batch_norm_legit_no_training":
        return False
    if name in ("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional"):
        return True
    at = 3 if node.op.endswith("_legit.no_stats") else 5
    return argument(node, at, "training") is not False


_CONDITIONAL: dict[str, Callable[[Node, dict[str, TensorSpec]], Kind]] = {
    "reshape": _reshape,
    "flatten": _reshape,
    "contiguous": _contiguous,
    "to": _cast,
    "_to_copy": _cast,
    "type_as": _cast,
    "clone": _copy,
    "lift_fresh_copy": _copy,
    "dropout": _dropout,
    "alpha_dropout": _dropout,
    "feature_dropout": _dropout,
    "feature_alpha_dropout": _dropout,
    "native_dropout": _native_dropout,
    "batch_norm": _batch_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_batch_norm_with_update_functional": _batch_norm,
    "scaled_dot_product_attention": _attention,
    "max": _minmax,
    "min": _minmax,
}


def _kind_by_schema(node: Node) -> Kind:
    """For ops in no table: torch itself says whether they draw random numbers or return a view."""
    import torch

    from mkevolve.errors import CaptureError
    from mkevolve.reference import resolve_op

    try:
        op = resolve_op(node.op)
    except CaptureError:
        return Kind.OTHER
    if torch.Tag.nondeterministic_seeded in op.tags:
        return Kind.RANDOM
    returns = op._schema.returns
    if returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns):
        return Kind.VIEW
    return Kind.POINTWISE if torch.Tag.pointwise in op.tags and len(node.outputs) == 1 else Kind.OTHER
