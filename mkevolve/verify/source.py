"""A candidate file as syntax: what it may import, define and name; nothing of it is ever executed here."""

import ast
import builtins
from dataclasses import dataclass

from mkevolve.data.tunables import Tunables, TunablesFault, tunables_of

MAX_BYTES = 64 * 1024

_MODULES = frozenset(
    {
        "math",
        "torch",
        "torch.nn.functional",
        "triton",
        "triton.language",
        "triton.language.math",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "triton.language.extra.hip.libdevice",
    }
)
_FROM = {
    "__future__": frozenset({"annotations"}),
    "torch": frozenset({"Tensor"}),
    "triton": frozenset({"jit", "cdiv", "next_power_of_2"}),
    "triton.language": frozenset({"constexpr"}),
}
LIBDEVICE = tuple(m for m in sorted(_MODULES) if m.endswith("libdevice"))
_ALLOWED_IMPORTS = "torch, triton, triton.language, libdevice and math"

# Syntax that no part of a candidate needs; each could hide state, control flow or another process.
_REFUSED: dict[type[ast.AST], str] = {
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "async code",
    ast.AsyncFor: "async code",
    ast.AsyncWith: "async code",
    ast.Await: "async code",
    ast.Yield: "a generator",
    ast.YieldFrom: "a generator",
    ast.GeneratorExp: "a generator (use a list)",
    ast.Global: "`global`: a candidate keeps no state between calls",
    ast.Nonlocal: "`nonlocal`: a candidate keeps no state between calls",
    ast.Try: "`try`: a failing launch must be seen",
    ast.TryStar: "`try`: a failing launch must be seen",
    ast.With: "`with`",
    ast.Delete: "`del`",
    ast.NamedExpr: "`:=`",
    ast.Match: "`match`",
}


def words(text: str) -> frozenset[str]:
    """The set of words of a table written as text."""
    return frozenset(text.split())


class Violation(Exception):
    """A rule of the kernel contract is broken at `line`; becomes a verdict in `verify/static.py`."""

    def __init__(self, node: ast.AST | None, message: str) -> None:
        self.line: int | None = getattr(node, "lineno", None)
        super().__init__(message)


@dataclass(frozen=True)
class Source:
    """A parsed candidate. `imports` maps a name to what it stands for (`tl` -> `triton.language`)."""

    imports: dict[str, str]
    constants: dict[str, ast.expr]
    jits: dict[str, ast.FunctionDef]
    hosts: dict[str, ast.FunctionDef]
    tunables: Tunables

    def dotted(self, node: ast.expr) -> str | None:
        """The full name behind `tl.math.exp`; None where the chain does not start at an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)])


def parse(source: str) -> Source:
    """Parse a file and apply the rules that hold everywhere in it; raises Violation."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        raise Violation(None, f"the file is larger than {MAX_BYTES // 1024} KiB")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        violation = Violation(None, f"not Python: {error}")
        violation.line = getattr(error, "lineno", None)
        raise violation from None
    imports = _imports(tree)
    for node in ast.walk(tree):
        _everywhere(node)
    found = Source(imports, {}, {}, {}, _table(tree))
    for statement in tree.body:
        _module_level(statement, found)
    return found


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in _MODULES:
                    raise Violation(node, f"import of {alias.name}; allowed: {_ALLOWED_IMPORTS}")
                top = alias.name.split(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if node.level or (
                    full not in _MODULES and alias.name not in _FROM.get(node.module or "", ())
                ):
                    raise Violation(node, f"import of {full}; allowed: {_ALLOWED_IMPORTS}")
                if node.module != "__future__":
                    found[alias.asname or alias.name] = full
    return found


def _everywhere(node: ast.AST) -> None:
    if type(node) in _REFUSED:
        raise Violation(node, f"{_REFUSED[type(node)]} is not allowed in a candidate")
    for field in ("id", "attr", "arg", "name"):
        name = getattr(node, field, None)
        if isinstance(name, str) and name.startswith("__"):
            raise Violation(node, f"the name {name} is not allowed in a candidate")
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        raise Violation(node, "assigning an attribute: a candidate keeps no state between calls")


def _module_level(node: ast.stmt, found: Source) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            return
        case ast.Expr(ast.Constant(str())):
            return
        case ast.FunctionDef():
            _define(node, node.name, found)
            kind = found.jits if _is_jit(node, found) else found.hosts
            kind[node.name] = node
        case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name), value=ast.expr()):
            assert node.value is not None
            _define(node, name, found)
            if name != "TUNABLES":
                if not _is_literal(node.value, found):
                    raise Violation(
                        node, f"{name} must be a number, text or tuple of them: nothing runs on import"
                    )
                found.constants[name] = node.value
        case _:
            raise Violation(node, "at module level: only imports, constants and functions")


