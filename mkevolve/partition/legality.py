"""The rules that every cut obeys; breaking one raises `IllegalPartition` with the rule and the nodes.

known      every name is a node of the graph, and every partition computes something
disjoint   no node lies in two partitions
covering   every compute node lies in one (views may lie in none: they are glue)
functional no node writes to a tensor
random     a node that draws random numbers is alone, so that eager's order of draws is kept
convex     no path leaves a partition and comes back, through other partitions or glue
acyclic    the graph of partitions has a topological order
formats    only a boundary that the module does not return may have another memory format
Outputs never alias inputs: what leaves a partition is the result of a compute node, and views of it are
glue (`partition/facts.py`).
"""

import heapq
from collections.abc import Iterable, Mapping

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.graph import Graph
from mkevolve.errors import IllegalPartition
from mkevolve.partition.facts import Facts, survey
from mkevolve.partition.ops import Kind, packet


def check(graph: Facts | Graph, decomposition: Decomposition) -> None:
    """Raise `IllegalPartition` unless the cut is legal; linear in the size of the graph.

    The graph is the one that is cut: after the decomposition's copies, see `partition/realize.py`.
    """
    facts = graph if isinstance(graph, Facts) else survey([graph])
    owner = _owners(facts, decomposition)
    _check_nodes(facts, decomposition, owner)
    _check_formats(facts, decomposition)
    order(facts, decomposition, owner)


def owners(decomposition: Decomposition) -> dict[str, int]:
    """Partition number by node name."""
    return {node: i for i, nodes in enumerate(decomposition.partitions) for node in nodes}


def order(
    facts: Facts, decomposition: Decomposition, owner: Mapping[str, int] | None = None
) -> tuple[int, ...]:
    """Return the partitions in an order in which they can run; raises `IllegalPartition` if there is none.

    Among partitions that are ready, the one that comes first in the graph runs first.
    """
    edges = dependencies(facts, owners(decomposition) if owner is None else owner)
    waiting = [len(edges.get(i, ())) for i in range(len(decomposition.partitions))]
    users: dict[int, list[int]] = {}
    for user, needed in edges.items():
        for one in needed:
            users.setdefault(one, []).append(user)
    first = [min(facts.index[n] for n in nodes) for nodes in decomposition.partitions]
    ready = _Ready(first, [i for i, count in enumerate(waiting) if count == 0])
    done: list[int] = []
    while ready:
        current = ready.pop()
        done.append(current)
        for user in users.get(current, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.push(user)
    if len(done) < len(waiting):
        _explain(facts, decomposition, {i for i, count in enumerate(waiting) if count})
    return tuple(done)


class _Ready:
    """The partitions that can run, the one that begins first in the graph on top."""

    def __init__(self, first: list[int], items: list[int]) -> None:
        self._first = first
        self._heap = sorted((first[i], i) for i in items)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, item: int) -> None:
        heapq.heappush(self._heap, (self._first[item], item))

    def pop(self) -> int:
        return heapq.heappop(self._heap)[1]


def dependencies(facts: Facts, owner: Mapping[str, int]) -> dict[int, set[int]]:
    """Which partitions each partition waits for; random nodes wait for the random node before them."""
    edges: dict[int, set[int]] = {}
    draw: int | None = None
    for node in facts.compute:
        mine = owner[node]
        needed = {owner[p] for p in facts.parents(node)}
        if facts.kinds[node] is Kind.RANDOM:
            if draw is not None:
                needed.add(draw)
            draw = mine
        needed.discard(mine)
        if needed:
            edges.setdefault(mine, set()).update(needed)
    return edges


def _owners(facts: Facts, decomposition: Decomposition) -> dict[str, int]:
    owner: dict[str, int] = {}
    twice: list[str] = []
    for i, nodes in enumerate(decomposition.partitions):
        unknown = [n for n in nodes if n not in facts.nodes]
        if unknown:
            _refuse("known", "no such node", unknown)
        if all(facts.is_view(n) for n in nodes):
            _refuse("known", "a partition without a compute node", nodes)
        for node in nodes:
            if node in owner:
                twice.append(node)
            owner[node] = i
    if twice:
        _refuse("disjoint", "in more than one partition", twice)
    missing = [n for n in facts.compute if n not in owner]
    if missing:
        _refuse("covering", "in no partition", missing)
    return owner


def _check_nodes(facts: Facts, decomposition: Decomposition, owner: Mapping[str, int]) -> None:
    writers = [n.name for n in facts.graph.nodes if packet(n.op).endswith("_") and packet(n.op)[:2] != "__"]
    if writers:
        _refuse("functional", "writes to a tensor", writers)
    for node in facts.compute:
        members = decomposition.partitions[owner[node]]
        if facts.kinds[node] is Kind.RANDOM and any(m != node and not facts.is_view(m) for m in members):
            _refuse("random", "draws random numbers and shares a partition", [node])


def _check_formats(facts: Facts, decomposition: Decomposition) -> None:
    for value, layout in decomposition.formats:
        if facts.root.get(value) != value or value not in facts.producer:
            _refuse("formats", "not the result of a compute node", [value])
        if value in facts.returned:
            _refuse("formats", "returned by the module, with eager's strides", [value])
        if layout not in ("contiguous", "channels_last"):
            _refuse("formats", f"unknown memory format {layout!r}", [value])


def _explain(facts: Facts, decomposition: Decomposition, stuck: Iterable[int]) -> None:
    """Name one partition that is left and entered again, else the partitions of the cycle."""
    candidates = sorted(stuck)
    for i in candidates:
        way = _way_back(facts, frozenset(decomposition.partitions[i]))
        if way:
            _refuse("convex", f"the partition of {decomposition.partitions[i][0]} is entered again", way)
    heads = [decomposition.partitions[i][0] for i in candidates]
    _refuse("acyclic", "partitions wait for each other, or behind those that do", heads)


def _way_back(facts: Facts, members: frozenset[str]) -> list[str]:
    """Nodes of a path that leaves `members` and returns, or nothing."""
    came_from: dict[str, str] = {}
    for node in facts.compute:
        for parent in facts.parents(node):
            if node in members and parent in came_from:
                return _trace(came_from, parent, node)
            if node not in members and (parent in members or parent in came_from):
                came_from.setdefault(node, parent)
    return []


def _trace(came_from: Mapping[str, str], last: str, entered: str) -> list[str]:
    path = [entered, last]
    while path[-1] in came_from:
        path.append(came_from[path[-1]])
    return path[::-1]


def _refuse(rule: str, why: str, nodes: Iterable[str]) -> None:
    names = list(nodes)
    shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    raise IllegalPartition(f"{rule}: {why}: {shown}")
