"""The bound of the whole model follows the precision policy."""

from types import SimpleNamespace

import torch

from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import Precision, Variant
from mkevolve.endtoend import deviation
from mkevolve.verify.eager import to_tf32


def _spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "float32", (shape[1], 1))


def test_the_whole_under_tf32_may_deviate_as_tf32_eager_does() -> None:
    graph = Graph(
        (
            Input(Value("x", _spec(32, 64)), InputKind.ACTIVATION),
            Input(Value("w", _spec(64, 16)), InputKind.PARAMETER, "w"),
        ),
        (Node("y", "aten.mm.default", (Ref("x"), Ref("w")), (), (Value("y", _spec(32, 16)),)),),
        (Ref("y"),),
    )
    torch.manual_seed(0)
    inputs = {"x": torch.randn(32, 64), "w": torch.randn(64, 16)}
    given = to_tf32(inputs["x"]) @ to_tf32(inputs["w"])
    for precision, accepted in ((Precision.IEEE, False), (Precision.TF32, True)):
        settings = SimpleNamespace(seed=0, precision=precision)
        found = deviation(Variant("check_0", graph, ()), inputs, lambda: (given,), settings)
        assert (found.message == "") is accepted, found
