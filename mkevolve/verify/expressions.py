"""Kinds of host expressions, by abstract interpretation: what may be a tensor, and what is done with it."""

import ast
from collections.abc import Callable

from mkevolve.verify.allowed import (
    BUILTINS,
    CURE,
    METHOD_ALLOCATIONS,
    PLAIN_ATTRIBUTES,
    SIZES,
    TORCH_PLAIN,
    TORCH_TYPES,
    TYPES,
    VIEWS,
    cure,
    prepare_method,
)
from mkevolve.verify.calls import Calls
from mkevolve.verify.kinds import (
    VALUE,
    Kind,
    Many,
    Scope,
    Shape,
    element,
    holds,
    join,
    leaves,
    only,
    sequence,
)
from mkevolve.verify.source import Source, Violation, is_dtype

_LARGEST = 100_000  # expressions read, repeats in loops and calls included
_MATH = frozenset({"math.inf", "math.pi", "math.e", "math.nan", "math.tau"})


class Expressions:
    """Finds the kind of an expression; raises Violation where it is more than the contract allows.

    `call_host` interprets a host function. `launches` counts the launch sites that were reached; `launched`
    knows what the arguments of kernels were, by name.
    """

    def __init__(
        self,
        source: Source,
        *,
        prepare: bool,
        call_host: Callable[[ast.FunctionDef, dict[str, Shape]], Shape],
    ) -> None:
        self.source = source
        self.prepare = prepare
        self.call_host = call_host
        self.launches = 0
        self.launched: dict[str, Shape] = {}
        self.settled = prepare  # whether `launched` is complete, so that lambdas can be read
        self._calls = Calls(self)
        self._read = 0

    def assign(self, target: ast.expr, kind: Shape, scope: Scope) -> None:
        """Give the names of a target their kinds."""
        match target:
            case ast.Name(name):
                self.bindable(name, target, scope.name)
                scope.set(name, kind)
            case ast.Tuple(elts) | ast.List(elts):
                exact = isinstance(kind, tuple) and len(kind) == len(elts)
                if isinstance(kind, tuple) and exact and not any(isinstance(e, ast.Starred) for e in elts):
                    parts: tuple[Shape, ...] = kind
                else:
                    parts = (element(kind),) * len(elts)
                for each, part in zip(elts, parts, strict=True):
                    self.assign(each, part, scope)
            case ast.Starred(value=inner):
                self.assign(inner, Many(kind), scope)
            case _:
                raise Violation(
                    target, f"{scope.name} writes to an element or attribute: let a kernel write it"
                )

    def bindable(self, name: str, node: ast.AST, where: str) -> None:
        """Refuse a parameter or variable with the name of an import or function: it would hide behind it."""
        if name in self.source.imports or name in self.source.jits or name in self.source.hosts:
            raise Violation(node, f"{where} gives the name {name} another meaning: rename it")

    def refused(self, node: ast.AST, name: str, scope: Scope) -> Violation:
        """What to say of an attribute or function that is not allowed."""
        if self.prepare:
            return Violation(
                node, f"{name} in {scope.name}: it may use torch's own operators, and nothing random"
            )
        return Violation(node, f"{name} in {scope.name}: {CURE}; {cure(name)}")

    def test(self, node: ast.expr, scope: Scope) -> None:
        """Refuse a condition that reads a tensor, except in `prepare`."""
        kind = self.kind(node, scope)
        if holds(kind, Kind.TENSOR) and not self.prepare:
            raise Violation(node, f"{scope.name} branches on the value of a tensor: decide by sizes only")
        if not only(kind, VALUE):
            raise Violation(node, f"{scope.name} branches on a kernel or function")

    def plain(self, operands: list[ast.expr], node: ast.AST, scope: Scope) -> Shape:
        """The kind of an operation: torch compute where an operand is a tensor."""
        return self._operation(tuple(self.kind(o, scope) for o in operands), node, scope)

    def _operation(self, kinds: tuple[Shape, ...], node: ast.AST, scope: Scope) -> Shape:
        if not only(kinds, VALUE):
            raise Violation(node, f"{scope.name} computes with a kernel or function: only launch or pass it")
        if not holds(kinds, Kind.TENSOR):
            return Kind.PLAIN
        if not self.prepare:
            raise Violation(node, f"torch compute in {scope.name}: {CURE}; do it in a kernel")
        return Kind.TENSOR

    def lambda_body(self, node: ast.Lambda, names: dict[str, Shape], where: str) -> None:
        """Refuse a grid or heuristic that gives anything but numbers, seen with these names around it."""
        arguments = node.args
        plain = len(arguments.args) == 1 and not (arguments.posonlyargs or arguments.kwonlyargs)
        if not plain or arguments.defaults or arguments.vararg or arguments.kwarg:
            raise Violation(node, f"a lambda in {where} takes the table of arguments only")
        inner = Scope(where, dict(names))
        self.assign(ast.Name(arguments.args[0].arg, ast.Store(), lineno=node.lineno), Kind.TABLE, inner)
        if not only(self.kind(node.body, inner), Kind.PLAIN):
            raise Violation(node, f"a lambda in {where} gives a tensor: only sizes count there")

    def kind(self, node: ast.expr, scope: Scope) -> Shape:
        """The kind of an expression."""
        self._read += 1
        if self._read > _LARGEST:
            raise Violation(node, "the host code is too large to be read: fewer nested loops and calls")
        match node:
            case ast.Constant():
                return Kind.PLAIN
            case ast.Name(name):
                return self._name(node, name, scope)
            case ast.Attribute():
                return self.attribute(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Call():
                return self._calls.kind(node, scope)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Starred() | ast.Dict():
                return self._container(node, scope)
            case ast.IfExp() | ast.ListComp() | ast.GeneratorExp() | ast.Lambda():
                return self._scoped(node, scope)
            case ast.BinOp():
                return self._binary(node, scope)
        return self.plain(self._operands(node, scope), node, scope)

    def _container(self, node: ast.expr, scope: Scope) -> Shape:
        if isinstance(node, ast.Dict):
            parts = [*(k for k in node.keys if k is not None), *node.values]
            return leaves(tuple(self.kind(p, scope) for p in parts))
        if isinstance(node, ast.Starred):
            return self.kind(node.value, scope)
        assert isinstance(node, ast.Tuple | ast.List | ast.Set)
        kinds: list[Shape] = []
        known = True
        for each in node.elts:
            kind = self.kind(each, scope)
            if not isinstance(each, ast.Starred):
                kinds.append(kind)
            elif isinstance(kind, tuple):
                kinds.extend(kind)
            else:
                known = False
                kinds.append(element(kind))
        return sequence(tuple(kinds)) if known else Many(element(tuple(kinds)))

    def _binary(self, node: ast.BinOp, scope: Scope) -> Shape:
        """Tuples and lists are joined and repeated; anything else is arithmetic."""
        left, right = self.kind(node.left, scope), self.kind(node.right, scope)
        held = isinstance(left, tuple | Many), isinstance(right, tuple | Many)
        if isinstance(node.op, ast.Add) and all(held):
            if isinstance(left, tuple) and isinstance(right, tuple):
                return sequence((*left, *right))
            return Many(join(element(left), element(right)))
        if isinstance(node.op, ast.Mult) and (
            (held[0] and right == Kind.PLAIN) or (held[1] and left == Kind.PLAIN)
        ):
            return Many(element(left if held[0] else right))
        return self._operation((left, right), node, scope)

    def _operands(self, node: ast.expr, scope: Scope) -> list[ast.expr]:
        """What an operation reads; `is` reads no value of a tensor."""
        match node:
            case ast.UnaryOp(operand=operand):
                return [operand]
            case ast.BoolOp(values=values):
                return values
            case ast.Compare(left=left, ops=ops, comparators=right):
                if all(isinstance(o, ast.Is | ast.IsNot) for o in ops):
                    for operand in (left, *right):
                        self.kind(operand, scope)
                    return []
                return [left, *right]
            case ast.JoinedStr(values=values):
                parts = [v for v in values if isinstance(v, ast.FormattedValue)]
                return [*(v.value for v in parts), *(v.format_spec for v in parts if v.format_spec)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return [p for p in (lower, upper, step) if p is not None]
        raise Violation(node, f"{type(node).__name__} in {scope.name} is not allowed: {CURE}")

    def _scoped(self, node: ast.expr, scope: Scope) -> Shape:
        if isinstance(node, ast.GeneratorExp):
            raise Violation(node, f"a generator in {scope.name}: use a list")
        if isinstance(node, ast.IfExp):
            self.test(node.test, scope)
            return join(self.kind(node.body, scope), self.kind(node.orelse, scope))
        if isinstance(node, ast.Lambda):
            if self.settled:
                self.lambda_body(node, scope.names, scope.name)
                scope.lambdas.append(node)
            return Kind.GRID
        assert isinstance(node, ast.ListComp)
        return self.comprehension(node, scope)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Shape:
        """The kind of a list, or of a generator that is read to its end at once."""
        before = dict(scope.names)
        for part in node.generators:
            self.assign(part.target, element(self.kind(part.iter, scope)), scope)
            for test in part.ifs:
                self.test(test, scope)
        kind = Many(self.kind(node.elt, scope))
        scope.names = before
        return kind

    def _name(self, node: ast.expr, name: str, scope: Scope) -> Shape:
        source = self.source
        if name in scope.names:
            return scope.names[name]
        if name in source.jits:
            return Kind.KERNEL
        if source.constant(name):
            return Kind.PLAIN
        dotted = source.dotted(node)
        if dotted is not None:
            return self._module_value(node, dotted, scope)
        if name in TYPES:
            return Kind.TYPE
        if name in source.hosts or name in BUILTINS:
            raise Violation(node, f"{scope.name} uses the function {name} as a value: call it")
        raise Violation(node, f"the name {name} in {scope.name} is not allowed")

    def _module_value(self, node: ast.expr, dotted: str, scope: Scope) -> Shape:
        if dotted in TORCH_PLAIN or is_dtype(dotted) or dotted in _MATH:
            return Kind.PLAIN
        if dotted in TORCH_TYPES:
            return Kind.TYPE
        raise self.refused(node, dotted, scope)

    def attribute(self, node: ast.Attribute, scope: Scope) -> Shape:
        """The kind of an attribute that is not called."""
        dotted = self.source.dotted(node)
        if dotted is not None:
            return self._module_value(node, dotted, scope)
        kind = self.kind(node.value, scope)
        name = node.attr
        if only(kind, Kind.PLAIN) and name in PLAIN_ATTRIBUTES:
            return Kind.PLAIN
        if holds(kind, Kind.TENSOR) and only(kind, VALUE):
            if name in SIZES:
                return Kind.PLAIN
            if name in VIEWS or name in METHOD_ALLOCATIONS or (self.prepare and prepare_method(name)):
                return Kind.TENSOR
        if only(kind, Kind.PLAIN) and name == "type":
            name = "device.type"
        raise self.refused(node, f".{name}", scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Shape:
        value = self.kind(node.value, scope)
        if value == Kind.TABLE:
            return self._argument(node, scope)
        index = self.kind(node.slice, scope)
        if value == Kind.KERNEL:
            if not only(index, Kind.PLAIN | Kind.GRID):
                raise Violation(node, f"{scope.name} launches with a grid of tensors: only sizes count")
            return Kind.LAUNCHER
        if holds(index, Kind.TENSOR) and not self.prepare:
            raise Violation(node, f"{scope.name} indexes with a tensor, which is torch compute: use tl.load")
        if not only(value, VALUE | Kind.KERNEL) or not only(index, VALUE):
            raise Violation(node, f"{scope.name} looks into something that is no tensor, tuple or kernel")
        match value, node.slice:
            case tuple(), ast.Constant(int(at)) if -len(value) <= at < len(value):
                return value[at]
            case tuple() | Many(), ast.Slice():
                return Many(element(value))
        return element(value)

    def _argument(self, node: ast.Subscript, scope: Scope) -> Shape:
        """What a grid reads from its table: a constant, or what some launch passes under that name."""
        match node.slice:
            case ast.Constant(str(name)):
                return self.launched.get(name, Kind.PLAIN)
        raise Violation(node, f"{scope.name} reads its table by a name written out")
