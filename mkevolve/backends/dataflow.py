"""What a kernel's intermediate representation shows of its precision: casts to narrower floats, and sums
that are kept in less than 32 bits.
"""

import re
from dataclasses import dataclass, field

from mkevolve.backends.artefacts import DTYPES
from mkevolve.backends.ttir import Op, Places, element_type
from mkevolve.data.plan import Cast, Sum

_NARROW = frozenset(name for name, dtype in DTYPES.items() if name[0] in "fb" and name not in ("f32", "f64"))
_ZERO = re.compile(r"(?:dense<)?-?0\.0+e\+00>?")
_CASTS = frozenset(
    {"arith.truncf", "tt.fp_to_fp", "tt.bitcast", "arith.bitcast", "arith.sitofp", "arith.uitofp"}
)
_ADDS = frozenset({"arith.addf", "arith.subf", "math.fma"})


def find_casts(functions: list[Op], places: Places) -> tuple[Cast, ...]:
    """Every cast of floats to fewer bits, and of other values to floats of less than 32, once a line."""
    found: dict[Cast, None] = {}
    for op in _all(functions):
        if op.name in _CASTS:
            before, _, after = op.types.partition(" -> " if " -> " in op.types else " to ")
            source, result = element_type(before), element_type(after)
            if _bits(result) < _bits(source) if source[:1] != "i" else result in _NARROW:
                cast = Cast(DTYPES.get(source, source), DTYPES.get(result, result), places.line(op.location))
                found[cast] = None
    return tuple(found)


def find_sums(functions: list[Op], places: Places) -> tuple[Sum, ...]:
    """Sums over many values that are kept in a float of less than 32 bits, and float atomics of any width,
    once a line.
    """
    found: dict[Sum, None] = {}
    for op in _all(functions):
        if op.name in ("tt.reduce", "tt.scan"):
            kinds = {element_type(kind) for _, kind in op.arguments} & _NARROW
            if kinds and any(inner.name in _ADDS for inner in op.walk()):
                what = "reduction" if op.name == "tt.reduce" else "scan"
                found[Sum(what, DTYPES[min(kinds)], places.line(op.location))] = None
        elif op.name == "tt.atomic_rmw" and op.text.startswith("fadd"):
            kind = element_type(op.result_type)
            found[Sum("atomic addition", DTYPES[kind], places.line(op.location))] = None
    for function in functions:
        flow = _Flow()
        flow.region(function.regions[0] if function.regions else [], dict.fromkeys(_names(function), -1))
        for carried in flow.carried:
            kind = element_type(carried.kind)
            place = flow.added(carried) if kind in _NARROW else None
            if place is not None:
                found[Sum("loop", DTYPES[kind], places.line(place))] = None
    return tuple(found)


def find_address(functions: list[Op], places: Places) -> tuple[bool, int | None]:
    """Whether a pointer is turned into a number or back, or compared with another, and the line where.

    What an address is differs between interpreter, device and calls; no result may depend on it.
    """
    for op in _all(functions):
        if op.name in ("tt.ptr_to_int", "tt.int_to_ptr"):
            return True, places.line(op.location)
        if op.name in ("arith.cmpi", "tt.bitcast", "arith.bitcast"):
            before, _, after = op.types.partition(" -> ")
            if "!tt.ptr" in before and "!tt.ptr" not in (after or "i1"):
                return True, places.line(op.location)
    return False, None


def find_op(functions: list[Op], places: Places, name: str) -> int | None:
    """The line of the first operation of this name; None where there is none, or it has no line."""
    return next((places.line(op.location) for op in _all(functions) if op.name == name), None)


def _all(functions: list[Op]) -> list[Op]:
    return [op for function in functions for op in function.walk()]


def _names(op: Op) -> list[str]:
    return [name for name, _ in op.arguments]


def _bits(kind: str) -> int:
    return {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}.get(kind, 8 if kind.startswith("f8") else 64)


