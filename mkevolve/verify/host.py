"""Host code by abstract interpretation: statements of `run`, `prepare` and the functions that they call.

Arithmetic on sizes is free; on a tensor it would be torch compute, so `run` may only allocate, take views,
read sizes and launch. `prepare` may use any torch operation, and launches nothing.
"""

import ast

from mkevolve.verify.allowed import CURE, RAISES
from mkevolve.verify.expressions import Expressions
from mkevolve.verify.kinds import Kind, Scope, Shape, element, join, only
from mkevolve.verify.literals import is_type
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
        """Interpret `run` until it is known what its launches pass, then read the grids and heuristics."""
        before: dict[str, Shape] | None = None
        while before != self._read.launched:
            before = dict(self._read.launched)
            self.call(function, dict(arguments))
        self._read.settled = True
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
            case ast.AnnAssign() | ast.AugAssign():
                self._annotated(node, scope)
            case ast.Return(value=value):
                scope.result.append(self._read.kind(value, scope) if value is not None else Kind.PLAIN)
            case ast.Expr(value=value):
                self._read.kind(value, scope)
            case ast.Break() | ast.Continue():
                scope.left.append(dict(scope.names))
            case ast.Pass():
                return
            case _:
                self._control(node, scope)

    def _annotated(self, node: ast.AnnAssign | ast.AugAssign, scope: Scope) -> None:
        """An assignment with a type, or one in place."""
        if isinstance(node, ast.AnnAssign):
            if node.value is None or not is_type(node.annotation, self._source):
                raise Violation(node, f"an annotation in {scope.name} must name a type, and give a value")
            self._read.assign(node.target, self._read.kind(node.value, scope), scope)
            return
        if not isinstance(node.target, ast.Name):
            raise Violation(node, f"{scope.name} changes an element in place: let a kernel write")
        before = ast.Name(node.target.id, ast.Load(), lineno=node.lineno)
        changed = self._read.kind(ast.BinOp(before, node.op, node.value, lineno=node.lineno), scope)
        if not isinstance(changed, Kind) and not only(changed, Kind.PLAIN):
            # Another name may stand for the same list.
            raise Violation(node, f"{scope.name} extends a list in place: write a = a + [...]")
        self._read.assign(node.target, changed, scope)

    def _control(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._read.test(test, scope)
                self._branches([body, orelse], scope)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                self._read.assign(target, element(self._read.kind(iterable, scope)), scope)
                self._loop(body, orelse, scope)
            case ast.While(test=test, body=body, orelse=orelse):
                asked = ast.Assert(test, None, lineno=node.lineno)  # before each pass, and after the last
                self._loop([asked, *body], [asked, *orelse], scope)
            case ast.Assert(test=test, msg=message):
                self._read.test(test, scope)
                self._read.plain([message] if message else [], node, scope)
            case ast.FunctionDef():
                self._read.assign(ast.Name(node.name, ast.Store(), lineno=node.lineno), Kind.GRID, scope)
                self._read.kind(_as_lambda(node, scope), scope)
            case ast.Raise(ast.Call(ast.Name(name), details, []), None) if name in RAISES:
                self._read.plain(details, node, scope)
            case ast.Raise(ast.Name(name), None) if name in RAISES:
                return
            case _:
                raise Violation(node, f"{type(node).__name__} in {scope.name} is not allowed: {CURE}")

    def _loop(self, body: list[ast.stmt], orelse: list[ast.stmt], scope: Scope) -> None:
        """Interpret a body until the kinds of its names no longer change, then what follows the last pass."""
        outer, before = scope.left, dict[str, Shape]()
        while scope.names != before:
            before, scope.left = dict(scope.names), []
            self._branches([body, []], scope)
            scope.merge(scope.left)
        scope.left = outer
        self._branches([orelse, []], scope)

    def _branches(self, bodies: list[list[ast.stmt]], scope: Scope) -> None:
        before = dict(scope.names)
        after = []
        for body in bodies:
            scope.names = dict(before)
            self._block(body, scope)
            after.append(scope.names)
        scope.names = after[0]
        scope.merge(after[1:])


def _as_lambda(node: ast.FunctionDef, scope: Scope) -> ast.Lambda:
    """A function within a function is a grid, and only returns its sizes."""
    match node.body:
        case [*_, ast.Return(ast.expr() as value)] if len(node.body) == 1 + _documented(node):
            plain = not (node.decorator_list or node.returns or any(a.annotation for a in node.args.args))
            if plain:
                return ast.Lambda(node.args, value, lineno=node.lineno)
    raise Violation(node, f"FunctionDef in {scope.name}: write a grid as a tuple, or as a lambda of sizes")


def _documented(node: ast.FunctionDef) -> bool:
    match node.body[0]:
        case ast.Expr(ast.Constant(str())):
            return True
    return False
