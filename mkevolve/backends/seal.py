"""Functions that candidate code could replace in a process it shares with ours: torch's, Triton's, our own.

Compared by identity, and by the code of functions that are Python. What is put back before we look is not
seen; the static step keeps a candidate from naming these modules at all.
"""

import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

_WATCHED = (
    *(
        "builtins",
        "os",
        "time",
        "json",
        "json.encoder",
        "json.decoder",
        "gc",
        "random",
        "struct",
        "threading",
    ),
    *("numpy", "torch", "torch._C", "torch.nn.functional", "torch._tensor", "torch.utils._python_dispatch"),
    *("safetensors", "safetensors.torch", "triton", "triton.runtime.jit", "triton.runtime.interpreter"),
    *("triton.language", "triton.language.core", "triton.language.math", "triton.language.standard"),
    *("triton.language.semantic", "triton.language.extra.libdevice"),
)
_OURS = "mkevolve."
_CODE_OF = ("mkevolve.", "triton.runtime.interpreter", "torch.utils._python_dispatch")
_CLASSES_OF = (*_CODE_OF, "torch._tensor", "triton.runtime.jit", "triton.language.core")

_MOVING = {"torch.Storage"}  # follows the default dtype

_Names = tuple[str, ...]
_Objects = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """What some namespaces held: (name, namespace, names in it, values), and the code of functions."""

    spaces: tuple[tuple[str, ModuleType | type, _Names, _Objects], ...]
    functions: tuple[FunctionType, ...]
    codes: tuple[tuple[CodeType, _Objects | None], ...]

    def broken(self) -> _Names:
        """Names of what was replaced since."""
        found: list[str] = []
        for space, holder, names, values in self.spaces:
            now = vars(holder)
            if not all(map(operator.is_, map(now.get, names), values)):
                found += [f"{space}.{n}" for n, v in zip(names, values, strict=True) if now.get(n) is not v]
        for function, (code, defaults) in zip(self.functions, self.codes, strict=True):
            if function.__code__ is not code or function.__defaults__ is not defaults:
                found.append(f"{function.__module__}.{function.__qualname__}")
        return tuple(found)


def seal() -> Seal:
    """Note what the watched modules and their classes hold now."""
    spaces: list[tuple[str, ModuleType | type, _Names, _Objects]] = []
    functions: list[FunctionType] = []
    for name, module in _modules():
        held = {k: v for k, v in vars(module).items() if callable(v) or isinstance(v, ModuleType)}
        classes = [v for v in held.values() if isinstance(v, type) and v.__module__ == name]
        classes = classes if name.startswith(_CLASSES_OF) else []
        spaces += [_space(name, module, held)] + [_space(f"{name}.{c.__name__}", c, vars(c)) for c in classes]
        if name.startswith(_CODE_OF):
            functions += [f for s in (held, *map(vars, classes)) for f in _plain(s.values())]
    codes = tuple((f.__code__, f.__defaults__) for f in functions)
    return Seal(tuple(spaces), tuple(functions), codes)


def _modules() -> list[tuple[str, ModuleType]]:
    names = [n for n in sys.modules if n in _WATCHED or n.startswith(_OURS)]
    return [(n, m) for n in names if isinstance(m := sys.modules[n], ModuleType)]


def _space(
    name: str, holder: ModuleType | type, held: Iterable[str]
) -> tuple[str, ModuleType | type, _Names, _Objects]:
    names = tuple(n for n in held if f"{name}.{n}" not in _MOVING)
    return name, holder, names, tuple(vars(holder)[n] for n in names)


def _plain(values: Iterable[object]) -> list[FunctionType]:
    return [v for v in values if isinstance(v, FunctionType)]
