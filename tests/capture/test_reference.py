import math

import pytest
import torch

from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, Symbol, TensorSpec, Value
from mkevolve.errors import CaptureError
from mkevolve.reference import evaluate, resolve_op, run_graph, run_graph_fp64, run_node


def spec(*shape, dtype="float32"):
    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorSpec(shape, dtype, stride)


def value(name, *shape, dtype="float32"):
    return Value(name, spec(*shape, dtype=dtype))


def node(name, op, *args, outputs=None, **kwargs):
    return Node(name, op, args, tuple(kwargs.items()), outputs or (value(name, 4, 6),))


X = Input(value("x0", 4, 6), InputKind.ACTIVATION)
W = Input(value("p0", 6, 6), InputKind.PARAMETER, "weight")


def test_outputs_literals_and_views_follow_torch():
    graph = Graph(
        (X, W),
        (
            node("n0", "aten.linear.default", Ref("x0"), Ref("p0")),
            node(
                "n1",
                "aten.split.Tensor",
                Ref("n0"),
                4,
                -1,
                outputs=(value("n1.0", 4, 4), value("n1.1", 4, 2)),
            ),
            node("n2", "aten.cat.default", (Ref("n1.1"), Ref("n1.0")), 1),
        ),
        (Ref("n2"), None, 2, Ref("x0")),
    )
    x, w = torch.randn(4, 6), torch.randn(6, 6)
    y, none, two, same = run_graph(graph, {"x0": x, "p0": w})
    a, b = (x @ w.t()).split(4, -1)
    torch.testing.assert_close(y, torch.cat([b, a], 1))
    assert (none, two) == (None, 2)
    assert same is x
    assert set(evaluate(graph, {"x0": x, "p0": w})) == {"x0", "p0", "n0", "n1.0", "n1.1", "n2"}


def test_symbols_become_dtype_layout_and_device():
    made = node(
        "n0",
        "aten.full.default",
        (2, 3),
        0.5,
        dtype=Symbol("dtype", "bfloat16"),
        layout=Symbol("layout", "strided"),
        device=Symbol("device", "default"),
        pin_memory=False,
    )
    (result,) = run_node(made, {"x0": torch.empty(1, device="meta")})
    assert (result.dtype, result.device.type, tuple(result.shape)) == (torch.bfloat16, "meta", (2, 3))
    clone = node(
        "n1", "aten.clone.default", Ref("x0"), memory_format=Symbol("memory_format", "channels_last")
    )
    (result,) = run_node(clone, {"x0": torch.randn(2, 3, 4, 5)})
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_fp64_widens_inputs_casts_creations_and_integer_division():
    graph = Graph(
        (X, Input(value("x1", 4, 6, dtype="int64"), InputKind.ACTIVATION)),
        (
            node("n0", "aten._to_copy.default", Ref("x0"), dtype=Symbol("dtype", "float16")),
            node("n1", "aten.full.default", (4, 6), 0.1),
            node("n2", "aten.div.Tensor", Ref("x1"), Ref("x1")),
            node("n3", "aten.div.Tensor", Ref("x1"), 3),
            node("n4", "aten.add.Tensor", Ref("n0"), Ref("n1")),
            node("n5", "aten._softmax.default", Ref("n4"), -1, True),
        ),
        (Ref("n4"), Ref("n3"), Ref("x1"), Ref("n5")),
    )
    x, i = torch.rand(4, 6), torch.randint(1, 9, (4, 6))
    total, third, untouched, soft = run_graph_fp64(graph, {"x0": x, "x1": i})
    assert torch.equal(total, x.double() + 0.1)
    assert torch.equal(third, i.double() / 3)
    assert untouched.dtype == torch.int64
    assert torch.equal(soft, total.softmax(-1))
    assert torch.get_default_dtype() == torch.float32


def test_fp64_draws_the_same_random_numbers_as_the_captured_dtype():
    graph = Graph((X,), (node("n0", "aten.rand_like.default", Ref("x0")),), (Ref("n0"),))
    x = torch.zeros(4, 6)
    torch.manual_seed(3)
    (narrow,) = run_graph(graph, {"x0": x})
    torch.manual_seed(3)
    (wide,) = run_graph_fp64(graph, {"x0": x})
    assert torch.equal(wide, narrow.double())


def test_ambient_autocast_and_gradients_do_not_reach_a_graph():
    graph = Graph((X, W), (node("n0", "aten.linear.default", Ref("x0"), Ref("p0")),), (Ref("n0"),))
    x, w = torch.randn(4, 6), torch.randn(6, 6, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (y,) = run_graph(graph, {"x0": x, "p0": w})
    assert y.dtype == torch.float32
    assert not y.requires_grad


def test_missing_input_and_unknown_operator_are_named():
    graph = Graph((X, W), (), (Ref("x0"),))
    with pytest.raises(ValueError, match="p0"):
        run_graph(graph, {"x0": torch.zeros(4, 6)})
    with pytest.raises(CaptureError, match=r"aten\.no_such_op\.default"):
        resolve_op("aten.no_such_op.default")
