import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from partition_graphs import Sketch, model, random_graph, tensors

from mkevolve.data.decomposition import Copy, Decomposition
from mkevolve.partition.execution import verify_references
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.legality import check
from mkevolve.partition.mutations import MUTATIONS, Move, apply, moves
from mkevolve.partition.realize import facts_of


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 16))
def test_every_mutation_leaves_its_parent_and_gives_a_legal_child_that_computes_the_same(seed, size):
    rng = random.Random(seed)
    captured = model(random_graph(rng, size))
    inputs = tensors(captured.target.graph, seed)
    parent = first_cut(captured)
    before = replace(parent)
    offered = list(moves(captured, parent))
    assert {m.mutation for m in offered} <= set(MUTATIONS)
    nodes = [n for p in parent.partitions for n in p]
    if not nodes:  # nothing but views
        return
    odd = [Move(name, (rng.randrange(9), rng.randrange(9)), rng.choice(nodes)) for name in MUTATIONS]
    odd += [Move(name, (rng.randrange(9),), rng.choice(nodes)) for name in MUTATIONS]
    for move in rng.sample(offered, min(4, len(offered))) + odd:
        child = apply(captured, parent, move)
        assert parent == before
        if child is None:
            continue
        check(facts_of(captured), child)
        assert (child.parent, bool(child.mutation)) == (parent.id, True)
        assert child.id != parent.id
        assert verify_references(captured, child, "target", inputs) is None


def diamond():
    s = Sketch()
    x = s.input((64, 64))
    y = s.op("linear", x, s.param((64, 64)))
    small = s.op("mean.dim", y, (-1,), True)
    s.op("linear", s.op("mul.Tensor", y, small), s.param((64, 64), "out.weight"))
    return model(s.graph("linear_1"))


def cut(*partitions: str) -> Decomposition:
    return Decomposition(tuple(tuple(p.split()) for p in partitions))


def test_fuse_joins_neighbours_and_says_so():
    child = apply(diamond(), cut("linear", "mean", "mul", "linear_1"), Move("fuse", (0, 1)))
    assert child is not None
    assert child.partitions == (("linear", "mean"), ("mul",), ("linear_1",))
    assert child.mutation == "fuse linear with mean"


def test_fuse_refuses_strangers_and_cycles():
    parent = cut("linear", "mean", "mul", "linear_1")
    assert apply(diamond(), parent, Move("fuse", (0, 3))) is None
    assert apply(diamond(), parent, Move("fuse", (0, 2))) is None
    assert apply(diamond(), parent, Move("fuse", (1, 1))) is None
    assert apply(diamond(), parent, Move("fuse", (1, 7))) is None


def test_split_finds_the_cheapest_place():
    s = Sketch()
    x = s.input((64, 64))
    y = s.op("mean.dim", s.op("relu", x), (-1,), True)
    s.op("exp", s.op("expand", s.op("tanh", y), (64, 64)))
    captured = model(s.graph("exp"))
    child = apply(captured, cut("relu mean tanh exp"), Move("split", (0,)))
    assert child is not None
    assert child.partitions == (("relu", "mean"), ("tanh", "exp"))


def test_split_at_a_node_and_undone_by_fuse():
    captured = diamond()
    whole = cut("linear mean mul linear_1")
    halves = apply(captured, whole, Move("split", (0,), "mul"))
    assert halves is not None
    assert halves.partitions == (("linear", "mean"), ("mul", "linear_1"))
    again = apply(captured, halves, Move("fuse", (0, 1)))
    assert again is not None
    assert again.id == whole.id
    assert apply(captured, whole, Move("split", (0,), "linear")) is None


def test_a_format_goes_when_its_boundary_goes():
    s = Sketch()
    x = s.op("relu", s.input((2, 3, 4, 5)))
    captured = model(s.graph(s.op("tanh", x)))
    parent = replace(cut("relu", "tanh"), formats=(("relu", "channels_last"),))
    child = apply(captured, parent, Move("fuse", (0, 1)))
    assert child is not None
    assert child.formats == ()


def test_recomputation_repeats_a_node_for_its_consumers():
    captured = diamond()
    parent = replace(cut("linear mul linear_1", "again mean"), copies=(Copy("linear", "again", ("mean",)),))
    inputs = tensors(captured.target.graph)
    assert verify_references(captured, parent, "target", inputs) is None
    child = apply(captured, parent, Move("split", (0,), "mul"))
    assert child is not None
    assert child.copies == parent.copies
