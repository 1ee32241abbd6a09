"""What host code may name: the attributes, functions and options that the kernel contract allows."""

from functools import cache

import torch

from mkevolve.verify.source import words

SIZES = words(
    """
    shape stride size numel dtype device ndim dim element_size is_contiguous storage_offset layout
    nbytes itemsize is_floating_point is_complex is_signed nelement requires_grad
    """
)
# `contiguous`, `reshape` and `flatten` copy where they must: dispatch sees that, and refuses it.
VIEWS = words(
    """
    view reshape permute transpose t squeeze unsqueeze expand expand_as narrow select unflatten flatten
    as_strided movedim moveaxis swapaxes swapdims mT T unbind split chunk tensor_split view_as detach
    diagonal unfold ravel broadcast_to contiguous
    """
)
VIEW_LIKE = frozenset({"expand_as", "view_as"})  # take a tensor for its shape
VIEW_FUNCTIONS = frozenset(
    f"torch.{name}"
    for name in VIEWS
    - VIEW_LIKE
    - words("view expand mT T contiguous unfold")  # methods only, and `torch.unfold` is none
)
METHOD_ALLOCATIONS = words("new_empty new_empty_strided new_zeros new_ones new_full")
ALLOCATIONS = words(
    """
    torch.empty torch.empty_like torch.empty_strided torch.empty_permuted torch.zeros torch.zeros_like
    torch.ones torch.ones_like torch.full torch.full_like
    """
)
ALLOCATION_KEYWORDS = words("size dtype device layout memory_format fill_value stride physical_layout input")
PLAIN_ATTRIBUTES = words(
    """
    itemsize is_floating_point is_complex is_signed index max min eps tiny smallest_normal bits
    """
)
PLAIN_METHODS = words("index count numel get items keys values bit_length")
BUILTINS = words(
    """
    int float bool str len range min max abs tuple list dict sum round divmod enumerate zip isinstance
    sorted pow any all slice reversed
    """
)
TYPES = words("int float bool str tuple list")
HOLDS_TENSORS = words("len tuple list enumerate zip isinstance reversed")
CONSUMES = words("tuple list sum min max any all sorted prod")  # read a generator to its end at once
RAISES = words("ValueError NotImplementedError AssertionError RuntimeError TypeError")
PLAIN_CALLS = words(
    """
    triton.cdiv triton.next_power_of_2 torch.Size torch.finfo torch.iinfo
    """
)
TORCH_TYPES = words("torch.Tensor torch.Size torch.dtype torch.device")
TORCH_PLAIN = words(
    """
    torch.contiguous_format torch.channels_last torch.channels_last_3d torch.preserve_format
    torch.strided torch.inf torch.nan torch.pi
    """
)
# Beside a kernel's own arguments; others would name files, hooks or another precision.
OPTIONS = words(
    """
    num_warps num_stages num_ctas maxnreg enable_fp_fusion waves_per_eu matrix_instr_nonkdim kpack
    """
)
CURE = "it may only allocate, take views and launch kernels"
_CURES = (
    (words("is_cuda get_device"), "drop the check: candidates are also called on meta and CPU tensors"),
    (words("to float half bfloat16 double int long bool type"), "cast inside the kernel"),
    (words("clone copy_ fill_ zero_ cat stack pad"), "let a kernel write it"),
    (words("item tolist cpu numpy"), "values stay on the device: read them in the kernel"),
    (words("data_ptr untyped_storage storage data"), "pass the tensor itself"),
    (words("matmul mm bmm einsum linear addmm"), "use tl.dot in a kernel"),
    (words("cuda Stream synchronize"), "no streams and no questions to the device; numbers go to TUNABLES"),
    (words("runtime testing tools"), "a candidate may not ask or time the device; numbers go to TUNABLES"),
    (words("set_allocator"), "use pointers: descriptors made on the device need an allocator"),
    (words("device"), "write device=x.device"),
    (words("fn run cache hash src asm metadata pre_run_hooks"), "kernels are only launched"),
)
_PREPARE_REFUSED = words(
    """
    from_file set_ set_data data requires_grad_ retain_grad record_stream pin_memory is_pinned item random
    resize resize_ resize_as resize_as_ tolist backward
    """
)
_PREPARE_ALSO = words(
    "torch.tensor torch.as_tensor torch.nn.functional.normalize torch.nn.functional.pad "
    "torch.nn.functional.one_hot torch.nn.functional.interpolate"
)
_PREPARE_METHODS = words("float half bfloat16 double int long short bool type new_tensor")


def cure(name: str) -> str:
    """What to do instead of using an attribute or function."""
    if name.endswith("device.type"):
        name = "is_cuda"
    for part in reversed(name.split(".")):
        for names, text in _CURES:
            if part in names:
                return text
    return "do it in a kernel"


@cache
def _operators() -> frozenset[str]:
    """Torch's own operators that always give the same for the same inputs, and touch nothing else."""
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        name = name.partition(".")[0]
        if namespace == "aten" and not name.startswith("_") and name not in found:
            packet = getattr(torch.ops.aten, name)
            tags = [getattr(packet, overload).tags for overload in packet.overloads()]
            if not any(torch.Tag.nondeterministic_seeded in t for t in tags):
                found.add(name)
    return frozenset(found) - _PREPARE_REFUSED


def prepare_method(name: str) -> bool:
    """Tell whether `prepare` may use this attribute of a tensor."""
    return name in _operators() or name in _PREPARE_METHODS


def prepare_function(dotted: str) -> bool:
    """Tell whether `prepare` may call this function of torch."""
    module, _, name = dotted.rpartition(".")
    prefix = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}.get(module, "")
    known = module in ("torch", "torch.nn.functional") or prefix
    return dotted in _PREPARE_ALSO or bool(known and f"{prefix}{name}" in _operators())
