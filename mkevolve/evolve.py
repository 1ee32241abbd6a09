"""Which decomposition is tried next: moves ranked by what they may save, and the union of those that did.

A fuse saves the bytes that no longer cross the boundary, and one launch; a split is worth trying where no
candidate of the whole passed, and may win at most the slot's time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Decomposition, Slot
from mkevolve.data.graph import TensorSpec
from mkevolve.data.model import CapturedModel
from mkevolve.errors import IllegalPartition
from mkevolve.partition.legality import check
from mkevolve.partition.mutations import Move, apply, moves
from mkevolve.partition.realize import facts_of, realize

Price = Callable[[Slot], float]


@dataclass(frozen=True, slots=True)
class Child:
    """A legal decomposition with the microseconds that its move is hoped to save."""

    decomposition: Decomposition
    hope: float


def children(
    captured: CapturedModel,
    decomposition: Decomposition,
    slots: tuple[Slot, ...],
    failed: frozenset[str],
    price: Price,
    chip: Chip,
) -> tuple[Child, ...]:
    """Every legal child that may save time, most hopeful first.

    `failed` holds the subgraph ids for which no candidate passed, `price` the time of a slot in microseconds.
    """
    index = {nodes: number for number, nodes in enumerate(decomposition.partitions)}
    by_number = {index[slot.nodes]: slot for slot in slots if slot.nodes in index}
    specs = {name: value.spec for name, value in captured.target.graph.values().items()}
    found: list[Child] = []
    for move in moves(captured, decomposition):
        parts = [by_number[n] for n in move.partitions if n in by_number]
        if len(parts) != len(move.partitions):
            continue
        hope = _hope(move, parts, failed, price, specs, chip)
        if hope <= 0.0:
            continue
        child = apply(captured, decomposition, move)
        if child is not None:
            found.append(Child(child, hope))
    return tuple(sorted(found, key=lambda c: -c.hope))


def _hope(
    move: Move,
    parts: list[Slot],
    failed: frozenset[str],
    price: Price,
    specs: Mapping[str, TensorSpec],
    chip: Chip,
) -> float:
    if move.mutation == "split":
        return price(parts[0]) if parts[0].subgraph in failed else 0.0
    first, second = parts
    crossing = [v for v in first.outputs if v in second.inputs] + [
        v for v in second.outputs if v in first.inputs
    ]
    # written once and read once less; a value that others read too is still written
    saved = sum(2 * specs[v].nbytes for v in crossing if v in specs) / chip.dram_measured * 1e6
    return min(saved + chip.launch_us, price(first) + price(second))


def graft(
    captured: CapturedModel, base: Decomposition, parent: Decomposition, child: Decomposition
) -> Decomposition | None:
    """Make the change from `parent` to `child` on `base` too; None where they overlap or it is illegal."""
    removed = set(parent.partitions) - set(child.partitions)
    added = set(child.partitions) - set(parent.partitions)
    if not removed <= set(base.partitions) or (child.copies, child.formats) != (base.copies, base.formats):
        return None
    facts = facts_of(realize(captured, base))
    partitions = sorted((set(base.partitions) - removed) | added, key=lambda nodes: facts.index[nodes[0]])
    made = replace(
        base,
        partitions=tuple(partitions),
        parent=base.id,
        mutation=f"{base.mutation}; {child.mutation}" if base.mutation else child.mutation,
    )
    try:
        check(facts, made)
    except IllegalPartition:
        return None
    return made


def best_of(
    captured: CapturedModel,
    parent: Decomposition,
    tried: tuple[Decomposition, ...],
    predict: Callable[[Decomposition], float],
) -> Decomposition:
    """Return the parent with every change that pays, best first; `predict` gives the composed time.

    Changes that do not overlap are joined, each kept only if the whole gets faster by it.
    """
    best, least = parent, predict(parent)
    gains = sorted(tried, key=predict)
    for child in gains:
        joined = child if best is parent else graft(captured, best, parent, child)
        if joined is not None and (time := predict(joined)) < least:
            best, least = joined, time
    return best
