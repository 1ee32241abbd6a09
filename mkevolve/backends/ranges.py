"""Whether offsets that a kernel computes in 32 bits can leave them, by the ranges of its integers.

Ranges come from the arguments of one launch and its grid. What cannot be known (values that are loaded) is
taken to be fine, so this accuses nobody without a reason.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mkevolve.backends.ttir import Op, Places, element_type
from mkevolve.data.plan import Wrap

LIMIT = 2**31 - 1  # elements that an offset in 32 bits reaches
_INF = math.inf
_SAME = frozenset(
    {
        "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "arith.extsi", "arith.extui",
        "arith.trunci", "arith.index_cast", "tt.bitcast",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Range:
    """An integer, or a pointer into the argument `base`; `wrapped` is where it may have left 32 bits."""

    low: float = -_INF
    high: float = _INF
    base: str = ""
    wrapped: str = ""

    @property
    def known(self) -> bool:
        return self.low > -_INF and self.high < _INF


_UNKNOWN = Range()


def find_wraps(
    functions: Sequence[Op],
    places: Places,
    arguments: Sequence[tuple[str, object]],
    grid: tuple[int, int, int],
    large: frozenset[str],
) -> tuple[Wrap, ...]:
    """Arguments among `large` (tensors of more than `LIMIT` elements) that are reached by such an offset.

    `arguments` are the names and values of a launch, in order.
    """
    kernel = next((f for f in functions if "public" in f.text), None)
    if kernel is None or not large or not kernel.regions:
        return ()
    walk = _Walk(grid, large)
    known = {
        printed: _argument(name, value)
        for (printed, _), (name, value) in zip(kernel.arguments, arguments, strict=False)
    }
    walk.region(kernel.regions[0], known)
    return tuple(dict.fromkeys(Wrap(base, places.line(place)) for base, place in walk.found))


def _argument(name: str, value: object) -> Range:
    if isinstance(value, int):
        return Range(int(value), int(value))
    return Range(base=name)


class _Walk:
    """Evaluates ranges in order; `found` are (argument, place) of addresses that may be wrong."""

    def __init__(self, grid: tuple[int, int, int], large: frozenset[str]) -> None:
        self._grid: dict[str, float] = dict(zip("xyz", grid, strict=True))
        self._large = large
        self.found: list[tuple[str, str]] = []

    def region(self, ops: list[Op], known: dict[str, Range]) -> list[Range]:
        """Evaluate a region, adding to `known`; return what it ends with."""
        for op in ops:
            values = [known.get(name, _UNKNOWN) for name in op.operands]
            if op.name == "scf.yield":
                return values
            results = self._op(op, values, known)
            known.update(zip(op.results, results, strict=False))
        return []

    def _op(self, op: Op, values: list[Range], known: dict[str, Range]) -> list[Range]:
        if op.name == "scf.for":
            return self._for(op, values, known)
        if op.name == "scf.if":
            ends = [self.region(region, dict(known)) for region in op.regions]
            return [_union(list(parts)) for parts in zip(*ends, strict=False)]
        if op.regions:
            return []
        if op.name == "tt.addptr" and len(values) == 2:
            base, offset = values
            if offset.wrapped and base.base in self._large:
                self.found.append((base.base, offset.wrapped))
            return [Range(base=base.base)]
        return [self._checked(op, self._plain(op, values), values)]

    def _plain(self, op: Op, values: list[Range]) -> Range:
        match op.name:
            case "arith.constant":
                return _constant(op.text)
            case "tt.get_program_id":
                return Range(0, max(self._grid.get(op.text[:1], _INF) - 1, 0))
            case "tt.get_num_programs":
                size = self._grid.get(op.text[:1])
                return _UNKNOWN if size is None else Range(size, size)
            case "tt.make_range":
                numbers = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", op.text)}
                return Range(numbers.get("start", 0), numbers.get("end", _INF) - 1)
            case "arith.select":
                return _union(values[1:])
        if op.name in _SAME and values:
            return replace(values[0], wrapped="")
        rule = _ARITHMETIC.get(op.name)
        return rule(*values[:2]) if rule is not None and len(values) >= 2 else _UNKNOWN

    def _checked(self, op: Op, result: Range, values: list[Range]) -> Range:
        """Note where the result may not fit; what is computed from such a value may be wrong too."""
        wrapped = next((v.wrapped for v in values if v.wrapped), "")
        narrow = element_type(op.result_type) == "i32" and op.name in _ARITHMETIC
        if narrow and result.known and (result.high > LIMIT or result.low < -LIMIT - 1):
            wrapped = wrapped or op.location or "?"
        return replace(result, wrapped=wrapped)

    def _for(self, op: Op, values: list[Range], known: dict[str, Range]) -> list[Range]:
        """Once to see how much a pass adds to what is carried, once more with that many times as much."""
        low, high, step = values[:3]
        names = [name for name, _ in op.arguments]
        counter = Range(low.low, max(high.high - 1, low.low), wrapped=low.wrapped or high.wrapped)
        before = len(self.found)
        once = self.region(op.regions[0], known | dict(zip(names, [counter, *values[3:]], strict=False)))
        del self.found[before:]
        trips = (high.high - low.low) / step.low if step.low > 0 else _INF
        carried = [_grown(a, b, trips) for a, b in zip(values[3:], once, strict=False)]
        after = self.region(op.regions[0], known | dict(zip(names, [counter, *carried], strict=False)))
        if any(b.wrapped and not a.wrapped for a, b in zip(carried, after, strict=False)):
            carried = [replace(a, wrapped=b.wrapped) for a, b in zip(carried, after, strict=False)]
            after = self.region(op.regions[0], known | dict(zip(names, [counter, *carried], strict=False)))
        return [_union([a, b]) for a, b in zip(values[3:], after, strict=False)]


def _constant(text: str) -> Range:
    match = re.fullmatch(r"(?:dense<)?(-?\d+)>?", text.strip())
    return Range(int(match[1]), int(match[1])) if match else _UNKNOWN


def _union(values: list[Range]) -> Range:
    base = values[0].base if all(v.base == values[0].base for v in values) else ""
    wrapped = next((v.wrapped for v in values if v.wrapped), "")
    return Range(min(v.low for v in values), max(v.high for v in values), base, wrapped)


def _grown(first: Range, second: Range, trips: float) -> Range:
    if not (first.known and second.known and trips < _INF):
        return replace(_UNKNOWN, base=first.base, wrapped=first.wrapped)
    low = first.low + min(second.low - first.low, 0) * trips
    high = first.high + max(second.high - first.high, 0) * trips
    return Range(low, high, first.base, first.wrapped)


def _corners(combine: Callable[[float, float], float]) -> Callable[[Range, Range], Range]:
    def rule(a: Range, b: Range) -> Range:
        if not (a.known and b.known):
            return _UNKNOWN
        found = [combine(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(found), max(found))

    return rule


def _divide(a: Range, b: Range) -> Range:
    return _corners(lambda x, y: int(x / y))(a, b) if b.low > 0 else _UNKNOWN


def _remainder(a: Range, b: Range) -> Range:
    if not (a.low >= 0 and b.low > 0):
        return _UNKNOWN
    return Range(0, min(a.high, b.high - 1))


def _and(a: Range, b: Range) -> Range:
    return Range(0, min(a.high, b.high)) if a.low >= 0 and b.low >= 0 else _UNKNOWN


def _shift(a: Range, b: Range) -> Range:
    small = b.low >= 0 and b.high < 64
    return _corners(lambda x, y: x * 2 ** int(y))(a, b) if small else _UNKNOWN


_ARITHMETIC: Mapping[str, Callable[[Range, Range], Range]] = {
    "arith.addi": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "arith.subi": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "arith.muli": _corners(lambda x, y: x * y),
    "arith.divsi": _divide,
    "arith.divui": _divide,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.minsi": lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)),
    "arith.maxsi": lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)),
    "arith.andi": _and,
    "arith.shli": _shift,
}
