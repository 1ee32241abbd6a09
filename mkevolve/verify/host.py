"""Host code by abstract interpretation: statements of `run`, `prepare` and the functions that they call.

Arithmetic on sizes is free; on a tensor it would be torch compute, so `run` may only allocate, take views,
read sizes and launch. `prepare` may use any torch operation, and launches nothing.
"""

import ast

from mkevolve.verify.allowed import CURE, RAISES
from mkevolve.verify.expressions import Expressions
from mkevolve.verify.kinds import Kind, Scope, Shape, element, join
from mkevolve.verify.source import Source, Violation


class Host:
    """Interprets `run` or `prepare` and the host functions that they call; raises Violation.

    `launches` counts the launch sites that can be reached.
    """

    def __init__(self, source: Source, *, prepare: bool) -> None:
        self._source = source
        self._active: list[str] = []
        self._read = Expressions(source, prepare=prepare, call_host=self.call)

    @property
    def launches(self) -> int:
        return self._read.launches

    def call(self, function: ast.FunctionDef, arguments: dict[str, Shape]) -> Shape:
        """Interpret a function and return the kind of its result."""
        if function.name in self._active:
            raise Violation(function, f"{function.name} calls itself")
        for name in arguments:
            self._read.bindable(name, function, function.name)
        self._active.append(function.name)
        scope = Scope(function.name, dict(arguments))
        self._block(function.body, scope)
        for each in scope.lambdas:
            # Once more, with all that its names ever are: they are looked up when it is called.
            self._read.lambda_body(each, scope.ever, function.name)
        self._active.pop()
        kind: Shape = Kind.PLAIN
        for i, returned in enumerate(scope.result):
            kind = returned if i == 0 else join(kind, returned)
        return kind

    def settle(self, function: ast.FunctionDef, arguments: dict[str, Shape]) -> Shape:
        """Interpret `run` until it is known what its launches pass, which grids and heuristics may read."""
        before: dict[str, Shape] | None = None
        result: Shape = Kind.PLAIN
        while before != self._read.launched:
            before = dict(self._read.launched)
            result = self.call(function, dict(arguments))
            for kernel, values in self._source.heuristics.items():
                for value in values:
                    self._heuristic(kernel, value)
        return result

    def _heuristic(self, kernel: str, value: ast.expr) -> None:
        where = f"the heuristics of {kernel}"
        if not isinstance(value, ast.Lambda):
            raise Violation(value, f"{where}: write a lambda of the table of arguments")
        self._read.lambda_body(value, {}, where)

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                kind = self._read.kind(value, scope)
                for target in targets:
                    self._read.assign(target, kind, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._read.assign(target, self._read.kind(value, scope), scope)
            case ast.AugAssign(target=target, value=value):
                if not isinstance(target, ast.Name):
                    raise Violation(node, f"{scope.name} changes an element in place: let a kernel write")
                before = ast.Name(target.id, ast.Load(), lineno=node.lineno)
                changed = ast.BinOp(before, node.op, value, lineno=node.lineno)
                self._read.assign(target, self._read.kind(changed, scope), scope)
            case ast.Return(value=value):
                scope.result.append(self._read.kind(value, scope) if value is not None else Kind.PLAIN)
            case ast.Expr(value=value):
                self._read.kind(value, scope)
            case ast.Pass() | ast.Break() | ast.Continue():
                return
            case _:
                self._control(node, scope)

    def _control(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._read.test(test, scope)
                self._branches([body, orelse], scope)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                self._read.assign(target, element(self._read.kind(iterable, scope)), scope)
                self._loop([*body, *orelse], scope)
            case ast.While(test=test, body=body, orelse=orelse):
                self._read.test(test, scope)
                self._loop([*body, *orelse, ast.Expr(test)], scope)
            case ast.Assert(test=test, msg=message):
                self._read.test(test, scope)
                self._read.plain([message] if message else [], node, scope)
            case ast.Raise(exc=ast.Call(func=ast.Name(name), args=details, keywords=[])) if name in RAISES:
                self._read.plain(details, node, scope)
            case ast.Raise(exc=ast.Name(name)) if name in RAISES:
                return
            case _:
                raise Violation(node, f"{type(node).__name__} in {scope.name} is not allowed: {CURE}")

    def _loop(self, body: list[ast.stmt], scope: Scope) -> None:
        """Interpret a body until the kinds of its names no longer change."""
        before: dict[str, Shape] = {}
        while scope.names != before:
            before = dict(scope.names)
            self._branches([body, []], scope)

    def _branches(self, bodies: list[list[ast.stmt]], scope: Scope) -> None:
        before = dict(scope.names)
        merged: dict[str, Shape] = dict(before)
        for body in bodies:
            scope.names = dict(before)
            self._block(body, scope)
            for name, kind in scope.names.items():
                merged[name] = join(merged[name], kind) if name in merged else kind
        scope.names = merged
