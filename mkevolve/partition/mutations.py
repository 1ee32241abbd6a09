"""Moves from one decomposition to the next: a table of functions under `@mutation`.

A mutation may return an illegal cut; `apply` checks legality once for all of them. `None` = does not apply.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.model import CapturedModel
from mkevolve.errors import IllegalPartition
from mkevolve.partition.canonical import cut_out
from mkevolve.partition.facts import Facts
from mkevolve.partition.legality import check, dependencies, owners
from mkevolve.partition.realize import facts_of, realize


@dataclass(frozen=True, slots=True)
class Move:
    """One use of a mutation: `partitions` by number; `node` begins the second half of a split."""

    mutation: str
    partitions: tuple[int, ...]
    node: str | None = None


Mutation = Callable[[Facts, Decomposition, Move], Decomposition | None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    """Enter a mutation into the table under its name."""
    MUTATIONS[function.__name__] = function
    return function


def apply(captured: CapturedModel, decomposition: Decomposition, move: Move) -> Decomposition | None:
    """Return the child, or None where the move is illegal or does not apply."""
    facts = facts_of(realize(captured, decomposition))
    if any(not 0 <= i < len(decomposition.partitions) for i in move.partitions):
        return None
    child = MUTATIONS[move.mutation](facts, decomposition, move)
    if child is None:
        return None
    try:
        check(facts, child)
    except IllegalPartition:
        return None
    return child


def moves(captured: CapturedModel, decomposition: Decomposition) -> Iterator[Move]:
    """Every fuse of neighbours and every best split, in graph order; some may turn out to be illegal."""
    facts = facts_of(realize(captured, decomposition))
    edges = dependencies(facts, owners(decomposition))
    for number in range(len(decomposition.partitions)):
        for other in sorted(edges.get(number, ())):
            yield Move("fuse", (other, number))
        if sum(not facts.is_view(n) for n in decomposition.partitions[number]) > 1:
            yield Move("split", (number,))


@mutation
def fuse(facts: Facts, decomposition: Decomposition, move: Move) -> Decomposition | None:
    """Join two partitions of which one reads what the other makes."""
    if len(move.partitions) != 2 or move.partitions[0] == move.partitions[1]:
        return None
    first, second = (decomposition.partitions[i] for i in move.partitions)
    if not (_feeds(facts, first, second) or _feeds(facts, second, first)):
        return None
    text = f"fuse {_title(facts, first)} with {_title(facts, second)}"
    return _child(facts, decomposition, move.partitions, [first + second], text)


@mutation
def split(facts: Facts, decomposition: Decomposition, move: Move) -> Decomposition | None:
    """Cut a partition in two: before `move.node`, else where the fewest bytes cross."""
    if len(move.partitions) != 1:
        return None
    nodes = decomposition.partitions[move.partitions[0]]
    compute = [n for n in nodes if not facts.is_view(n)]
    if move.node is not None and move.node not in compute[1:]:
        return None
    places = [compute.index(move.node)] if move.node else range(1, len(compute))
    halves = [(compute[:at], compute[at:]) for at in places]
    if not halves:
        return None
    head, tail = min(halves, key=lambda pair: (_crossing(facts, *pair), len(pair[0])))
    text = f"split {_title(facts, nodes)} before {tail[0]}"
    return _child(facts, decomposition, move.partitions, [tuple(head), tuple(tail)], text)


def _child(
    facts: Facts,
    parent: Decomposition,
    replaced: tuple[int, ...],
    made: list[tuple[str, ...]],
    text: str,
) -> Decomposition:
    """Replace partitions; formats of values that are no longer a boundary are dropped."""
    kept = [p for i, p in enumerate(parent.partitions) if i not in replaced]
    rows = [tuple(sorted(p, key=lambda n: facts.index[n])) for p in kept + made]
    partitions = tuple(sorted(rows, key=lambda p: facts.index[p[0]]))
    formats = parent.formats
    if formats:
        boundary = {v for p in partitions for v in cut_out(facts, p).outputs}
        formats = tuple(f for f in formats if f[0] in boundary)
    return Decomposition(partitions, formats, parent.copies, parent.id, text)


def _feeds(facts: Facts, first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    members = set(first)
    return any(p in members for n in second if not facts.is_view(n) for p in facts.parents(n))


def _crossing(facts: Facts, head: list[str], tail: list[str]) -> int:
    """Bytes that the head writes because the tail, and it alone, reads them."""
    own, other = set(head), set(tail)
    total = 0
    for node in head:
        for value in facts.results(node):
            readers = facts.readers.get(value, ())
            already = value in facts.returned or any(r not in own and r not in other for r in readers)
            if not already and any(r in other for r in readers):
                total += facts.specs[value].nbytes
    return total


def _title(facts: Facts, nodes: tuple[str, ...]) -> str:
    """The first and the last compute node."""
    compute = [n for n in nodes if not facts.is_view(n)]
    return compute[0] if len(compute) == 1 else f"{compute[0]}..{compute[-1]}"
