"""The one reader of a candidate's `TUNABLES`: a literal table at module level; nothing is executed."""

import ast
from collections.abc import Iterator

from mkevolve.data.candidate import Setting

Tunables = tuple[tuple[str, tuple[Setting, ...]], ...]


class TunablesFault(Exception):
    """The table breaks the kernel contract; `node` is where."""

    def __init__(self, node: ast.stmt, message: str) -> None:
        self.node = node
        super().__init__(f"TUNABLES{message}")


def tunables_of(tree: ast.Module) -> Tunables:
    """Return (name, choices) pairs, the default first; empty without a table. Raises `TunablesFault`."""
    for node in tree.body:
        for target in _targets(node):
            if isinstance(target, ast.Name) and target.id == "TUNABLES":
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                return _settings(node, node.value)
    return ()


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield from node.targets
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def _settings(node: ast.stmt, value: ast.expr | None) -> Tunables:
    try:
        table = ast.literal_eval(value) if value is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise TunablesFault(node, " must be a literal table: {'BLOCK': (128, 64)}")
    found: list[tuple[str, tuple[Setting, ...]]] = []
    for key, options in table.items():
        if not isinstance(key, str) or not key.isidentifier():
            raise TunablesFault(node, f": {key!r} is not a name")
        if not isinstance(options, tuple) or not options:
            raise TunablesFault(node, f": {key} needs a tuple of choices, the default first")
        plain = all(isinstance(o, bool | int | float | str) for o in options)
        if not plain or len(set(options)) < len(options):
            raise TunablesFault(node, f": the choices of {key} must be different numbers, texts or booleans")
        found.append((key, options))
    return tuple(found)
