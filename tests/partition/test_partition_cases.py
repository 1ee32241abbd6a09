import random
import sys
import time
from pathlib import Path

import pytest
from partition_graphs import Sketch, conv_bn_relu, model, random_graph

from mkevolve.data.decomposition import Decomposition
from mkevolve.data.graph import Graph
from mkevolve.errors import IllegalPartition
from mkevolve.models.config import read_model_config
from mkevolve.models.source import build_model
from mkevolve.partition.execution import verify_references
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.legality import check
from mkevolve.partition.mutations import apply, moves
from mkevolve.partition.realize import facts_of

CASES = Path(__file__).parents[1] / "cases" / "models"


def captured_case(name: str):
    from mkevolve.capture import bind, constants_of
    from mkevolve.capture.calls import leaves_of
    from mkevolve.compose.recapture import recapture
    from mkevolve.data.composition import Signature

    config = read_model_config({"name": name, "path": str(CASES / f"{name}.py")})
    made = build_model(config, 0)
    call = made.example("target", 0)
    leaves, tree = leaves_of(call)
    captured, _ = recapture(name, Signature("float32", False, tree, (("target", leaves),)), made.module)
    inputs = {**constants_of(made.module, captured), **bind(captured.target, *call)}
    return captured, inputs


def test_two_branches_that_exchange_features_are_cut_convexly():
    captured, inputs = captured_case("cross_branch_exchange")
    decomposition = first_cut(captured)
    check(captured.target.graph, decomposition)
    assert verify_references(captured, decomposition, "target", inputs) is None
    high = [p for p in decomposition.partitions if p in (("conv2d_4", "relu"), ("conv2d_8", "relu_2"))]
    rest = [p for p in decomposition.partitions if p not in high]
    with pytest.raises(IllegalPartition, match=r"^convex"):
        check(captured.target.graph, Decomposition((high[0] + high[1], *rest)))
    children = [apply(captured, decomposition, move) for move in moves(captured, decomposition)]
    legal = [child for child in children if child is not None]
    for child in legal[:6]:
        check(captured.target.graph, child)
        assert verify_references(captured, child, "target", inputs) is None


def test_a_repeated_cell_is_one_subgraph():
    start = time.perf_counter()
    captured, inputs = captured_case("gru_cell_loop")
    decomposition = first_cut(captured)
    slots, subgraphs = slots_of(captured, decomposition)
    assert time.perf_counter() - start < 10
    heaviest = max(subgraphs, key=lambda s: s.weight)
    assert heaviest.weight >= 47  # the first step starts from a parameter
    assert len(subgraphs) <= 4
    cells = [s for s in slots if s.subgraph == heaviest.id]
    assert {s.inputs[2:] for s in cells} == {cells[0].inputs[2:]}  # parameters are not copied
    assert verify_references(captured, decomposition, "target", inputs) is None


def blocks(count: int) -> Graph:
    s = Sketch()
    x = s.input((2, 8, 6, 6))
    for i in range(count):
        y = conv_bn_relu(s, x, 8, f"blocks.{i}.one")
        x = s.op("relu", s.op("add.Tensor", conv_bn_relu(s, y, 8, f"blocks.{i}.two"), x))
    return s.graph(x)


def counted(run) -> int:
    """Python function calls: a measure of work that a busy machine does not change."""
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def partition(captured) -> None:
    decomposition = first_cut(captured)
    slots_of(captured, decomposition)


def test_the_work_is_linear_in_the_nodes():
    made = [model(blocks(n)) for n in (16, 64)]  # 128 and 512 nodes
    for captured in made:
        facts_of(captured)
    small, large = (counted(lambda c=c: partition(c)) for c in made)
    assert large < 4.6 * small


def test_a_long_random_graph_is_cut_in_linear_work():
    made = [model(random_graph(random.Random(2), n)) for n in (150, 600)]
    small, large = (counted(lambda c=c: partition(c)) for c in made)
    assert large < 5.5 * small


def test_a_thousand_nodes_take_seconds_at_most():
    captured = model(blocks(125))
    start = time.process_time()
    partition(captured)
    assert time.process_time() - start < 10  # 0.3 s on an idle machine
