"""Rules for the bodies of jit functions: the interpreter runs them as Python, so they are host code too."""

import ast

from mkevolve.verify.source import LIBDEVICE, Source, Violation, is_dtype, words

_LANGUAGE = words(
    """
    PropagateNan TRITON_MAX_TENSOR_NUMEL abs add advance arange argmax argmin associative_scan assume
    atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor broadcast
    broadcast_to cast cat cdiv ceil clamp constexpr cos cumprod cumsum debug_barrier device_assert
    div_rn dot dot_scaled erf exp exp2 expand_dims fdiv flip floor fma full gather histogram interleave
    join load load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor max max_constancy
    max_contiguous maximum min minimum mul multiple_of num_programs permute pi32_t pointer_type
    program_id range ravel reduce reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn squeeze
    static_assert static_range store store_tensor_descriptor sub sum swizzle2d tensor topk trans umulhi
    unsqueeze view where xor_sum zeros zeros_like philox rand randn randint
    """
)
_MATH = words(
    """
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
    """
)
_METHODS = words(
    """
    T abs advance argmax argmin associative_scan broadcast_to cast cdiv ceil cos cumprod cumsum dtype
    element_ty erf exp exp2 expand_dims flip floor gather is_floating is_fp16 is_fp32 is_bf16 is_int
    histogram load log log2 logical_and logical_or max min numel permute primitive_bitwidth ravel reduce
    reshape rsqrt scalar shape sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans type value
    view xor_sum atomic_add atomic_max atomic_min
    """
)
_BUILTINS = words(
    """
    range min max abs int float bool len tuple
    """
)
_STATEMENTS = (
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.For,
    ast.While,
    ast.If,
    ast.Return,
    ast.Expr,
    ast.Assert,
    ast.Pass,
)
_EXPRESSIONS = (
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Compare,
    ast.Call,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Name,
    ast.Tuple,
    ast.List,
    ast.Slice,
    ast.JoinedStr,
    ast.FormattedValue,
)


def check_jit(function: ast.FunctionDef, source: Source) -> None:
    """Allow triton.language, libdevice, other jit functions, constants and arithmetic; raises Violation."""
    arguments = function.args
    known = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    known |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for name in known:
        if name in source.imports or name in source.jits or name in source.hosts:
            raise Violation(function, f"{function.name} gives the name {name} another meaning")
    for statement in function.body:
        for node in ast.walk(statement):
            _node(node, known, source, function.name)


def _node(node: ast.AST, known: set[str], source: Source, where: str) -> None:
    if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
        raise Violation(node, f"{type(node).__name__} in the jit function {where}")
    if isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS):
        raise Violation(node, f"{type(node).__name__} in the jit function {where}")
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        raise Violation(node, f"assignment to an element in the jit function {where}")
    if isinstance(node, ast.Attribute):
        _attribute(node, source, where)
    elif isinstance(node, ast.Call):
        _call(node, known, source, where)
    elif isinstance(node, ast.Name) and not _resolves(node.id, known, source):
        raise Violation(
            node, f"{node.id} in the jit function {where}: not a parameter, constant or jit function"
        )


def _resolves(name: str, known: set[str], source: Source) -> bool:
    return (
        name in known
        or name in source.imports
        or name in source.constants
        or name in source.jits
        or name in _BUILTINS
    )


def _attribute(node: ast.Attribute, source: Source, where: str) -> None:
    dotted = source.dotted(node)
    if dotted is None:
        if node.attr not in _METHODS:
            raise Violation(
                node, f".{node.attr} in the jit function {where} is not an attribute of a triton tensor"
            )
    elif not language(dotted):
        raise Violation(node, f"{dotted} in the jit function {where}: only triton.language and libdevice")


def language(dotted: str) -> bool:
    """Tell whether a full name may be used in a jit body (a module that leads to one included)."""
    if dotted in (
        "triton.language",
        "triton.language.math",
        "triton.language.extra",
        "triton.language.extra.cuda",
    ):
        return True
    if dotted in LIBDEVICE or dotted in (
        "triton",
        "triton.cdiv",
        "math.inf",
        "math.pi",
        "math.e",
        "math.nan",
    ):
        return True
    module, _, name = dotted.rpartition(".")
    if module == "triton.language.PropagateNan":
        return name in ("ALL", "NONE")
    if name.startswith("_"):
        return False
    return (
        (module == "triton.language" and (name in _LANGUAGE or is_dtype(dotted)))
        or (module == "triton.language.math" and name in _MATH)
        or module in LIBDEVICE
    )


def _call(node: ast.Call, known: set[str], source: Source, where: str) -> None:
    func = node.func
    if isinstance(func, ast.Name):
        callable_import = language(source.imports.get(func.id, ""))
        if func.id in known or not (func.id in source.jits or func.id in _BUILTINS or callable_import):
            raise Violation(node, f"{func.id}(...) in the jit function {where}: not a jit function")
    elif not isinstance(func, ast.Attribute):
        raise Violation(node, f"a call of an expression in the jit function {where}")
    if any(k.arg is None for k in node.keywords):
        raise Violation(node, f"** in a call in the jit function {where}")


def open_dots(source: Source) -> tuple[int, ...]:
    """Lines of `tl.dot` calls that do not say their `input_precision`."""
    found = []
    for function in source.jits.values():
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and source.dotted(node.func) == "triton.language.dot":
                given = {k.arg for k in node.keywords}
                if not given & {"input_precision", "allow_tf32"} and len(node.args) < 4:
                    found.append(node.lineno)
    return tuple(sorted(found))