@dataclass
class _Carried:
    """A value that a loop hands on: what it is within, and what is handed on."""

    argument: int
    handed: int
    kind: str


@dataclass
class _Flow:
    """Which values each value is computed from; values are numbered as they are defined."""

    sources: list[tuple[int, ...]] = field(default_factory=list)
    adds: dict[int, str] = field(default_factory=dict)  # of values that are sums: the place
    carried: list[_Carried] = field(default_factory=list)
    zeros: set[int] = field(default_factory=set)

    def region(self, ops: list[Op], known: dict[str, int]) -> tuple[list[int], str]:
        """Number the values of a region; return what it ends with, and the types of that."""
        known = dict(known)
        for op in ops:
            ids = [known.get(name, -1) for name in op.operands]
            if op.name in ("scf.yield", "scf.condition"):
                return ids, op.types
            for name, number in zip(op.results, self._results(op, ids, known), strict=False):
                known[name] = number
        return [], ""

    def added(self, carried: _Carried) -> str | None:
        """The place where a loop adds to what it carries; None where it does not."""
        pending: list[tuple[int, str]] = [(carried.handed, "")]
        seen: set[tuple[int, bool]] = set()
        while pending:
            number, place = pending.pop()
            if number < 0 or (number, bool(place)) in seen:
                continue
            seen.add((number, bool(place)))
            if number == carried.argument:
                if place:
                    return place
                continue
            place = place or self.adds.get(number, "")
            pending += [(source, place) for source in self.sources[number]]
        return None

    def _new(self, sources: tuple[int, ...]) -> int:
        self.sources.append(sources)
        return len(self.sources) - 1

    def _results(self, op: Op, ids: list[int], known: dict[str, int]) -> list[int]:
        match op.name:
            case "scf.for":
                return self._for(op, ids, known)
            case "scf.while":
                return self._while(op, ids, known)
            case "scf.if":
                ends = [self.region(region, known)[0] for region in op.regions]
                return [self._new(values) for values in zip(*ends, strict=False)]
            case "tt.load" | "tt.atomic_rmw" | "tt.atomic_cas" | "tt.descriptor_load":
                return [self._new(()) for _ in op.results]
            case "arith.select":
                ids = ids[1:]
        results = [self._new(tuple(ids)) for _ in op.results]
        if op.name == "arith.constant" and _ZERO.fullmatch(op.text):
            self.zeros.update(results)
        if op.name == "arith.subf" and ids[:1] and ids[0] in self.zeros:
            return results  # a change of sign
        if op.name in _ADDS or op.name == "tt.dot" or any(o.name in _ADDS for o in op.walk()):
            self.adds.update(dict.fromkeys(results, op.location or "?"))
        return results

    def _for(self, op: Op, ids: list[int], known: dict[str, int]) -> list[int]:
        initial = ids[3:]
        inner = dict(known)
        inner.update(dict.fromkeys(_names(op)[:1], -1))
        arguments = [self._new((i,)) for i in initial]
        inner.update(zip(_names(op)[1:], arguments, strict=False))
        ends, kinds = self.region(op.regions[0], inner)
        self._carry(arguments, ends, kinds)
        return [self._new(pair) for pair in zip(ends, initial, strict=False)]

    def _while(self, op: Op, ids: list[int], known: dict[str, int]) -> list[int]:
        before, after = _names(op)[: len(ids)], _names(op)[len(ids) :]
        arguments = [self._new((i,)) for i in ids]
        passed, _ = self.region(op.regions[0], known | dict(zip(before, arguments, strict=False)))
        inner = known | {n: self._new((v,)) for n, v in zip(after, passed[1:], strict=False)}
        ends, kinds = self.region(op.regions[-1], inner)
        self._carry(arguments, ends, kinds)
        return [self._new((v,)) for v in passed[1:]]

    def _carry(self, arguments: list[int], ends: list[int], kinds: str) -> None:
        for argument, end, kind in zip(arguments, ends, kinds.split(", "), strict=False):
            self.carried.append(_Carried(argument, end, kind))
