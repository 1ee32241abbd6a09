"""Draws small, odd check sizes for a model that comes with one: which sizes are free, and from what value."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sympy  # type: ignore[import-untyped]
import torch
from torch.export.graph_signature import InputKind as ExportedKind
from torch.utils import _pytree as pytree

from mkevolve.capture.tracing import trace_symbolic
from mkevolve.data.graph import TensorSpec
from mkevolve.data.model import Leaf
from mkevolve.models.inputs import Call
from mkevolve.models.source import Model

_ODD = (1, 3, 5, 7, 9, 11, 13, 17, 21, 33, 65)
_STEPS = (1, 2, 4, 64)
_SMALLEST = 5  # below that a window or a tail is hardly ever whole


@dataclass(frozen=True)
class FreeSize:
    """A size that may change: its value at the target, and the range that the trace allows."""

    symbol: sympy.Symbol
    value: int
    low: int
    high: float

    def allows(self, size: int) -> bool:
        return self.low <= size <= self.high and size != self.value


@dataclass(frozen=True)
class Sizes:
    """The free sizes of a call; `batch` is the one in front, where that is free."""

    free: tuple[FreeSize, ...]
    batch: FreeSize | None
    shapes: tuple[tuple[sympy.Expr, ...], ...]  # one a tensor leaf


def free_sizes(model: Model, call: Call) -> Sizes:
    """Find the free sizes of a real call by one symbolic trace; raises CaptureError where that fails."""
    program = trace_symbolic(model.module, call)
    by_name = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    shapes = tuple(
        tuple(map(_expression, by_name[s.arg.name].meta["val"].shape))
        for s in program.graph_signature.input_specs
        if s.kind is ExportedKind.USER_INPUT and isinstance(by_name[s.arg.name].meta.get("val"), torch.Tensor)
    )
    real = [v for v in pytree.tree_leaves(call) if isinstance(v, torch.Tensor)]
    found: dict[sympy.Symbol, FreeSize] = {}
    for shape, tensor in zip(shapes, real, strict=True):
        for expression, size in zip(shape, tensor.shape, strict=True):
            for symbol in expression.free_symbols - set(found):
                value = _solved(expression, symbol, size)
                bounds = program.range_constraints.get(symbol)
                if value is not None:
                    low = 2 if bounds is None else _bound(bounds.lower, 2)
                    high = math.inf if bounds is None else _bound(bounds.upper, math.inf)
                    found[symbol] = FreeSize(symbol, value, int(low), high)
    front = shapes[0][0] if shapes and shapes[0] else sympy.Integer(0)
    return Sizes(tuple(found.values()), found.get(front), shapes)


def candidates(
    sizes: Sizes, call: Call, batch: int, fits: Callable[[tuple[Leaf, ...]], bool]
) -> Iterator[tuple[Leaf, ...]]:
    """Propose leaves with the batch size `batch`, boldest first; only the first that eager accepts is wanted.

    All sizes are odd, then small multiples of 2, of 4 and of the power of two in the target's size (a model
    with pooling or patches needs them); then one size after the other is changed where `fits` allows; at last
    only the batch changes.
    """
    rest = [s for s in sizes.free if s is not sizes.batch]
    kept = {s.symbol: s.value for s in sizes.free}
    if sizes.batch is not None and batch != sizes.batch.value:
        kept[sizes.batch.symbol] = batch
    limits = _largest_integers(call)
    choices = {s.symbol: _choices(s, limits, i + (batch == 1)) for i, s in enumerate(rest)}
    target = {s.symbol: s.value for s in sizes.free}
    tried = [target]
    for level in range(len(_STEPS) + 2):
        if level < len(_STEPS):
            values = {**kept, **{symbol: chosen[level] for symbol, chosen in choices.items()}}
        elif level == len(_STEPS):
            values = _one_by_one(kept, choices, lambda v: fits(_leaves(call, sizes, v)))
        else:
            values = kept
        if values not in tried:
            tried.append(values)
            yield _leaves(call, sizes, values)


def _one_by_one(
    start: Mapping[sympy.Symbol, int],
    choices: Mapping[sympy.Symbol, tuple[int, ...]],
    fits: Callable[[Mapping[sympy.Symbol, int]], bool],
) -> dict[sympy.Symbol, int]:
    values = dict(start)
    for symbol, sizes in choices.items():
        found = (size for size in sizes if size != start[symbol] and fits({**values, symbol: size}))
        values[symbol] = next(found, start[symbol])
    return values


def _choices(size: FreeSize, limits: tuple[int, ...], rotate: int) -> tuple[int, ...]:
    """One size for each of `_STEPS`; `rotate` tells the dimensions of a call, and its variants, apart."""
    steps = [min(step, _power_of_two(size.value)) for step in _STEPS]
    return tuple(_first(size, limits, _multiples(step)[rotate % 3 :]) for step in steps)


def _multiples(step: int) -> tuple[int, ...]:
    return tuple(odd * step for odd in _ODD if odd * step >= _SMALLEST)


def _first(size: FreeSize, limits: tuple[int, ...], choices: tuple[int, ...]) -> int:
    return next((c for c in choices if size.allows(c) and _holds(c, size.value, limits)), size.value)


def _holds(size: int, old: int, limits: tuple[int, ...]) -> bool:
    """Whether positions or lengths among the integer inputs, which fitted `old`, still fit `size`."""
    return all(size >= min(limit + 1, old) for limit in limits if limit <= old)


def _largest_integers(call: Call) -> tuple[int, ...]:
    integers = (torch.int64, torch.int32, torch.int16)
    return tuple(
        int(v.max())
        for v in pytree.tree_leaves(call)
        if isinstance(v, torch.Tensor) and v.dtype in integers and v.numel()
    )


def _leaves(call: Call, sizes: Sizes, values: Mapping[sympy.Symbol, int]) -> tuple[Leaf, ...]:
    shapes = iter(sizes.shapes)
    leaves = []
    for value in pytree.tree_leaves(call):
        if not isinstance(value, torch.Tensor):
            leaves.append(Leaf(None, repr(value)))
            continue
        shape = tuple(int(e.subs(values)) for e in next(shapes))
        dtype = str(value.dtype).removeprefix("torch.")
        leaves.append(Leaf(TensorSpec(shape, dtype, _dense(shape, value.stride()))))
    return tuple(leaves)


def _dense(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps for `shape`, its dimensions in the memory order of the strides `order`."""
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda d: (order[d], -d)):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _power_of_two(size: int) -> int:
    return size & -size if size else 1


def _expression(size: object) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _solved(expression: sympy.Expr, symbol: sympy.Symbol, size: int) -> int | None:
    if expression == symbol:
        return int(size)
    if len(expression.free_symbols) > 1:
        return None
    found = [s for s in sympy.solve(expression - size, symbol) if s.is_integer]
    return int(found[0]) if found else None


def _bound(value: object, default: float) -> float:
    return int(value) if isinstance(value, sympy.Integer | int) else default
