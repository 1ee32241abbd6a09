"""Everything that a module keeps between calls: parameters, buffers, and tensors and values in attributes."""

import copy
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType

import torch
from torch import nn

_Leaf = torch.Tensor | bool | int | float | str | None
_STANDARD = frozenset(vars(nn.Module())) | {"training", "_is_full_backward_hook"}
_OPAQUE = (type, FunctionType, MethodType, ModuleType, torch.Generator)


def module_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Name every tensor of a module: first by `state_dict` (tied ones under each name), then by attribute."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    found.update((p, v) for p, v in _attributes(module) if isinstance(v, torch.Tensor) and p not in found)
    return found


Convert = Callable[[torch.Tensor], torch.Tensor]


def copy_module(module: nn.Module, convert: Convert, convert_attribute: Convert | None = None) -> nn.Module:
    """Copy a module with each of its tensors replaced by `convert` of it, once for tied ones.

    `convert_attribute` is for the tensors that are neither parameters nor buffers; None means `convert`.
    """
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    memo: dict[int, object] = {}
    for tensor in module_tensors(module).values():
        if id(tensor) not in memo:
            chosen = convert if id(tensor) in registered else convert_attribute or convert
            memo[id(tensor)] = chosen(tensor)
    return copy.deepcopy(module, memo)


def fingerprint(module: nn.Module) -> dict[str, object]:
    """Map each attribute path to what changes when it is written: identity and version, or the value."""
    marks: dict[str, object] = {
        name: id(p) if p is not None else None for name, p in module.named_parameters(remove_duplicate=False)
    }
    registered = {id(t) for t in (*module.parameters(), *module.buffers())}
    for path, value in _attributes(module):
        if isinstance(value, torch.Tensor):
            marks[path] = (id(value), None if id(value) in registered else value._version)
        else:
            marks[path] = (type(value), repr(value))
    return marks


def _attributes(module: nn.Module) -> Iterator[tuple[str, _Leaf]]:
    """Yield tensors and plain values held in attributes, lists, dicts and objects, with their paths."""
    seen = {id(sub) for sub in module.modules()}
    for prefix, sub in module.named_modules():
        for name, value in vars(sub).items():
            if name not in _STANDARD:
                yield from _leaves(f"{prefix}.{name}" if prefix else name, value, seen)


def _leaves(path: str, value: object, seen: set[int]) -> Iterator[tuple[str, _Leaf]]:
    if isinstance(value, torch.Tensor | bool | int | float | str) or value is None:
        yield path, value
        return
    if id(value) in seen or isinstance(value, _OPAQUE):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        items = [(f"{path}[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}[{i}]", v) for i, v in enumerate(value)]
    else:
        items = [(f"{path}.{k}", v) for k, v in getattr(value, "__dict__", {}).items()]
    for place, item in items:
        yield from _leaves(place, item, seen)
