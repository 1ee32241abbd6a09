"""Reads the text of Triton's first intermediate representation (TTIR) into operations with their regions.

Only what the textual form shows: names, operands, types, places. Names may be used again in a region that
comes later; a definition always precedes its uses, so a walk in order with one table of names is exact.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_OP = re.compile(
    r"^(?:(?P<results>%[\w.$-]+(?::\d+)?(?:, %[\w.$-]+(?::\d+)?)*) = )?"
    r'"?(?P<name>[a-z_\d]+\.[\w.]+)"?(?P<rest>.*)$'
)
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_LOC = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_ARGUMENT = re.compile(r"(%[\w.$-]+): ([^,{)]+)")
_CARRIED = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")


@dataclass
class Op:
    """One operation. `operands` are names of values; `types` is the text after the last ` : `.

    `arguments` are the names that its first region defines: arguments of a function or block, the counter
    of a loop and what it carries.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    types: str
    location: str
    arguments: list[tuple[str, str]] = field(default_factory=list)
    regions: list[list["Op"]] = field(default_factory=list)

    def walk(self) -> Iterator["Op"]:
        """This operation and all within it, in order."""
        yield self
        for region in self.regions:
            for op in region:
                yield from op.walk()

    @property
    def result_type(self) -> str:
        """The type of the first result, as text."""
        last = re.split(r" -> | to ", self.types)[-1]
        return last.strip().strip("()")


@dataclass(frozen=True)
class Places:
    """Maps locations of a module to lines of the candidate's file."""

    path: str
    aliases: Mapping[str, str]

    def line(self, location: str) -> int | None:
        """Follow names, call sites and fusions to the first place that lies in the candidate's file."""
        seen: set[str] = set()
        pending = [location]
        while pending:
            text = pending.pop(0)
            for file, line in _PLACE.findall(text):
                if file == self.path:
                    return int(line)
            for name in re.findall(r"#loc\d*", text):
                if name not in seen:
                    seen.add(name)
                    pending.append(self.aliases.get(name, ""))
        return None


def places(ttir: str, path: str) -> Places:
    """Read the table of locations."""
    return Places(path, dict(_ALIAS.findall(ttir)))


def element_type(text: str) -> str:
    """`f16` of `tensor<4x!tt.ptr<f16>>`, of `tensor<4xf16>` and of `f16`."""
    inner = text.strip()
    while match := re.fullmatch(r"(?:tensor|!tt\.ptr)<(.*)>", inner):
        inner = match[1].split(", ")[0]
        if not inner.startswith("!"):
            inner = re.sub(r"^(?:\d+x)+", "", inner)
    return inner


def read(ttir: str) -> list[Op]:
    """The functions of a module, each an operation with one region."""
    functions: list[Op] = []
    stack: list[tuple[Op, list[Op]]] = []
    for raw in ttir.splitlines():
        line = raw.strip()
        if not line or line.startswith(("#loc", "module", "//")):
            continue
        bare = _LOC.sub("", line)
        if bare.startswith("^"):
            if stack:
                stack[-1][0].arguments += [(n, t.strip()) for n, t in _ARGUMENT.findall(bare)]
            continue
        if bare.startswith("}"):
            _close(line, bare, stack)
            continue
        op = _operation(line, bare)
        if op is None:
            continue
        if op.name == "tt.func":
            functions.append(op)
        elif stack:
            stack[-1][1].append(op)
        if bare.endswith("{"):
            op.regions.append([])
            stack.append((op, op.regions[-1]))
    return functions


def _operation(line: str, bare: str) -> Op | None:
    match = _OP.match(bare)
    if match is None:
        return None
    head, _, types = match["rest"].rstrip("{ ").rpartition(" : ")
    if not head:
        head, types = types, ""
    locations = _LOC.findall(line)
    op = Op(
        match["name"],
        _results(match["results"] or ""),
        tuple(_VALUE.findall(head)),
        head.strip(),
        types.strip(),
        locations[-1] if locations else "",
    )
    if op.name == "tt.func":
        op.text = match["rest"]
        op.arguments += [(n, t.strip()) for n, t in _ARGUMENT.findall(match["rest"])]
    elif op.name in ("scf.for", "scf.while"):
        _loop(op, head)
    return op


def _results(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in filter(None, text.split(", ")):
        name, _, count = part.partition(":")
        found += [f"{name}#{i}" for i in range(int(count))] if count else [name]
    return tuple(found)


def _loop(op: Op, head: str) -> None:
    """A loop's operands become its bounds (of a `for`) and what it carries in; the rest are its arguments."""
    bounds = re.search(r"(%[\w.$-]+) = (%[\w.$#-]+) to (%[\w.$#-]+) step (%[\w.$#-]+)", head)
    carried = head[bounds.end() :] if bounds else head
    pairs = _CARRIED.findall(carried)
    if bounds:
        op.arguments.append((bounds[1], ""))
    op.arguments += [(name, "") for name, _ in pairs]
    op.operands = ((bounds[2], bounds[3], bounds[4]) if bounds else ()) + tuple(v for _, v in pairs)


def _close(line: str, bare: str, stack: list[tuple[Op, list[Op]]]) -> None:
    if not stack:
        return
    op, _ = stack.pop()
    if bare.endswith("{"):  # `} else {`, `} do {`
        op.regions.append([])
        stack.append((op, op.regions[-1]))
        return
    if " : " in bare:
        op.types = bare.rpartition(" : ")[2].strip()
    locations = _LOC.findall(line)
    if locations:
        op.location = locations[-1]
