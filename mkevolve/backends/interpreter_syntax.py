"""Syntax of jit functions that Python would read otherwise than Triton: `and`, `or`, `not`, `min`, `max`.

Triton compiles them to operations on every element, and evaluates both sides unless a constant decides.
Python asks for one truth value, which the interpreter takes to be true for every block. Triton's own
functions are read likewise: `tl.argmax` breaks ties by an `and`.
"""

import ast
import builtins
import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

# No candidate can use or bind a name that starts so.
_AND, _OR, _NOT, _MOST = "__mkevolve_and", "__mkevolve_or", "__mkevolve_not", "__mkevolve_most"


class _Syntax(interpreter.ASTTransformer):  # type: ignore[misc]
    """Turns them into calls; an argument of `and` and `or` is evaluated when it is asked for."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        changed: ast.AST = super().visit_Assign(node)
        return changed

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        later: list[ast.expr] = [ast.copy_location(ast.Lambda(nothing, v), v) for v in node.values]
        return _call(_AND if isinstance(node.op, ast.And) else _OR, later, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(_NOT, [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name(_MOST, ast.Load()), node.func)
        return node


def install() -> None:
    """Have the interpreter read every function so; it puts its own globals into those of a function."""
    vars(interpreter).update({_AND: _and, _OR: _or, _NOT: _not, _MOST: _most})
    interpreter.FunctionRewriter.ast_transformer = _Syntax()


def _call(name: str, arguments: list[ast.expr], node: ast.expr) -> ast.AST:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), node)


def _and(*values: Callable[[], Any]) -> Any:
    return _joined(values, False, lambda a, b: a & b)


def _or(*values: Callable[[], Any]) -> Any:
    return _joined(values, True, lambda a, b: a | b)


def _joined(values: tuple[Callable[[], Any], ...], decides: bool, join: Callable[[Any, Any], Any]) -> Any:
    found, value = None, None
    for later in values:
        value = later()
        if isinstance(value, tl.tensor):
            found = value if found is None else join(_truth(found), _truth(value))
        elif bool(value) is decides:
            return value
    return value if found is None else found


def _not(value: Any) -> Any:
    return _truth(value) == 0 if isinstance(value, tl.tensor) else not value


def _truth(value: Any) -> Any:
    return value if value.dtype.is_int1() else value != 0


def _most(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """`min` or `max`, the builtin or what a function of Triton calls so."""
    elementwise = {builtins.min: tl.minimum, builtins.max: tl.maximum}.get(function)
    if elementwise is None or not any(isinstance(v, tl.tensor) for v in values):
        return function(*values, **options)
    return functools.reduce(functools.partial(elementwise, **options), values)
