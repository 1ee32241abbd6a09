import os
import random
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_graphs import Sketch, conv_bn_relu, model, random_graph

from mkevolve.data.graph import Symbol
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut


def torch_dtype(name: str) -> Symbol:
    return Symbol("dtype", name)


def ops(graph) -> list[str]:
    return [s.ops for s in slots_of(model(graph), first_cut(model(graph)))[0]]


def test_a_residual_block_is_one_partition_a_convolution():
    s = Sketch()
    x = s.input((2, 8, 6, 6))
    y = conv_bn_relu(s, x, 8, "one")
    y = s.op("conv2d", y, s.param((8, 8, 3, 3), "two.weight"), None, (1, 1), (1, 1))
    graph = s.graph(s.op("relu", s.op("add.Tensor", y, x)))
    assert ops(graph) == ["conv2d+batch_norm+relu", "conv2d+add+relu"]
    names = [slot.name for slot in slots_of(model(graph), first_cut(model(graph)))[0]]
    assert names == ["one_conv_bn_relu", "two_add_relu"]


def test_linear_takes_its_activation_and_residual():
    s = Sketch()
    x = s.input((4, 6))
    y = s.op("gelu", s.op("linear", x, s.param((12, 6)), s.param((12,), "layer.bias")))
    graph = s.graph(s.op("add.Tensor", x, s.op("linear", y, s.param((6, 12), "out.weight"))))
    assert ops(graph) == ["linear+gelu", "linear+add"]


def test_gated_mlp_is_two_linears_and_the_product_joins_one():
    s = Sketch()
    x = s.input((4, 6))
    gate = s.op("silu", s.op("linear", x, s.param((12, 6), "gate.weight")))
    up = s.op("linear", x, s.param((12, 6), "up.weight"))
    graph = s.graph(s.op("mul.Tensor", gate, up))
    assert ops(graph) == ["linear+silu", "linear+mul"]


def test_attention_takes_the_copy_that_merges_the_heads_and_nothing_else():
    s = Sketch()
    q, k, v = (s.input((2, 3, 5, 4)) for _ in range(3))
    y = s.op("scaled_dot_product_attention", q, k, v)
    y = s.op("clone", s.op("transpose.int", y, 1, 2), memory_format=None)
    y = s.op("reshape", s.op("permute", y, (0, 2, 1, 3)), (2, 3, 20))
    graph = s.graph(s.op("tanh", y))
    assert ops(graph)[0].startswith("sdpa")
    assert len(ops(graph)) == 2


def test_squeeze_and_excite():
    s = Sketch()
    x = conv_bn_relu(s, s.input((2, 8, 6, 6)), 8, "depthwise")
    y = s.op("mean.dim", x, (2, 3), True)
    y = s.op("silu", s.op("conv2d", y, s.param((2, 8, 1, 1), "reduce.weight")))
    y = s.op("sigmoid", s.op("conv2d", y, s.param((8, 2, 1, 1), "expand.weight")))
    graph = s.graph(s.op("conv2d", s.op("mul.Tensor", x, y), s.param((4, 8, 1, 1), "project.weight")))
    assert ops(graph) == [
        "conv2d+batch_norm+relu",
        "mean",
        "conv2d+silu",
        "conv2d+sigmoid",
        "mul",
        "conv2d",
    ]


def test_a_norm_takes_what_feeds_it_alone_and_what_follows():
    s = Sketch()
    x, y = s.input((4, 6)), s.input((4, 6))
    z = s.op("layer_norm", s.op("add.Tensor", x, y), (6,), s.param((6,)), s.param((6,), "layer.bias"))
    assert ops(s.graph(s.op("tanh", z))) == ["add+layer_norm+tanh"]


def test_a_sum_that_is_read_again_stays_outside_the_norm():
    s = Sketch()
    x, y = s.input((4, 6)), s.input((4, 6))
    total = s.op("add.Tensor", x, y)
    z = s.op("layer_norm", total, (6,))
    assert ops(s.graph(s.op("mul.Tensor", z, total))) == ["add", "layer_norm+mul"]


def test_an_anchor_hands_out_one_result():
    s = Sketch()
    y = s.op("linear", s.input((4, 6)), s.param((6, 6)))
    z = s.op("relu", y)
    assert ops(s.graph(y, z)) == ["linear", "relu"]


