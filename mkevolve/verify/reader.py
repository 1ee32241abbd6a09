"""Reads a candidate file: the rules that hold everywhere in it, and what may stand at module level."""

import ast
import builtins

from mkevolve.data.tunables import TunablesFault, tunables_of
from mkevolve.verify.decorators import CALLED, read_decorators
from mkevolve.verify.language import LIBDEVICE, language
from mkevolve.verify.literals import is_literal, is_type
from mkevolve.verify.source import MAX_BYTES, Source, Violation, is_dtype, parameters, words
from mkevolve.verify.text import check_lines, check_text

_MODULES = frozenset(
    {
        "math",
        "torch",
        "torch.nn.functional",
        "triton",
        "triton.language",
        "triton.language.math",
        "triton.language.extra",
        *LIBDEVICE,
    }
)
_FROM = {
    "__future__": words("annotations"),
    "typing": words("Any List Optional Sequence Tuple Union"),  # for annotations only
    "torch": words(
        """
        Tensor Size dtype empty empty_like empty_strided zeros zeros_like ones ones_like full full_like
        """
    ),
    "triton": words("jit cdiv next_power_of_2 autotune heuristics Config constexpr_function"),
    "math": words("ceil floor sqrt log log2 exp prod gcd inf pi e nan isqrt"),
}
_IMPORTS = "torch, triton, triton.language, libdevice and math"

# Syntax that no part of a candidate needs; each could hide state, control flow or another process.
_REFUSED: dict[type[ast.AST], str] = {
    ast.ClassDef: "a class: use functions and tuples",
    ast.AsyncFunctionDef: "async code",
    ast.AsyncFor: "async code",
    ast.AsyncWith: "async code",
    ast.Await: "async code",
    ast.Yield: "a generator: return a tuple",
    ast.YieldFrom: "a generator: return a tuple",
    ast.Global: "`global`: a candidate keeps no state between calls",
    ast.Nonlocal: "`nonlocal`: a candidate keeps no state between calls",
    ast.Try: "`try`: a failing launch must be seen",
    ast.TryStar: "`try`: a failing launch must be seen",
    ast.With: "`with`: no guard, stream or mode is needed; drop it",
    ast.Delete: "`del`: drop it",
    ast.NamedExpr: "`:=`: assign on a line of its own",
    ast.Match: "`match`: use `if`",
    ast.Set: "a set: use a tuple",
    ast.SetComp: "a set: use a list",
    ast.DictComp: "a dict comprehension: use a list",
}


