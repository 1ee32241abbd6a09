"""The printed skeleton parses and keeps the rules of the source, whatever the shapes are."""

import ast

import pytest

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.report.skeleton import TODO, skeleton
from mkevolve.verify.static import check

Shape = tuple[int, ...]


def laid(shape: Shape, order: tuple[int, ...] | None = None, dtype: str = "float32") -> TensorSpec:
    """A dense tensor whose dimensions lie in memory in this order, outermost first."""
    stride, step = [0] * len(shape), 1
    for d in reversed(order or range(len(shape))):
        stride[d], step = step, step * shape[d]
    return TensorSpec(shape, dtype, tuple(stride))


def subgraph(*variants: tuple[list[TensorSpec], list[TensorSpec]], params: int = 0) -> Subgraph:
    """Inputs and results at each variant; the last `params` inputs are parameters."""
    graphs = []
    for given, made in variants:
        kinds = [InputKind.ACTIVATION] * (len(given) - params) + [InputKind.PARAMETER] * params
        letters = [f"x{i}" for i in range(len(given) - params)] + [f"p{i}" for i in range(params)]
        inputs = tuple(Input(Value(n, s), k) for n, s, k in zip(letters, given, kinds, strict=True))
        results = tuple(Value(f"n0.{i}", s) for i, s in enumerate(made))
        node = Node("n0", "aten.any.default", tuple(Ref(n) for n in letters), (), results)
        graphs.append(Graph(inputs, (node,), tuple(Ref(r.name) for r in results)))
    names = ["target", *(f"check_{i}" for i in range(1, len(graphs)))]
    return Subgraph("sg_x", "fam_x", tuple(zip(names, graphs, strict=True)), "any")


NHWC = (0, 2, 3, 1)
CASES = {
    "pointwise": subgraph(([laid((64, 32))] * 2, [laid((64, 32))]), ([laid((2, 5))] * 2, [laid((2, 5))])),
    "channels last": subgraph(
        ([laid((4, 3, 8, 8)), laid((16, 3, 1, 1))], [laid((4, 16, 8, 8), NHWC)]),
        ([laid((2, 3, 5, 7)), laid((16, 3, 1, 1))], [laid((2, 16, 5, 7), NHWC)]),
        params=1,
    ),
    "flattened": subgraph(
        ([laid((4, 6, 8))], [laid((24, 8)), laid((24,), dtype="int64")]),
        ([laid((3, 5, 8))], [laid((15, 8)), laid((15,), dtype="int64")]),
    ),
    "doubled": subgraph(([laid((4, 6))], [laid((8, 6))]), ([laid((3, 5))], [laid((6, 5))])),
    "no axes": subgraph(([laid((4, 6))], [laid(())]), ([laid((3, 5))], [laid(())])),
    "no inputs": subgraph(([], [laid((4, 6))])),
    "expanded": subgraph(([laid((4, 1))], [TensorSpec((4, 6), "float32", (1, 0))])),
    "unexplained": subgraph(([laid((10,))], [laid((7,))]), ([laid((20,))], [laid((13,))])),
}


@pytest.mark.parametrize("name", CASES)
def test_it_keeps_the_rules(name: str) -> None:
    text = skeleton(CASES[name])
    ast.parse(text)
    assert check(text, CASES[name]) is None
    assert TODO in text


def test_sizes_that_vary_are_those_of_the_inputs() -> None:
    assert "torch.empty((x0.shape[0], x0.shape[1]), dtype=torch.float32" in skeleton(CASES["pointwise"])
    assert "(x0.shape[0] * x0.shape[1], 8)" in skeleton(CASES["flattened"])
    assert "(x0.shape[0] * 2, x0.shape[1])" in skeleton(CASES["doubled"])


def test_a_size_that_no_input_explains_is_marked() -> None:
    assert f"# {TODO}: size 0 of out0 is 7 at target, 13 at check_1" in skeleton(CASES["unexplained"])


def test_memory_order_of_the_boundary_is_kept() -> None:
    text = skeleton(CASES["channels last"])
    assert "torch.empty((x0.shape[0], x0.shape[2], x0.shape[3], 16), " in text
    assert ").permute(0, 3, 1, 2)" in text


def test_only_inputs_that_lie_like_the_result_are_loaded() -> None:
    assert "x1 = tl.load(x1_ptr + offsets" in skeleton(CASES["pointwise"])
    assert "tl.load(" not in skeleton(CASES["channels last"])
