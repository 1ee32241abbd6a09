"""What host code may name: kinds of values, and the attributes and calls that the kernel contract allows."""

import ast
from dataclasses import dataclass, field
from enum import StrEnum

from mkevolve.verify.source import Violation, words


class Kind(StrEnum):
    """What an expression may be. A container is TENSOR where it may hold one."""

    PLAIN = "plain"  # numbers, text, sizes, dtypes, devices
    TENSOR = "tensor"
    KERNEL = "kernel"  # a jit function
    LAUNCHER = "launcher"  # a jit function with its grid


Shape = Kind | tuple["Shape", ...]

SIZES = words(
    """
    shape stride size numel dtype device ndim dim element_size is_contiguous storage_offset layout
    nbytes itemsize is_floating_point is_cuda nelement
    """
)
VIEWS = words(
    """
    view reshape permute transpose t squeeze unsqueeze expand expand_as narrow select unflatten flatten
    as_strided movedim moveaxis swapaxes swapdims mT T unbind split chunk view_as detach diagonal unfold
    """
)
METHOD_ALLOCATIONS = words(
    """
    new_empty new_empty_strided new_zeros new_full
    """
)
ALLOCATIONS = words(
    """
    torch.empty torch.empty_like torch.empty_strided torch.empty_permuted torch.zeros torch.zeros_like
    torch.full torch.full_like
    """
)
PLAIN_ATTRIBUTES = words(
    """
    itemsize is_floating_point is_complex is_signed type index numel get items keys values
    """
)
BUILTINS = words(
    """
    int float bool str len range min max abs tuple list dict sum round divmod enumerate zip isinstance
    sorted pow any all slice reversed True False None
    """
)
HOLDS_TENSORS = words(
    """
    len tuple list enumerate zip isinstance reversed any all
    """
)
RAISES = words(
    """
    ValueError NotImplementedError AssertionError RuntimeError TypeError
    """
)
TORCH_PLAIN = words(
    """
    torch.Tensor torch.Size torch.dtype torch.contiguous_format torch.channels_last
    torch.channels_last_3d torch.preserve_format torch.strided torch.inf torch.nan torch.pi
    """
)
LAUNCH_REFUSED = frozenset({"warmup", "grid", "stream", "device"})
# Reached through a tensor or torch in prepare, these lead elsewhere: files, processes, hooks, global state.
PREPARE_REFUSED = words(
    """
    load save ops cuda hub compile library jit utils multiprocessing distributed autograd from_file
    apply_ map_ register_hook share_memory_ numpy data_ptr storage untyped_storage set_ backward
    requires_grad_ tolist set_default_dtype set_default_device set_num_threads set_grad_enabled
    manual_seed seed use_deterministic_algorithms set_printoptions set_rng_state get_rng_state rand
    randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial poisson
    dropout fx export func overrides testing profiler package serialization classes backends mps xpu
    random futures onnx optim nn masked nested sparse quantization ao monitor return_types types
    frombuffer from_numpy from_dlpack vmap compiler is_grad_enabled as_subclass
    """
)


def holds(shape: Shape, kind: Kind) -> bool:
    """Tell whether a value of this kind may be, or contain, one of `kind`."""
    return any(holds(s, kind) for s in shape) if isinstance(shape, tuple) else shape == kind


def element(shape: Shape) -> Shape:
    """What iterating or indexing gives."""
    if not isinstance(shape, tuple):
        return shape
    if not shape:
        return Kind.PLAIN
    found = shape[0]
    for part in shape[1:]:
        found = join(found, part)
    return found


def join(a: Shape, b: Shape) -> Shape:
    """The kind of a value that is one or the other."""
    if a == b:
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(join(x, y) for x, y in zip(a, b, strict=True))
    for kind in (Kind.LAUNCHER, Kind.KERNEL, Kind.TENSOR):
        if holds(a, kind) or holds(b, kind):
            return kind
    return Kind.PLAIN


@dataclass
class Scope:
    """One function being interpreted with the kinds of its arguments."""

    name: str
    prepare: bool
    names: dict[str, Shape]
    result: list[Shape] = field(default_factory=list)


def bind(
    function: ast.FunctionDef, kinds: list[Shape], keywords: dict[str, Shape], node: ast.AST
) -> dict[str, Shape]:
    """Map the arguments of a call to the parameters of a host function; raises Violation."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    every = [*parameters, *(a.arg for a in function.args.kwonlyargs)]
    if len(kinds) > len(parameters) or not set(keywords) <= set(every):
        raise Violation(node, f"the call does not fit {function.name}")
    found: dict[str, Shape] = dict.fromkeys(every, Kind.PLAIN)
    found.update(zip(parameters, kinds, strict=False))
    found.update(keywords)
    return found