def test_pointwise_chains_from_slices_come_together():
    s = Sketch()
    left, right = s.ops("split.Tensor", s.op("linear", s.input((4, 6)), s.param((6, 6))), 3, -1)
    c = s.input((4, 3))
    graph = s.graph(s.op("sub.Tensor", s.op("mul.Tensor", left, c), s.op("mul.Tensor", right, c)))
    assert ops(graph) == ["linear", "mul+mul+sub"]


def test_statistics_of_the_batch_and_random_numbers_stand_alone():
    s = Sketch()
    x = s.op("relu", s.input((2, 8, 6, 6)))
    gamma, beta = s.param((8,), "bn.weight"), s.param((8,), "bn.bias")
    mean, var = s.input((8,), "buffer", "bn.running_mean"), s.input((8,), "buffer", "bn.running_var")
    y = s.ops("_native_batch_norm_legit_functional", x, gamma, beta, mean, var, True, 0.1, 1e-5)[0]
    graph = s.graph(s.op("relu", s.ops("native_dropout", s.op("relu", y), 0.5, True)[0]))
    kinds = ops(graph)
    assert kinds == ["relu", "native_batch_norm_legit_functional", "relu", "native_dropout", "relu"]


def test_constants_go_where_they_are_read():
    s = Sketch()
    x = s.input((4, 6))
    floor = s.op("scalar_tensor", 0.0, device=Symbol("device", "default"))
    graph = s.graph(s.op("where.self", s.op("gt.Scalar", x, 1.0), s.op("tanh", x), floor))
    assert ops(graph) == ["scalar_tensor+gt+tanh+where"] or ops(graph) == ["gt+tanh+scalar_tensor+where"]


def test_a_gather_and_positions_stand_alone():
    s = Sketch()
    ids = s.input((2, 5), dtype=torch.int64)
    vectors = s.op("embedding", s.param((30, 8)), ids)
    positions = s.op(
        "sin", s.op("to.dtype", s.op("arange", 8, device=Symbol("device", "default")), torch_dtype("float32"))
    )
    graph = s.graph(s.op("add.Tensor", vectors, positions))
    assert ops(graph) == ["embedding", "arange", "to_copy+sin", "add"]


def test_equal_blocks_are_searched_once():
    s = Sketch()
    x = s.input((2, 8, 6, 6))
    for i in range(16):
        x = conv_bn_relu(s, x, 8, f"blocks.{i}")
    captured = model(s.graph(x))
    slots, subgraphs = slots_of(captured, first_cut(captured))
    assert len(slots) == 16
    assert [g.weight for g in subgraphs] == [16]
    assert slots[3].name == "blocks_3_conv_bn_relu"
    assert len({slot.name for slot in slots}) == 16


def test_ids_are_the_same_in_another_process():
    program = (
        "import sys, random; sys.path.insert(0, sys.argv[1])\n"
        "from partition_graphs import model, random_graph\n"
        "from mkevolve.partition.first_cut import first_cut\n"
        "from mkevolve.partition.extract import slots_of\n"
        "m = model(random_graph(random.Random(3), 25)); d = first_cut(m)\n"
        "print(d.id, *(s.subgraph for s in slots_of(m, d)[0]))"
    )
    captured = model(random_graph(random.Random(3), 25))
    decomposition = first_cut(captured)
    mine = [decomposition.id, *(s.subgraph for s in slots_of(captured, decomposition)[0])]
    here = __file__.rpartition("/")[0]
    run = subprocess.run(
        [sys.executable, "-c", program, here],
        env={**os.environ, "PYTHONPATH": here.rpartition("/tests/")[0]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == mine


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 30))
def test_any_graph_gets_a_legal_first_cut(seed, size):
    captured = model(random_graph(random.Random(seed), size))
    decomposition = first_cut(captured)  # checks itself
    slots, subgraphs = slots_of(captured, decomposition)
    assert sum(g.weight for g in subgraphs) == len(slots) == len(decomposition.partitions)


@pytest.mark.parametrize("size", [1])
def test_one_node(size):
    s = Sketch()
    assert ops(s.graph(s.op("relu", s.input((3,))))) == ["relu"]
