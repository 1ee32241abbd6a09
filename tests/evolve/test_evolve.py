"""Choosing decompositions: fuses by what they save, splits where nothing passed, unions of what pays."""

import pytest

from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Decomposition
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import CapturedModel, Leaf, Variant
from mkevolve.evolve import best_of, children, graft
from mkevolve.partition.extract import slots_of

CHIP = Chip(
    "toy", "cuda", "90", 32, 1, 1e9, 1e12, 1e12, 1, 1e9, 1, 1, 1, 1, 1, 2.0,
    (("float32", 1e9),), (("float32", 1e9),), "made up",
)  # fmt: skip
SPEC = TensorSpec((1024, 1024), "float32", (1024, 1))


def chain(length: int) -> CapturedModel:
    """relu, relu, ... one after the other, each value read by the next alone."""
    names = [f"r{i}" for i in range(length)]
    nodes = tuple(
        Node(n, "aten.relu.default", (Ref(names[i - 1] if i else "x"),), (), (Value(n, SPEC),))
        for i, n in enumerate(names)
    )
    graph = Graph((Input(Value("x", SPEC), InputKind.ACTIVATION),), nodes, (Ref(names[-1]),))
    return CapturedModel("chain", "float32", False, (Variant("target", graph, (Leaf(SPEC),)),), "", "")


def one_each(length: int) -> Decomposition:
    return Decomposition(tuple((f"r{i}",) for i in range(length)))


def test_fuses_of_neighbours_are_hoped_to_save_their_bytes_and_a_launch() -> None:
    model = chain(3)
    parent = one_each(3)
    slots, _ = slots_of(model, parent)
    found = children(model, parent, slots, frozenset(), lambda slot: 100.0, CHIP)
    assert {c.decomposition.partitions for c in found} == {(("r0", "r1"), ("r2",)), (("r0",), ("r1", "r2"))}
    megabytes = 2 * SPEC.nbytes / 1e12 * 1e6
    assert all(c.hope == pytest.approx(megabytes + 2.0) for c in found)


def test_hope_is_never_more_than_the_time_of_the_slots() -> None:
    model = chain(2)
    slots, _ = slots_of(model, one_each(2))
    (child,) = children(model, one_each(2), slots, frozenset(), lambda slot: 0.5, CHIP)
    assert child.hope == 1.0


def test_only_slots_without_a_kernel_are_split() -> None:
    model = chain(2)
    whole = Decomposition((("r0", "r1"),))
    slots, _ = slots_of(model, whole)
    assert children(model, whole, slots, frozenset(), lambda slot: 7.0, CHIP) == ()
    (child,) = children(model, whole, slots, frozenset({slots[0].subgraph}), lambda slot: 7.0, CHIP)
    assert child.decomposition.partitions == (("r0",), ("r1",))
    assert child.decomposition.parent == whole.id
    assert child.hope == 7.0


def test_changes_that_do_not_overlap_are_joined() -> None:
    model = chain(4)
    parent = one_each(4)
    slots, _ = slots_of(model, parent)
    tried = tuple(c.decomposition for c in children(model, parent, slots, frozenset(), lambda s: 9.0, CHIP))
    best = best_of(model, parent, tried, lambda d: float(len(d.partitions)))
    assert best.partitions == (("r0", "r1"), ("r2", "r3"))
    assert ";" in str(best.mutation)


def test_a_change_that_does_not_pay_is_left_out() -> None:
    model = chain(3)
    parent = one_each(3)
    slots, _ = slots_of(model, parent)
    tried = tuple(c.decomposition for c in children(model, parent, slots, frozenset(), lambda s: 9.0, CHIP))
    assert best_of(model, parent, tried, lambda d: -float(len(d.partitions))) is parent


def test_overlapping_changes_cannot_be_grafted() -> None:
    model = chain(3)
    parent = one_each(3)
    left = Decomposition((("r0", "r1"), ("r2",)))
    right = Decomposition((("r0",), ("r1", "r2")))
    assert graft(model, left, parent, right) is None