def _define(node: ast.stmt, name: str, found: Source) -> None:
    taken = name in found.imports or name in found.constants or name in found.jits or name in found.hosts
    if taken or hasattr(builtins, name):
        raise Violation(node, f"{name} is defined already")


def _is_jit(node: ast.FunctionDef, found: Source) -> bool:
    _check_signature(node, found)
    if not node.decorator_list:
        return False
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = found.dotted(target)
        if name in ("triton.autotune", "triton.heuristics"):
            raise Violation(decorator, f"{name}: use TUNABLES, and compute what depends on sizes in run")
        if name != "triton.jit" or len(node.decorator_list) > 1:
            raise Violation(decorator, f"decorator of {node.name}: only triton.jit is allowed")
        if isinstance(decorator, ast.Call) and (
            decorator.args or not all(_is_literal(k.value, found) for k in decorator.keywords)
        ):
            raise Violation(decorator, "triton.jit takes literal options only")
    return True


def _check_signature(node: ast.FunctionDef, found: Source) -> None:
    arguments = node.args
    defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
    for default in defaults:
        if not _is_literal(default, found):
            raise Violation(default, f"a default of {node.name} must be a number, text or tuple of them")
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for annotation in [a.annotation for a in every] + [node.returns]:
        if annotation is not None and not _is_type(annotation, found):
            raise Violation(annotation, f"an annotation of {node.name} must name a type")
    if arguments.vararg or arguments.kwarg:
        raise Violation(node, f"{node.name} must name its arguments: no * or **")


def _is_literal(node: ast.expr, found: Source) -> bool:
    match node:
        case ast.Constant(value):
            return value is not Ellipsis
        case ast.Tuple(elts):
            return all(_is_literal(e, found) for e in elts)
        case ast.UnaryOp(operand=operand):
            return _is_literal(operand, found)
        case ast.BinOp(left=left, op=op, right=right):
            # A power or a shift of literals can take forever.
            small = not isinstance(op, ast.Pow | ast.LShift | ast.MatMult)
            return small and _is_literal(left, found) and _is_literal(right, found)
        case ast.Name(name):
            return name in found.constants
        case ast.Call(func=func, args=[argument], keywords=[]):
            return found.dotted(func) == "triton.language.constexpr" and _is_literal(argument, found)
        case ast.Attribute():
            dotted = found.dotted(node)
            return dotted is not None and is_dtype(dotted)
    return False


def is_dtype(dotted: str) -> bool:
    """Tell whether a full name is a dtype of triton.language or torch."""
    module, _, name = dotted.rpartition(".")
    stem = name.rstrip("0123456789").rstrip("_")
    return module in ("triton.language", "torch") and (
        stem in ("float", "bfloat", "int", "uint", "bool", "half", "double", "long", "short")
        or name.startswith("float8")
    )


def _is_type(node: ast.expr, found: Source) -> bool:
    match node:
        case ast.Constant(value):
            return value is None or isinstance(value, str)
        case ast.Name(name) if name in ("int", "float", "bool", "str", "tuple", "list"):
            return True
        case ast.Subscript(value=value, slice=inner):
            return _is_type(value, found) and _is_type(inner, found)
        case ast.Tuple(elts):
            return all(isinstance(e, ast.Constant) or _is_type(e, found) for e in elts)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left, found) and _is_type(right, found)
        case ast.Name() | ast.Attribute():
            dotted = found.dotted(node)
            return dotted is not None and (
                dotted
                in ("torch.Tensor", "triton.language.constexpr", "triton.language.tensor", "torch.dtype")
                or is_dtype(dotted)
            )
    return False


def _table(tree: ast.Module) -> Tunables:
    try:
        return tunables_of(tree)
    except TunablesFault as fault:
        raise Violation(fault.node, str(fault)) from None