def parse(source: str) -> Source:
    """Parse a file and apply the rules that hold everywhere in it; raises Violation."""
    if len(source.encode(errors="replace")) > MAX_BYTES:
        raise Violation(None, f"the file is larger than {MAX_BYTES // 1024} KiB")
    check_text(source)
    try:
        # From bytes, as the import system reads the file: an encoding line counts then.
        tree = ast.parse(source.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        violation = Violation(None, f"not Python: {error}")
        violation.line = getattr(error, "lineno", None)
        raise violation from None
    asked: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked.update(_asked(node))
        if node not in asked:
            _everywhere(node)
    try:
        found = Source(_imports(tree), tunables_of(tree))
    except TunablesFault as fault:
        raise Violation(fault.node, str(fault)) from None
    for statement in tree.body:
        _module_level(statement, found)
    for function in found.jits.values():
        check_lines(function, source)
    return found


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.body:
        for name, full in _imported(node):
            if name in CALLED:
                raise Violation(node, f"{name} must be a plain function")
            if hasattr(builtins, name):
                raise Violation(node, f"{full} is imported as {name}, which has a meaning already")
            if found.get(name, full) != full:
                raise Violation(node, f"{name} is imported twice, as {found[name]} and as {full}")
            found[name] = full
    return found


def _imported(node: ast.stmt) -> list[tuple[str, str]]:
    """The (name, full name) pairs that a statement imports."""
    found = []
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in _MODULES:
                raise Violation(node, f"import of {alias.name}; allowed: {_IMPORTS}")
            top = alias.name.split(".")[0]
            found.append((alias.asname or top, alias.name if alias.asname else top))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if node.level or not _importable(node.module or "", alias.name):
                raise Violation(node, f"import of {full}; allowed: {_IMPORTS}")
            if node.module != "__future__":
                found.append((alias.asname or alias.name, full))
    return found


def _importable(module: str, name: str) -> bool:
    full = f"{module}.{name}"
    if full in _MODULES or name in _FROM.get(module, ()) or is_dtype(full):
        return True
    return module != "triton" and language(full) and module.startswith("triton.language")


def _everywhere(node: ast.AST) -> None:
    if type(node) in _REFUSED:
        raise Violation(node, f"{_REFUSED[type(node)]} (not allowed in a candidate)")
    if getattr(node, "type_params", None):
        raise Violation(node, "type parameters: name the types of arguments plainly, or not at all")
    for name_of in ("id", "attr", "arg", "name", "asname"):
        name = getattr(node, name_of, None)
        if isinstance(name, str) and name.startswith("__"):
            hint = "; drop the main block" if name == "__name__" else ""
            raise Violation(node, f"the name {name} is not allowed in a candidate{hint}")
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        raise Violation(node, "assigning an attribute: a candidate keeps no state between calls")


def _asked(test: ast.Compare) -> list[ast.expr]:
    """Sets that are only asked whether something is in them: their order is never seen."""
    pairs = zip(test.ops, test.comparators, strict=True)
    return [right for op, right in pairs if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Set)]


def _module_level(node: ast.stmt, found: Source) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            return
        case ast.Expr(ast.Constant(str())) | ast.Pass():
            return
        case ast.FunctionDef():
            _define(node, node.name, found)
            _signature(node, found)
            read_decorators(node, found)
        case ast.Assign(targets=[ast.Name(name)], value=value):
            _define(node, name, found)
            _constant(node, name, value, found)
        case ast.AnnAssign(target=ast.Name(name), annotation=annotation, value=ast.expr() as value):
            if not is_type(annotation, found):
                raise Violation(node, f"the annotation of {name} must name a type: nothing runs on import")
            _define(node, name, found)
            _constant(node, name, value, found)
        case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)) if len(names) == len(values):
            for target, part in zip(names, values, strict=True):
                if not isinstance(target, ast.Name) or target.id == "TUNABLES":
                    raise Violation(node, "at module level: one name an assignment")
                _define(node, target.id, found)
                _constant(node, target.id, part, found)
        case _:
            raise Violation(node, "at module level: only imports, constants and functions; nothing runs")


def _constant(node: ast.stmt, name: str, value: ast.expr, found: Source) -> None:
    if name in CALLED:
        raise Violation(node, f"{name} must be a plain function")
    if name != "TUNABLES" and not is_literal(value, found):
        raise Violation(
            node, f"{name} must be a number, text or tuple of them: nothing runs on import, nothing is kept"
        )
    found.constants[name] = value


def _define(node: ast.stmt, name: str, found: Source) -> None:
    known = (found.imports, found.constants, found.jits, found.hosts)
    if any(name in table for table in known) or hasattr(builtins, name):
        raise Violation(node, f"{name} is defined already")


def _signature(node: ast.FunctionDef, found: Source) -> None:
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    for default in defaults:
        if not is_literal(default, found):
            raise Violation(default, f"a default of {node.name} must be a number, text or tuple of them")
    for annotation in [a.annotation for a in parameters(node)] + [node.returns]:
        if annotation is not None and not is_type(annotation, found):
            raise Violation(annotation, f"an annotation of {node.name} must name a type")
    if node.args.vararg or node.args.kwarg:
        raise Violation(node, f"{node.name} must name its arguments: no * or **")
