"""Calls in host code: launches, allocations, views, other host functions, and arithmetic on sizes."""

import ast
from typing import TYPE_CHECKING

from mkevolve.verify.allowed import (
    ALLOCATION_KEYWORDS,
    ALLOCATIONS,
    BUILTINS,
    CONSUMES,
    CURE,
    HOLDS_TENSORS,
    METHOD_ALLOCATIONS,
    OPTIONS,
    PLAIN_CALLS,
    PLAIN_METHODS,
    TYPES,
    VIEW_FUNCTIONS,
    VIEW_LIKE,
    prepare_function,
)
from mkevolve.verify.kinds import VALUE, Kind, Many, Scope, Shape, bind, element, holds, join, only
from mkevolve.verify.source import Violation, parameters

if TYPE_CHECKING:
    from mkevolve.verify.expressions import Expressions

_LAUNCHED = VALUE | Kind.KERNEL  # what a kernel may be given


class Calls:
    """Finds the kind of a call; raises Violation where the contract does not allow it."""

    def __init__(self, expressions: "Expressions") -> None:
        self._in = expressions

    def kind(self, node: ast.Call, scope: Scope) -> Shape:
        """The kind of what a call returns."""
        func = node.func
        if any(k.arg is None for k in node.keywords):
            raise Violation(node, f"** in a call in {scope.name}: write the arguments out")
        dotted = self._in.source.dotted(func)
        if dotted is not None:
            return self._module(node, dotted, scope)
        if isinstance(func, ast.Name) and func.id not in scope.names:
            return self._named(node, func.id, scope)
        if isinstance(func, ast.Attribute):
            return self._method(node, func, scope)
        if self._in.kind(func, scope) == Kind.LAUNCHER:
            return self._launch(node, scope)
        raise Violation(node, f"{scope.name} calls something that is not a kernel, a view or an allocation")

    def _kinds(self, node: ast.Call, scope: Scope) -> list[Shape]:
        return [self._in.kind(v, scope) for v in [*node.args, *(k.value for k in node.keywords)]]

    def _values(self, kinds: list[Shape], node: ast.Call, scope: Scope, *, tensors: bool = False) -> None:
        """Refuse arguments that are not numbers (or tensors, where a call may have them)."""
        if not tensors and any(holds(k, Kind.TENSOR) for k in kinds):
            raise Violation(node, f"{scope.name} passes a tensor's value to a call that is not a launch")
        if not all(only(k, VALUE) for k in kinds):
            raise Violation(node, f"{scope.name} passes a kernel or function to a call that is not a launch")

    def _method(self, node: ast.Call, func: ast.Attribute, scope: Scope) -> Shape:
        held = self._in.kind(func.value, scope)
        if only(held, Kind.PLAIN) and func.attr in PLAIN_METHODS:
            self._values(self._kinds(node, scope), node, scope)
            return Kind.PLAIN
        kind = self._in.attribute(func, scope)
        if not holds(held, Kind.TENSOR):
            raise Violation(node, f".{func.attr}() in {scope.name} is not allowed: {CURE}")
        tensors = self._in.prepare or func.attr in VIEW_LIKE
        self._values(self._kinds(node, scope), node, scope, tensors=tensors)
        if func.attr in METHOD_ALLOCATIONS:
            self._allocation_keywords(node, scope)
        return kind

    def _launch(self, node: ast.Call, scope: Scope) -> Shape:
        reader, source = self._in, self._in.source
        if reader.prepare:
            raise Violation(node, f"{scope.name} launches a kernel: only run may")
        named = {a.arg for f in source.jits.values() for a in parameters(f)}
        for keyword in node.keywords:
            if keyword.arg not in named | OPTIONS:
                raise Violation(
                    node, f"{scope.name} launches with {keyword.arg}=, which is no argument of a kernel"
                )
        kinds = self._kinds(node, scope)
        if not all(only(k, _LAUNCHED) for k in kinds):
            raise Violation(node, f"{scope.name} gives a kernel something that is no number or tensor")
        self._remember(node, kinds)
        reader.launches += 1
        return Kind.RESULT

    def _remember(self, node: ast.Call, kinds: list[Shape]) -> None:
        """Note what each argument of the kernel is: grids and heuristics read them by name."""
        source, launched = self._in.source, self._in.launched
        functions = list(source.jits.values())
        match node.func:
            case ast.Subscript(value=ast.Name(name)) if name in source.jits:
                functions = [source.jits[name]]
        starred = [i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)]
        plain = kinds[: starred[0]] if starred else kinds[: len(node.args)]
        rest = kinds[len(plain) : len(node.args)]
        found = [(str(k.arg), kind) for k, kind in zip(node.keywords, kinds[len(node.args) :], strict=True)]
        for function in functions:
            names = [a.arg for a in parameters(function)]
            found += zip(names, plain, strict=False)
            for shape in rest:
                found += [(name, element(shape)) for name in names[len(plain) :]]
        for name, shape in found:
            launched[name] = join(launched[name], shape) if name in launched else shape

    def _module(self, node: ast.Call, dotted: str, scope: Scope) -> Shape:
        module, _, name = dotted.rpartition(".")
        kinds = self._arguments(node, name, scope) if module == "math" else self._kinds(node, scope)
        if dotted in ALLOCATIONS:
            self._allocation_keywords(node, scope)
            self._values(kinds[1:] if name.endswith("_like") else kinds, node, scope)
            return Kind.TENSOR
        if dotted in VIEW_FUNCTIONS:
            if any(k.arg == "out" for k in node.keywords):
                raise Violation(node, f"{dotted} with out= in {scope.name} is torch compute")
            self._values(kinds[1:], node, scope, tensors=self._in.prepare)
            return Kind.TENSOR
        if dotted in PLAIN_CALLS or (module == "math" and not name.startswith("_")):
            self._values(kinds, node, scope)
            return Kind.PLAIN
        if self._in.prepare and prepare_function(dotted):
            self._values(kinds, node, scope, tensors=True)
            return Kind.TENSOR
        raise self._in.refused(node, dotted, scope)

    def _allocation_keywords(self, node: ast.Call, scope: Scope) -> None:
        for keyword in node.keywords:
            if keyword.arg not in ALLOCATION_KEYWORDS:
                raise Violation(
                    node, f"{scope.name} allocates with {keyword.arg}=: allowed are shape, dtype and device"
                )
            if keyword.arg == "device" and isinstance(keyword.value, ast.Constant):
                raise Violation(node, f"{scope.name} names a device: write device=x.device")

    def _arguments(self, node: ast.Call, name: str, scope: Scope) -> list[Shape]:
        """Kinds of arguments, where a call that reads a generator to its end at once may have one."""
        match node.args:
            case [ast.GeneratorExp() as only_one] if name in CONSUMES:
                rest = [self._in.kind(k.value, scope) for k in node.keywords]
                return [self._in.comprehension(only_one, scope), *rest]
        return self._kinds(node, scope)

    def _named(self, node: ast.Call, name: str, scope: Scope) -> Shape:
        source = self._in.source
        if name in source.hosts:
            return self._host(node, name, scope)
        if name not in BUILTINS:
            cause = "launch it with a grid" if name in source.jits else CURE
            raise Violation(node, f"{name}(...) in {scope.name} is not allowed: {cause}")
        if name == "isinstance":
            return self._isinstance(node, scope)
        kinds = self._arguments(node, name, scope)
        if not all(only(k, VALUE) for k in kinds):
            raise Violation(node, f"{scope.name} passes a kernel or function to {name}(...)")
        if not any(holds(k, Kind.TENSOR) for k in kinds):
            return Many(Kind.PLAIN) if name in ("list", "tuple", "zip", "enumerate") else Kind.PLAIN
        if name in HOLDS_TENSORS:
            return _holding(name, kinds)
        if not self._in.prepare:
            raise Violation(node, f"{name}(...) of a tensor in {scope.name} reads its values: use a kernel")
        return Kind.TENSOR

    def _host(self, node: ast.Call, name: str, scope: Scope) -> Shape:
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise Violation(node, f"* in the call of {name}: write the arguments out")
        kinds = [self._in.kind(a, scope) for a in node.args]
        keywords = {str(k.arg): self._in.kind(k.value, scope) for k in node.keywords}
        function = self._in.source.hosts[name]
        return self._in.call_host(function, bind(function, kinds, keywords, node))

    def _isinstance(self, node: ast.Call, scope: Scope) -> Shape:
        kinds = self._kinds(node, scope)
        if len(kinds) != 2 or not only(kinds[0], VALUE) or not only(kinds[1], Kind.TYPE):
            raise Violation(node, f"isinstance in {scope.name}: a value, and torch.Tensor or {sorted(TYPES)}")
        return Kind.PLAIN


def _holding(name: str, kinds: list[Shape]) -> Shape:
    """What a builtin gives that holds tensors without reading them."""
    match name:
        case "len":
            return Kind.PLAIN
        case "enumerate":
            return Many((Kind.PLAIN, element(kinds[0])))
        case "zip":
            return Many(tuple(element(k) for k in kinds))
    return Many(element(kinds[0]))
