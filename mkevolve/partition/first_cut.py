"""The first decomposition: one anchor op and the pointwise nodes around it.

Groups are numbered as they are made, in graph order, and a node joins only the latest group that it reads
from. So every edge runs from a lower number to a higher one, and the cut is legal by construction.
"""

from dataclasses import dataclass, field

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.model import CapturedModel
from mkevolve.partition.facts import Facts
from mkevolve.partition.legality import check
from mkevolve.partition.ops import ANCHORS, Kind, packet
from mkevolve.partition.realize import facts_of

# Followers of these are computed where the result is still in registers. Attention has none to spare, and a
# gather leaves its follower as cheap on its own.
_HOSTS = frozenset(ANCHORS | {Kind.POINTWISE, Kind.CREATION, Kind.COPY}) - {Kind.ATTENTION, Kind.EMBEDDING}
_COPY_HOSTS = frozenset({Kind.ATTENTION, Kind.POINTWISE, Kind.CREATION})
# These read each element a few times at most, so what makes an element may run inside them.
_ABSORBERS = frozenset({Kind.NORM, Kind.SOFTMAX, Kind.REDUCTION, Kind.COPY})
_LIGHT = frozenset({Kind.POINTWISE, Kind.CREATION})
_LARGEST = 64  # nodes in one partition: beyond it a kernel compiles slowly and keeps too much in registers


@dataclass(slots=True)
class _Group:
    kind: Kind
    nodes: list[str] = field(default_factory=list)


def first_cut(captured: CapturedModel) -> Decomposition:
    """Cut a model for the first time; always legal."""
    facts = facts_of(captured)
    grower = _Grower(facts)
    for node in facts.compute:
        grower.place(node)
    groups = [group for group in grower.groups if group.nodes]
    ordered = sorted(_split_outputs(facts, groups), key=lambda nodes: facts.index[nodes[0]])
    decomposition = Decomposition(tuple(tuple(nodes) for nodes in ordered))
    check(facts, decomposition)
    return decomposition


class _Grower:
    """Places nodes one after the other; `owner` is the group number by node."""

    def __init__(self, facts: Facts) -> None:
        self.groups: list[_Group] = []
        self._facts = facts
        self._owner: dict[str, int] = {}

    def place(self, node: str) -> None:
        kind = self._facts.kinds[node]
        host = self._host(node, kind)
        if host is None:
            host = len(self.groups)
            self.groups.append(_Group(kind))
        group = self.groups[host]
        group.nodes.append(node)
        self._owner[node] = host
        if group.kind in _LIGHT and (kind in _ABSORBERS or group.kind is Kind.CREATION):
            group.kind = kind
        if group.kind is Kind.POINTWISE:
            self._absorb(node, host)

    def _host(self, node: str, kind: Kind) -> int | None:
        """The latest group that the node reads from, if the node fits into it."""
        parents = self._facts.parents(node)
        if not parents:
            return None
        latest = max(self._owner[p] for p in parents)
        group = self.groups[latest]
        fits = False
        if len(group.nodes) >= _LARGEST:
            fits = False
        elif kind is Kind.POINTWISE and group.kind is Kind.CREATION:
            fits = self._only_reader(node, latest)
        elif kind is Kind.POINTWISE and group.kind in _HOSTS:
            fits = self._same_elements(node, latest)
        elif kind is Kind.COPY:
            fits = group.kind in _COPY_HOSTS and self._only_reader(node, latest)
        elif kind in _ABSORBERS and group.kind in _LIGHT:
            fits = self._only_reader(node, latest) and self._feeds_first(node, latest)
        return latest if fits else None

    def _absorb(self, node: str, host: int) -> None:
        """Take in the pointwise groups that nothing but this node's group reads."""
        for other in {self._owner[p] for p in self._facts.parents(node)} - {host}:
            group, mine = self.groups[other], self.groups[host]
            fits = (
                group.kind in _LIGHT
                and len(group.nodes) + len(mine.nodes) <= _LARGEST
                and self._only_reader(node, other)
                and (group.kind is Kind.CREATION or self._same_elements(node, other))
            )
            if fits:
                mine.nodes = sorted(group.nodes + mine.nodes, key=lambda n: self._facts.index[n])
                self._owner.update(dict.fromkeys(group.nodes, host))
                group.nodes = []

    def _made_by(self, value: str, number: int) -> bool:
        producer = self._facts.producer.get(self._facts.root[value])
        return producer is not None and self._owner.get(producer) == number

    def _same_elements(self, node: str, number: int) -> bool:
        """Does the node work on the elements that the group makes, one for one and in the same order?"""
        facts = self._facts
        shape = facts.specs[facts.results(node)[0]].shape
        own = [r for r in facts.nodes[node].reads if self._made_by(r, number)]
        ordered = all(_keeps_order(facts, r) for r in own)
        return ordered and any(facts.specs[r].shape == shape for r in own)

    def _only_reader(self, node: str, number: int) -> bool:
        """Is the node the one reader of all that the group hands out?"""
        facts = self._facts
        return all(
            value not in facts.returned
            and all(r == node or self._owner.get(r) == number for r in facts.readers.get(value, ()))
            for member in self.groups[number].nodes
            for value in facts.results(member)
        )

    def _feeds_first(self, node: str, number: int) -> bool:
        """Is the group's result what the node reduces, unchanged in shape, and not its weight or mask?"""
        first = self._facts.nodes[node].reads[0]
        last = self._facts.results(self.groups[number].nodes[-1])[0]
        return self._facts.root[first] == last == first


def _keeps_order(facts: Facts, value: str) -> bool:
    """Is this value its root, or a view of it in another shape, element after element?"""
    plain = {"view", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"}
    while facts.root[value] != value:
        node = facts.nodes[facts.producer[value]]
        if node.name not in facts.identities and packet(node.op) not in plain:
            return False
        value = node.reads[0]
    return True


def _split_outputs(facts: Facts, groups: list[_Group]) -> list[list[str]]:
    """Leave every anchor with one result: what it hands out first ends it, the rest follows on its own."""
    found: list[list[str]] = []
    for group in groups:
        nodes = group.nodes
        if group.kind in ANCHORS:
            head = _first_output(facts, nodes)
            rest = [n for n in nodes if n not in head]
            if rest and len(head) < len(nodes):
                found += [[n for n in nodes if n in head], rest]
                continue
        found.append(nodes)
    return found


def _first_output(facts: Facts, nodes: list[str]) -> set[str]:
    """The nodes behind the first value that others read."""
    members = set(nodes)
    for node in nodes:
        leaving = any(
            v in facts.returned or any(r not in members for r in facts.readers.get(v, ()))
            for v in facts.results(node)
        )
        if leaving:
            return _ancestors(facts, node, members)
    return members


def _ancestors(facts: Facts, node: str, members: set[str]) -> set[str]:
    found = {node}
    stack = [node]
    while stack:
        for parent in facts.parents(stack.pop()):
            if parent in members and parent not in found:
                found.add(parent)
                stack.append(parent)
    return found
