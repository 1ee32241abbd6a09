import pytest
import torch
from partition_graphs import Sketch, conv_bn_relu

from mkevolve.data.graph import Graph, InputKind, Symbol
from mkevolve.partition.canonical import canonical, cut_out, family_id, sharing, subgraph_id
from mkevolve.partition.facts import survey


def whole(graph: Graph, *nodes: str) -> tuple[Graph, tuple[int, ...]]:
    facts = survey([graph])
    cut = cut_out(facts, nodes or facts.compute)
    return canonical(facts, graph, cut), sharing(facts, cut)


def ids(graph: Graph, *nodes: str) -> tuple[str, str]:
    found, groups = whole(graph, *nodes)
    return subgraph_id(found, groups), family_id(found)


def two_blocks(second_channels: int = 8) -> Graph:
    s = Sketch()
    x = s.input((2, 8, 6, 6))
    first = conv_bn_relu(s, x, 8, "one")
    return s.graph(conv_bn_relu(s, first, second_channels, "two"))


def test_equal_blocks_have_equal_ids_whatever_their_names():
    graph = two_blocks()
    first = ids(graph, "conv2d", "batch_norm", "relu")
    assert first == ids(graph, "conv2d_1", "batch_norm_1", "relu_1")
    assert first[0].startswith("sg_")
    assert first[1].startswith("fam_")


def test_the_id_is_stable_between_releases_of_python_and_torch():
    assert ids(two_blocks(), "conv2d", "batch_norm", "relu") == STABLE


STABLE = ("sg_646ad7242d17", "fam_5f027d2467ce")


def test_other_sizes_are_the_same_family():
    graph = two_blocks(second_channels=16)
    first, second = (
        ids(graph, "conv2d", "batch_norm", "relu"),
        ids(graph, "conv2d_1", "batch_norm_1", "relu_1"),
    )
    assert first[0] != second[0]
    assert first[1] == second[1]


def one(op: str, *args: object, shape=(4, 6), dtype=torch.float32, **kwargs) -> Graph:
    s = Sketch()
    return s.graph(s.op(op, s.input(shape, dtype=dtype), *args, **kwargs))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (one("gelu"), one("gelu", approximate="none")),
        (one("softmax.int", -1), one("softmax.int", -1, None)),
        (one("leaky_relu"), one("leaky_relu", 0.01)),
        (one("sum.dim_IntList", (-1,)), one("sum.dim_IntList", (-1,), keepdim=False)),
    ],
)
def test_default_arguments_do_not_count(left, right):
    assert ids(left) == ids(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (one("gelu"), one("gelu", approximate="tanh")),
        (one("leaky_relu", 0.1), one("leaky_relu", 0.2)),
        (one("softmax.int", -1), one("softmax.int", 0)),
        (one("relu"), one("relu", dtype=torch.bfloat16)),
        (one("relu"), one("tanh")),
    ],
)
def test_what_changes_the_result_changes_both_ids(left, right):
    assert ids(left)[0] != ids(right)[0]
    assert ids(left)[1] != ids(right)[1]


def test_interleaving_of_independent_nodes_does_not_count():
    def build(swapped: bool) -> Graph:
        s = Sketch()
        x = s.input((4, 6))
        names = ["relu", "tanh"][:: -1 if swapped else 1]
        made = {n: s.op(n, x) for n in names}
        return s.graph(s.op("add.Tensor", made["relu"], made["tanh"]))

    assert ids(build(False)) == ids(build(True))


def test_strides_count_at_the_boundary_only():
    s = Sketch()
    x = s.input((2, 8, 6, 6))
    y = s.input((2, 8, 6, 6), memory_format=torch.channels_last)
    graph = s.graph(s.op("relu", x), s.op("relu", y))
    assert ids(graph, "relu")[0] != ids(graph, "relu_1")[0]


