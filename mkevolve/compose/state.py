"""What a trace has baked in of a module: plain values, functions, structure; and whether they are the same.

`Walk` reads everything, by path; `Watch` remembers which objects it found where, so that the usual case, in
which nothing was touched, is a comparison of identities.
"""

import functools
import logging
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from operator import is_, methodcaller

import numpy as np
import torch
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# `_compiled_call_impl`: `module.compile()` changes how it runs, not what it computes
_STANDARD = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
_NAMED = ("_parameters", "_buffers")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice, type(Ellipsis))
_BY_IDENTITY = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    staticmethod,
    classmethod,
    property,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    torch.Generator,
    logging.Logger,  # knows every other logger
)
_values = methodcaller("values")

Key = tuple[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Equal to a mark of the same object only; keeps it alive, so that no other takes its address."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Tied:
    """The mark of a tensor that lies at another place too, which the walk came to before."""

    first: Key


class Walk:
    """Everything in a module that is no tensor, as marks that compare: by submodule number and path.

    A copy of a module has equal marks. Tensors count as being there, their content is read at each call; but
    a tied one must stay tied, since the graph has one input for all its places.
    """

    def __init__(self, module: nn.Module) -> None:
        self.marks: dict[Key, object] = {}
        self.modules = tuple(module.modules())
        self.owners: list[object] = []
        self.mappings: list[Mapping[object, object]] = []
        self.sequences: list[Iterable[object]] = []
        self.others: list[Callable[[], object]] = []
        self._number = 0
        self._tensors: dict[int, Key] = {}
        self._seen = {id(m): f"module {i}" for i, m in enumerate(self.modules)}
        classes: dict[type, None] = {}
        for number, one in enumerate(self.modules):
            self._number = number
            classes |= dict.fromkeys(type(one).__mro__)
            self._module(one)
        self._number = -1
        for owner in classes:
            if owner.__module__.partition(".")[0] not in ("torch", "builtins"):
                self._class(owner)

    def _module(self, module: nn.Module) -> None:
        state = vars(module)
        self._own(module)
        self.marks[self._number, ".__class__"] = _Same(type(module))
        for name in _NAMED:
            self._visit(f".{name}", state[name])
        self.mappings.append(state["_modules"])
        for name in state:
            if name not in _STANDARD:
                self._visit(f".{name}", state[name])

    def _class(self, owner: type) -> None:
        self.mappings.append(vars(owner))  # type: ignore[arg-type]
        for name, value in vars(owner).items():
            if not name.startswith("__"):  # copying an object adds some of those
                self._visit(f"{owner.__qualname__}.{name}", value)

    def _own(self, value: object) -> None:
        self.owners.append(value)
        self.mappings.append(vars(value))  # type: ignore[arg-type]

    def _mark(self, path: str, mark: object) -> None:
        self.marks[self._number, path] = mark

    def _visit(self, path: str, value: object) -> None:
        if isinstance(value, torch.Tensor):
            here = (self._number, path)
            first = self._tensors.setdefault(id(value), here)
            self._mark(path, "tensor" if first == here else Tied(first))
        elif isinstance(value, (*_PLAIN, *_VALUES)):
            self._mark(path, (type(value), repr(value)))
        elif id(value) in self._seen:
            self._mark(path, self._seen[id(value)])
        elif isinstance(value, _BY_IDENTITY):
            self._mark(path, _Same(value))
        else:
            self._seen[id(value)] = f"{self._number}{path}"
            self._inside(path, value)

    def _inside(self, path: str, value: object) -> None:
        if isinstance(value, types.MethodType):
            self._mark(path, _Same(value.__func__))
            self._visit(f"{path}.__self__", value.__self__)
        elif isinstance(value, np.ndarray):
            self.others.append(lambda: (value.dtype.str, value.shape, value.tobytes()))
            self._mark(path, self.others[-1]())
        elif isinstance(value, Set):
            self.others.append(lambda: sorted(map(repr, value)))
            self._mark(path, (type(value), self.others[-1]()))
        elif isinstance(value, dict):
            self.mappings.append(value)
            self._mark(path, (type(value), list(map(repr, value))))
            self._children(path, ((f"[{k!r}]", v) for k, v in value.items()))
        elif isinstance(value, list | tuple | deque):
            self.sequences.append(value)
            self._mark(path, (type(value), len(value)))
            self._children(path, ((f"[{i}]", v) for i, v in enumerate(value)))
        elif isinstance(value, functools.partial):
            self._mark(path, type(value))
            self._children(path, ((".func", value.func), (".args", value.args), (".kw", value.keywords)))
        else:
            self._object(path, value)

    def _object(self, path: str, value: object) -> None:
        slots = tuple(
            name
            for owner in type(value).__mro__
            for name in _names(vars(owner).get("__slots__", ()))
            if name not in ("__dict__", "__weakref__")
        )
        if not slots and not hasattr(value, "__dict__"):
            self._mark(path, _Same(value))  # nothing to look into
            return
        held = vars(value) if hasattr(value, "__dict__") else {}
        self._mark(path, _Same(type(value)))
        if hasattr(value, "__dict__"):
            self._own(value)
        if slots:
            self.others.append(lambda: [_Same(getattr(value, name, None)) for name in slots])
        inside = chain(held.items(), ((name, getattr(value, name, None)) for name in slots))
        self._children(path, ((f".{k}", v) for k, v in inside))

    def _children(self, path: str, items: Iterable[tuple[str, object]]) -> None:
        for place, value in items:
            self._visit(path + place, value)


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def difference(known: Mapping[Key, object], found: Mapping[Key, object]) -> Key | None:
    """The first place where two walks differ."""
    for key in chain(known, found):
        if key not in known or key not in found or known[key] != found[key]:
            return key
    return None


class Watch:
    """The objects that a walk found; `holds` while each is still where it was."""

    def __init__(self, walk: Walk) -> None:
        self._owners = tuple(walk.owners)
        self._types = tuple(map(type, walk.owners))
        self._spaces = tuple(map(vars, walk.owners))
        self._mappings = tuple(walk.mappings)
        self._sizes = list(map(len, walk.mappings))
        self._keys = list(chain.from_iterable(walk.mappings))
        self._values = list(chain.from_iterable(map(_values, walk.mappings)))
        self._sequences = tuple(walk.sequences)
        self._lengths = list(map(_length, walk.sequences))
        self._items = list(chain.from_iterable(walk.sequences))
        self._others = tuple((read, read()) for read in walk.others)
        self._hooks = tuple(vars(m)[name] for m in walk.modules for name in HOOKS)

    def holds(self) -> bool:
        """Tell whether nothing was set, added or removed since the walk; cheap."""
        return (
            not any(self._hooks)
            and all(map(is_, map(type, self._owners), self._types))
            and all(map(is_, map(vars, self._owners), self._spaces))
            and list(map(len, self._mappings)) == self._sizes
            and all(map(is_, chain.from_iterable(self._mappings), self._keys))
            and all(map(is_, chain.from_iterable(map(_values, self._mappings)), self._values))
            and list(map(_length, self._sequences)) == self._lengths
            and all(map(is_, chain.from_iterable(self._sequences), self._items))
            and all(read() == known for read, known in self._others)
        )


def _length(value: object) -> int:
    return len(value)  # type: ignore[arg-type]
