"""What a jit body may name of triton.language, its mathematics and libdevice."""

from mkevolve.verify.source import is_dtype, words

_EXTRA = "triton.language.extra"
LIBDEVICE = (f"{_EXTRA}.cuda.libdevice", f"{_EXTRA}.hip.libdevice", f"{_EXTRA}.libdevice")
_MODULES = frozenset({"triton", "triton.language", "triton.language.math", _EXTRA, f"{_EXTRA}.cuda"})
_LANGUAGE = words(
    """
    PropagateNan TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume
    atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor broadcast
    broadcast_to cast cat cdiv ceil clamp condition const constexpr cos cumprod cumsum debug_barrier
    device_assert div_rn dot dot_scaled dtype erf exp exp2 expand_dims fdiv flip floor fma full gather
    histogram interleave join load load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor
    max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs permute philox
    program_id rand rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt
    sigmoid sin slice softmax sort split sqrt sqrt_rn squeeze static_assert static_range store
    store_tensor_descriptor sub sum swizzle2d tensor topk trans umulhi unsqueeze view where xor_sum zeros
    zeros_like
    """
)
_TYPES = words("const dtype slice tensor")  # not called: annotations and comparisons only
_MATH = words(
    """
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
    """
)
_NUMBERS = words("math.inf math.pi math.e math.nan")
METHODS = words(
    """
    T abs advance argmax argmin associative_scan broadcast_to cast cdiv ceil cos cumprod cumsum dtype
    element_ty erf exp exp2 expand_dims flip floor gather is_floating is_fp16 is_fp32 is_bf16 is_int
    histogram load log log2 logical_and logical_or max min numel permute primitive_bitwidth ravel reduce
    reduce_or reshape rsqrt scalar shape sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans
    type value view xor_sum atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg
    atomic_xor
    """
)
_CURES = {
    "inline_asm_elementwise": "assembly cannot be interpreted or checked; write Triton",
    "device_print": "a kernel writes to its results only; remove it",
    "static_print": "a kernel writes to its results only; remove it",
    "print": "a kernel writes to its results only; remove it",
    "pointer_type": "pointers come from arguments only",
    "pi32_t": "pointers come from arguments only",
    "map_elementwise": "call the jit function on the whole block",
    "core": "use triton.language itself",
    "break": "Triton has none; use a while loop's condition",
    "continue": "Triton has none; use `if`",
}


def language(dotted: str) -> bool:
    """Tell whether a full name may be used in a jit body (a module that leads to one included)."""
    if dotted in _MODULES or dotted in LIBDEVICE or dotted == "triton.cdiv" or dotted in _NUMBERS:
        return True
    module, _, name = dotted.rpartition(".")
    if module == "triton.language.PropagateNan":
        return name in ("ALL", "NONE")
    if name.startswith("_"):
        return False
    return (
        (module == "triton.language" and (name in _LANGUAGE or is_dtype(dotted)))
        or (module == "triton.language.math" and name in _MATH)
        or (module in LIBDEVICE and name.isidentifier() and name not in ("core", "math", "triton"))
    )


def is_type(dotted: str) -> bool:
    """Tell whether a full name is a class of the language that a jit body may name, but not call."""
    module, _, name = dotted.rpartition(".")
    return module == "triton.language" and (name in _TYPES or is_dtype(dotted))


def cure(name: str) -> str:
    """What to write instead of a refused name."""
    return _CURES.get(name.rpartition(".")[2].lower(), "only triton.language, libdevice and jit functions")