def test_inputs_that_share_memory_count():
    s = Sketch()
    x, y = s.input((4, 6)), s.input((4, 6))
    left, right = s.ops("split.Tensor", x, 3, -1)
    other, _ = s.ops("split.Tensor", y, 3, -1)
    graph = s.graph(s.op("add.Tensor", left, right), s.op("add.Tensor", left, other))
    assert ids(graph, "add")[0] != ids(graph, "add_1")[0]
    assert ids(graph, "add")[1] == ids(graph, "add_1")[1]


def test_spellings_of_one_reshape():
    def build(op: str, *args: object) -> Graph:
        s = Sketch()
        x = s.op("relu", s.input((2, 3, 4)))
        return s.graph(s.op("tanh", s.op(op, x, *args)))

    expected = ids(build("view", (2, 12)))
    for spelled in (
        build("reshape", (2, -1)),
        build("_unsafe_view", (2, 12)),
        build("flatten.using_ints", 1, 2),
    ):
        assert ids(spelled) == expected


def test_a_reshape_that_copies_is_a_clone_and_a_view():
    s = Sketch()
    x = s.op("relu", s.input((2, 3, 4)))
    graph = s.graph(s.op("reshape", s.op("transpose.int", x, 1, 2), (2, 12)))
    found, _ = whole(graph)
    assert [n.op.split(".")[1] for n in found.nodes] == ["relu", "transpose", "clone", "view"]
    assert found.nodes[2].kwargs == (("memory_format", Symbol("memory_format", "contiguous_format")),)
    assert found.nodes[2].outputs[0].spec.stride == (12, 3, 1)


def test_copies_without_effect_go_and_readers_are_rewired():
    s = Sketch()
    x = s.op("relu", s.input((4, 6)))
    y = s.op("detach", s.op("dropout", s.op("clone", x), 0.5, False))
    found, _ = whole(s.graph(s.op("tanh", y)))
    assert [n.op for n in found.nodes] == ["aten.relu.default", "aten.tanh.default"]


def test_a_copy_stays_where_an_output_would_alias():
    s = Sketch()
    x = s.input((4, 6))
    copy = s.op("clone", x)
    y = s.op("relu", x)
    again = s.op("clone", y)
    found, _ = whole(s.graph(copy, y, again))
    assert [n.op.split(".")[1] for n in found.nodes] == ["clone", "relu", "clone"]
    assert len(set(found.outputs)) == 3


def test_a_copy_that_does_something_at_one_variant_stays_in_all():
    def build(length: int) -> Graph:
        s = Sketch()
        x = s.op("transpose.int", s.input((4, length)), 0, 1)
        return s.graph(s.op("tanh", s.op("contiguous", s.op("relu", x))))

    graphs = [build(1), build(3)]
    facts = survey(graphs)
    cut = cut_out(facts, facts.compute)
    structures = [[n.op for n in canonical(facts, g, cut).nodes] for g in graphs]
    assert structures[0] == structures[1]
    assert "aten.clone.default" in structures[0]


def test_inputs_come_as_activations_parameters_buffers():
    found, _ = whole(two_blocks(), "conv2d", "batch_norm", "relu")
    assert [i.name for i in found.inputs] == ["x0", "p0", "p1", "p2", "p3", "p4"]
    assert [i.kind for i in found.inputs][1:] == [InputKind.PARAMETER] * 3 + [InputKind.BUFFER] * 2


def test_a_view_of_a_parameter_is_a_parameter_and_a_tied_one_comes_once():
    s = Sketch()
    x, w = s.input((4, 6)), s.param((6, 6))
    y = s.op("mm", s.op("mm", x, s.op("t", w)), w)
    graph = s.graph(s.op("mm", y, w))
    found, groups = whole(graph)
    assert [(i.name, i.spec.stride) for i in found.inputs[1:]] == [("p0", (6, 1)), ("p1", (1, 6))]
    assert groups == (0, 1, 1)
