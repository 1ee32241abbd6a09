"""Kinds of host expressions, by abstract interpretation: what may be a tensor, and what is done with it."""

import ast
from collections.abc import Callable

from mkevolve.verify.kinds import (
    ALLOCATIONS,
    BUILTINS,
    HOLDS_TENSORS,
    LAUNCH_REFUSED,
    METHOD_ALLOCATIONS,
    PLAIN_ATTRIBUTES,
    PREPARE_REFUSED,
    SIZES,
    TORCH_PLAIN,
    VIEWS,
    Kind,
    Scope,
    Shape,
    bind,
    element,
    holds,
    join,
)
from mkevolve.verify.source import Source, Violation, is_dtype


class Expressions:
    """Finds the kind of an expression; raises Violation where it is more than the contract allows.

    `call_host` interprets a host function. `launches` counts the launch sites that were reached.
    """

    def __init__(
        self,
        source: Source,
        *,
        prepare: bool,
        call_host: Callable[[ast.FunctionDef, dict[str, Shape]], Shape],
    ) -> None:
        self._source = source
        self._prepare = prepare
        self._call_host = call_host
        self.launches = 0

    def assign(self, target: ast.expr, kind: Shape, scope: Scope) -> None:
        """Give the names of a target their kinds."""
        match target:
            case ast.Name(name):
                self.bindable(name, target, scope.name)
                scope.names[name] = kind
            case ast.Tuple(elts) | ast.List(elts):
                fits = isinstance(kind, tuple) and len(kind) == len(elts)
                starred = any(isinstance(e, ast.Starred) for e in elts)
                kinds = (
                    kind if isinstance(kind, tuple) and fits and not starred else (element(kind),) * len(elts)
                )
                for each, part in zip(elts, kinds, strict=True):
                    self.assign(each, part, scope)
            case ast.Starred(value=inner):
                self.assign(inner, kind, scope)
            case _:
                raise Violation(target, f"{scope.name} writes to an element or attribute")

    def bindable(self, name: str, node: ast.AST, where: str) -> None:
        """Refuse a parameter or variable with the name of an import or function: it would hide behind it."""
        if name in self._source.imports or name in self._source.jits or name in self._source.hosts:
            raise Violation(node, f"{where} gives the name {name} another meaning")

    def test(self, node: ast.expr, scope: Scope) -> None:
        """Refuse a condition that reads a tensor, except in `prepare`."""
        if self.kind(node, scope) == Kind.TENSOR and not self._prepare:
            raise Violation(node, f"{scope.name} branches on the value of a tensor")

    def plain(self, operands: list[ast.expr], node: ast.AST, scope: Scope) -> Shape:
        """The kind of an operation: torch compute where an operand is a tensor."""
        kinds = [self.kind(o, scope) for o in operands]
        if any(holds(k, Kind.KERNEL) or holds(k, Kind.LAUNCHER) for k in kinds):
            raise Violation(node, f"{scope.name} computes with a kernel")
        if not any(holds(k, Kind.TENSOR) for k in kinds):
            return Kind.PLAIN
        if not self._prepare:
            raise Violation(
                node, f"torch compute in {scope.name}: it may only allocate, take views and launch kernels"
            )
        return Kind.TENSOR

    def kind(self, node: ast.expr, scope: Scope) -> Shape:
        """The kind of an expression."""
        match node:
            case ast.Constant():
                return Kind.PLAIN
            case ast.Name(name):
                return self._name(node, name, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Tuple() | ast.List() | ast.Starred() | ast.Dict():
                return self._container(node, scope)
            case ast.IfExp() | ast.ListComp() | ast.Lambda():
                return self._scoped(node, scope)
        return self.plain(self._operands(node, scope), node, scope)

    def _container(self, node: ast.expr, scope: Scope) -> Shape:
        match node:
            case ast.Tuple(elts) | ast.List(elts):
                kinds = tuple(self.kind(e, scope) for e in elts)
                return element(kinds) if any(isinstance(e, ast.Starred) for e in elts) else kinds
            case ast.Starred(value=value):
                return element(self.kind(value, scope))
        assert isinstance(node, ast.Dict)
        kinds = tuple(self.kind(v, scope) for v in [*(k for k in node.keys if k), *node.values])
        return Kind.TENSOR if holds(kinds, Kind.TENSOR) else Kind.PLAIN

    def _operands(self, node: ast.expr, scope: Scope) -> list[ast.expr]:
        """What an operation reads; `is` reads no value of a tensor."""
        match node:
            case ast.BinOp(left=left, right=right):
                return [left, right]
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
        raise Violation(node, f"{type(node).__name__} in {scope.name}")

    def _scoped(self, node: ast.expr, scope: Scope) -> Shape:
        if isinstance(node, ast.IfExp):
            self.test(node.test, scope)
            return join(self.kind(node.body, scope), self.kind(node.orelse, scope))
        before = dict(scope.names)
        if isinstance(node, ast.ListComp):
            for part in node.generators:
                self.assign(part.target, element(self.kind(part.iter, scope)), scope)
                for test in part.ifs:
                    self.test(test, scope)
            kind = element((self.kind(node.elt, scope),))
        else:
            assert isinstance(node, ast.Lambda)
            arguments = node.args
            # Only a grid takes one; its argument is the table of constants.
            if arguments.defaults or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
                raise Violation(node, f"a lambda in {scope.name} takes the table of constants only")
            for each in arguments.args:
                self.assign(ast.Name(each.arg, ast.Store(), lineno=node.lineno), Kind.PLAIN, scope)
            kind = self.kind(node.body, scope)
        scope.names = before
        return kind

    def _name(self, node: ast.expr, name: str, scope: Scope) -> Shape:
        source = self._source
        if name in scope.names:
            return scope.names[name]
        if name in source.jits:
            return Kind.KERNEL
        if name in source.constants or name in BUILTINS:
            return Kind.PLAIN
        dotted = source.dotted(node)
        if dotted is not None:
            return self._module_value(node, dotted, scope)
        if name in source.hosts:
            raise Violation(node, f"{scope.name} uses the function {name} as a value")
        raise Violation(node, f"the name {name} in {scope.name} is not allowed")

    def _module_value(self, node: ast.expr, dotted: str, scope: Scope) -> Shape:
        if (
            dotted in TORCH_PLAIN
            or is_dtype(dotted)
            or dotted in ("math.inf", "math.pi", "math.e", "math.nan")
        ):
            return Kind.PLAIN
        raise Violation(
            node, f"{dotted} in {scope.name}: it may only allocate, take views and launch kernels"
        )

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Shape:
        dotted = self._source.dotted(node)
        if dotted is not None:
            return self._module_value(node, dotted, scope)
        kind = self.kind(node.value, scope)
        name = node.attr
        if kind == Kind.PLAIN and name in PLAIN_ATTRIBUTES:
            return Kind.PLAIN
        if holds(kind, Kind.TENSOR):
            if name in SIZES:
                return Kind.PLAIN
            if name in VIEWS or name in METHOD_ALLOCATIONS:
                return Kind.TENSOR
            if self._prepare and not name.startswith("_") and name not in PREPARE_REFUSED:
                return Kind.TENSOR
        raise Violation(node, f".{name} in {scope.name}: it may only allocate, take views and launch kernels")

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Shape:
        value = self.kind(node.value, scope)
        index = self.kind(node.slice, scope)
        if value == Kind.KERNEL:
            return Kind.LAUNCHER
        if holds(index, Kind.TENSOR) and not self._prepare:
            raise Violation(node, f"{scope.name} indexes with a tensor, which is torch compute")
        if (
            isinstance(value, tuple)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, int)
        ):
            at = node.slice.value
            return value[at] if -len(value) <= at < len(value) else Kind.PLAIN
        return element(value) if isinstance(value, tuple) else value

    def _call(self, node: ast.Call, scope: Scope) -> Shape:
        values = [*node.args, *(k.value for k in node.keywords)]
        if any(k.arg is None for k in node.keywords):
            raise Violation(node, f"** in a call in {scope.name}")
        func = node.func
        dotted = self._source.dotted(func)
        if dotted is not None:
            return self._module_call(node, dotted, scope)
        if isinstance(func, ast.Name) and func.id not in scope.names:
            return self._named_call(node, func.id, scope)
        if isinstance(func, ast.Attribute):
            held = self.kind(func.value, scope)
            kind = self._attribute(func, scope)
            inputs = [self.kind(v, scope) for v in values]
            if (
                holds(held, Kind.TENSOR)
                and kind != Kind.PLAIN
                and not self._prepare
                and func.attr not in ("expand_as", "view_as")
            ):
                self._no_tensors(inputs, node, scope)
            return kind
        if self.kind(func, scope) == Kind.LAUNCHER:
            return self._launch(node, values, scope)
        raise Violation(node, f"{scope.name} calls something that is not a kernel, a view or an allocation")

    def _launch(self, node: ast.Call, values: list[ast.expr], scope: Scope) -> Shape:
        if self._prepare:
            raise Violation(node, f"{scope.name} launches a kernel: only run may")
        for keyword in node.keywords:
            if keyword.arg in LAUNCH_REFUSED:
                raise Violation(node, f"{scope.name} launches with {keyword.arg}=")
        self.kind(ast.Tuple(values, ast.Load()), scope)
        self.launches += 1
        return Kind.PLAIN

    def _no_tensors(self, kinds: list[Shape], node: ast.AST, scope: Scope) -> None:
        if any(holds(k, Kind.TENSOR) for k in kinds):
            raise Violation(node, f"{scope.name} passes a tensor's value to a call that is not a launch")

    def _module_call(self, node: ast.Call, dotted: str, scope: Scope) -> Shape:
        kinds = [self.kind(v, scope) for v in [*node.args, *(k.value for k in node.keywords)]]
        module, _, name = dotted.rpartition(".")
        if dotted in ALLOCATIONS:
            if any(k.arg == "out" for k in node.keywords):
                raise Violation(node, f"{scope.name} allocates with out=")
            self._no_tensors(kinds[1:] if name.endswith("_like") else kinds, node, scope)
            return Kind.TENSOR
        if dotted in ("triton.cdiv", "triton.next_power_of_2") or (
            module == "math" and not name.startswith("_")
        ):
            self._no_tensors(kinds, node, scope)
            return Kind.PLAIN
        allowed = module in ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
        if self._prepare and allowed and not name.startswith("_") and name not in PREPARE_REFUSED:
            return Kind.TENSOR
        raise Violation(
            node, f"{dotted} in {scope.name}: it may only allocate, take views and launch kernels"
        )

    def _named_call(self, node: ast.Call, name: str, scope: Scope) -> Shape:
        if name not in self._source.hosts and name not in BUILTINS:
            raise Violation(node, f"{name}(...) in {scope.name} is not allowed")
        kinds = [self.kind(a, scope) for a in node.args]
        keywords = {str(k.arg): self.kind(k.value, scope) for k in node.keywords}
        if name in self._source.hosts:
            if any(isinstance(a, ast.Starred) for a in node.args):
                raise Violation(node, f"* in the call of {name}")
            function = self._source.hosts[name]
            return self._call_host(function, bind(function, kinds, keywords, node))
        tensors = any(holds(k, Kind.TENSOR) for k in (*kinds, *keywords.values()))
        if tensors and name not in HOLDS_TENSORS and not self._prepare:
            raise Violation(node, f"{name}(...) of a tensor in {scope.name}")
        if name in ("any", "all") and kinds and kinds[0] == Kind.TENSOR:
            raise Violation(node, f"{name}(...) of a tensor in {scope.name}")
        return Kind.TENSOR if tensors and name not in ("len", "isinstance") else Kind.PLAIN
