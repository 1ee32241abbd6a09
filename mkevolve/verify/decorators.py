"""What may stand above a function: `triton.jit`, its heuristics and one configuration, or nothing."""

import ast

from mkevolve.verify.allowed import OPTIONS
from mkevolve.verify.literals import is_literal
from mkevolve.verify.source import Source, Violation, parameters, words

CALLED = words("run prepare")  # what is called of a candidate: plain functions
_JIT_OPTIONS = words("noinline do_not_specialize do_not_specialize_on_alignment")
_ALLOWED = "triton.jit, triton.heuristics, triton.autotune with one configuration, triton.constexpr_function"


def read_decorators(node: ast.FunctionDef, found: Source) -> None:
    """File a function under what its decorators make of it; raises Violation."""
    if not node.decorator_list:
        found.hosts[node.name] = node
        return
    if node.name in CALLED:
        raise Violation(node, f"{node.name} must be a plain function, without decorators")
    *outer, inner = node.decorator_list
    if found.dotted(inner) == "triton.constexpr_function" and not outer:
        found.hosts[node.name] = node
        found.shared.add(node.name)
        return
    _jit(inner, node, found)
    found.jits[node.name] = node
    for decorator in outer:
        name = found.dotted(decorator.func) if isinstance(decorator, ast.Call) else None
        if name == "triton.heuristics":
            assert isinstance(decorator, ast.Call)
            _heuristics(decorator, node, found)
        elif name == "triton.autotune":
            assert isinstance(decorator, ast.Call)
            _autotune(decorator, node, found)
        else:
            raise Violation(decorator, f"decorator of {node.name}: allowed are {_ALLOWED}")


def _jit(decorator: ast.expr, node: ast.FunctionDef, found: Source) -> None:
    call = decorator if isinstance(decorator, ast.Call) else None
    if found.dotted(call.func if call else decorator) != "triton.jit":
        raise Violation(decorator, f"decorator of {node.name}: allowed are {_ALLOWED}")
    if call is None:
        return
    if call.args:
        raise Violation(decorator, "triton.jit takes literal options only")
    for keyword in call.keywords:
        if keyword.arg not in _JIT_OPTIONS or not _plain(keyword.value, found):
            raise Violation(decorator, f"triton.jit({keyword.arg}=...): allowed are {_listed(_JIT_OPTIONS)}")


def _heuristics(call: ast.Call, node: ast.FunctionDef, found: Source) -> None:
    table = _argument(call, "values")
    if not isinstance(table, ast.Dict) or len(call.args) + len(call.keywords) != 1:
        raise Violation(call, "triton.heuristics takes one table of names and lambdas")
    names = {a.arg for a in parameters(node)} | OPTIONS
    for key in table.keys:
        if not isinstance(key, ast.Constant) or key.value not in names:
            raise Violation(call, f"triton.heuristics must name arguments of {node.name}")
    found.heuristics[node.name] = (*found.heuristics.get(node.name, ()), *table.values)


def _autotune(call: ast.Call, node: ast.FunctionDef, found: Source) -> None:
    configs, key = _argument(call, "configs"), _argument(call, "key", 1)
    given = {k.arg for k in call.keywords}
    if not given <= {"configs", "key"} or len(call.args) > 2:
        raise Violation(call, "triton.autotune takes configs and key only: no hooks, no pruning")
    if not isinstance(configs, ast.List | ast.Tuple) or len(configs.elts) != 1:
        raise Violation(call, "triton.autotune with several configurations: use TUNABLES")
    if key is not None and not _plain(key, found):
        raise Violation(call, "the key of triton.autotune is a list of names")
    config = configs.elts[0]
    if not isinstance(config, ast.Call) or found.dotted(config.func) != "triton.Config":
        raise Violation(config, "triton.autotune takes a triton.Config written out; for choices use TUNABLES")
    _config(config, {a.arg for a in parameters(node)}, found)


def _config(config: ast.Call, names: set[str], found: Source) -> None:
    for keyword in config.keywords:
        if keyword.arg == "kwargs":
            continue
        if keyword.arg not in OPTIONS or not is_literal(keyword.value, found):
            raise Violation(config, f"triton.Config({keyword.arg}=...): allowed are {_listed(OPTIONS)}")
    table = _argument(config, "kwargs")
    if not isinstance(table, ast.Dict) or len(config.args) > 1:
        raise Violation(config, "triton.Config takes one table of arguments")
    for key, value in zip(table.keys, table.values, strict=True):
        known = isinstance(key, ast.Constant) and (key.value in names or key.value in OPTIONS)
        if not known or not is_literal(value, found):
            raise Violation(config, "triton.Config takes arguments of the kernel and numbers")


def _argument(call: ast.Call, name: str, position: int = 0) -> ast.expr | None:
    if len(call.args) > position:
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg == name), None)


def _plain(node: ast.expr, found: Source) -> bool:
    """A literal, or a list of literals."""
    if isinstance(node, ast.List):
        return all(is_literal(e, found) for e in node.elts)
    return is_literal(node, found)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
