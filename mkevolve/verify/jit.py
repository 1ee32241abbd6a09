"""Rules for the bodies of jit functions: the interpreter runs them as Python, so they are host code too."""

import ast

from mkevolve.verify.language import METHODS, cure, is_type, language
from mkevolve.verify.source import Source, Violation, is_constexpr, parameters, words

_BUILTINS = words("range min max abs int float bool len tuple")
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
    body = _Body(function, source)
    for statement in function.body:
        for node in ast.walk(statement):
            body.check(node)


class _Body:
    """The body of one jit function: `_local` are its names, `_passed` those that may be jit functions."""

    def __init__(self, function: ast.FunctionDef, source: Source) -> None:
        self._source = source
        self._where = f"the jit function {function.name}"
        stored = {
            n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._local = {a.arg for a in parameters(function)} | stored
        self._passed = {a.arg for a in parameters(function) if is_constexpr(a, source)} - stored
        self._bases: set[ast.AST] = set()  # of full names that were judged whole
        for name in self._local:
            if name in source.imports or name in source.jits or name in source.hosts:
                raise Violation(function, f"{function.name} gives the name {name} another meaning: rename it")

    def check(self, node: ast.AST) -> None:
        """Refuse a node that is more than a kernel needs; raises Violation."""
        kind = type(node).__name__
        statement = isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS)
        expression = isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS)
        if statement or expression:
            raise Violation(node, f"{kind} in {self._where}: {cure(kind)}")
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            raise Violation(node, f"assignment to an element in {self._where}: use tl.store or tl.where")
        if isinstance(node, ast.Assign) and len(node.targets) > 1:
            raise Violation(node, f"a = b = ... in {self._where}: Triton has none; one name an assignment")
        if isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Name) and node not in self._bases and not self._resolves(node.id):
            what = "not a parameter, constant or jit function"
            raise Violation(node, f"{node.id} in {self._where}: {what}; {cure(node.id)}")

    def _resolves(self, name: str) -> bool:
        source = self._source
        if name in source.imports:
            return language(source.imports[name])
        known = name in self._local or source.constant(name) or name in source.jits or name in source.shared
        return known or name in _BUILTINS

    def _attribute(self, node: ast.Attribute) -> None:
        dotted = self._source.dotted(node)
        if dotted is None:
            if node.attr not in METHODS:
                raise Violation(node, f".{node.attr} in {self._where} is not an attribute of a triton tensor")
        elif node not in self._bases and not language(dotted):
            raise Violation(node, f"{dotted} in {self._where}: {cure(dotted)}")
        else:
            self._bases.add(node.value)  # comes later: the tree is walked from its top

    def _call(self, node: ast.Call) -> None:
        func, source = node.func, self._source
        dotted = source.dotted(func)
        if dotted is not None:
            if is_type(dotted):
                raise Violation(node, f"{dotted}(...) in {self._where}: use .to(...) or tl.full")
        elif isinstance(func, ast.Name):
            named = func.id in source.jits or func.id in source.shared or func.id in _BUILTINS
            if not (func.id in self._passed or (named and func.id not in self._local)):
                raise Violation(node, f"{func.id}(...) in {self._where}: not a jit function; {cure(func.id)}")
        elif not isinstance(func, ast.Attribute):
            raise Violation(node, f"a call of an expression in {self._where}: call a function by its name")
        if any(k.arg is None for k in node.keywords):
            raise Violation(node, f"** in a call in {self._where}: write the arguments out")


def open_dots(source: Source) -> tuple[int, ...]:
    """Lines of `tl.dot` calls that do not say their `input_precision`."""
    found: set[int] = set()
    for node in _calls(source):
        if source.dotted(node.func) == "triton.language.dot":
            said = {k.arg: k.value for k in node.keywords if k.arg in ("input_precision", "allow_tf32")}
            if len(node.args) > 3:
                said["input_precision"] = node.args[3]
            if all(isinstance(v, ast.Constant) and v.value is None for v in said.values()):
                found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return tuple(sorted(found))


def dropped_nans(source: Source) -> tuple[tuple[int, str], ...]:
    """Lines, with the function's name, where NaN is dropped on a device: its default is to prefer numbers."""
    found = set()
    for node in _calls(source):
        module, _, name = (source.dotted(node.func) or "").rpartition(".")
        if module == "triton.language" and name in ("maximum", "minimum", "clamp"):
            limit = 3 if name == "clamp" else 2
            said = [k.value for k in node.keywords if k.arg == "propagate_nan"] or node.args[limit:]
            if not any((source.dotted(v) or "").endswith("PropagateNan.ALL") for v in said):
                found.add((node.lineno, f"tl.{name}"))
    return tuple(sorted(found))


def _calls(source: Source) -> list[ast.Call]:
    return [n for f in source.jits.values() for n in ast.walk(f) if isinstance(n, ast.Call)]
