"""The whole module as one subgraph: what goes in and comes out is what the module says, not the cut."""

import pytest
from partition_graphs import Sketch, model

from mkevolve.data.graph import Graph
from mkevolve.errors import CaptureError
from mkevolve.partition.extract import slots_of
from mkevolve.partition.first_cut import first_cut
from mkevolve.partition.whole import whole_of


def test_inputs_come_in_the_order_of_forward_and_of_the_signature() -> None:
    s = Sketch()
    x, y, unused = s.input((4, 8)), s.input((8,)), s.input((3,))
    late, early = s.param((8,), "late"), s.param((8,), "early")
    mean = s.input((8,), "buffer", "mean")
    first = s.op("add.Tensor", y, early)
    second = s.op("mul.Tensor", s.op("sub.Tensor", x, mean), s.op("add.Tensor", first, late))
    slot, subgraph = whole_of(model(s.graph(second)))
    assert slot.inputs == (x, y, late, early, mean)
    assert unused not in slot.inputs
    assert [i.name for i in subgraph.target.activations] == ["x0", "x1"]
    assert [i.kind.value for i in subgraph.target.params] == ["parameter", "parameter", "buffer"]


def test_views_of_inputs_and_results_belong_to_the_whole() -> None:
    s = Sketch()
    x, w = s.input((4, 6)), s.param((5, 4))
    turned = s.op("transpose.int", x, 0, 1)
    result = s.op("transpose.int", s.op("mm", turned, s.op("t", w)), 0, 1)
    slot, subgraph = whole_of(model(s.graph(result)))
    assert slot.inputs == (x, w)
    assert subgraph.target.inputs[0].spec.shape == (4, 6)
    (output,) = subgraph.target.output_values
    assert (output.spec.shape, output.spec.stride) == ((5, 6), (1, 5))


def test_each_result_counts_once_and_inputs_that_pass_through_do_not() -> None:
    s = Sketch()
    x = s.input((4, 6))
    y = s.op("relu", x)
    seen = s.op("view", x, (6, 4))
    slot, subgraph = whole_of(model(s.graph(y, x, y, seen)))
    assert slot.outputs == (y,)
    assert len(subgraph.target.outputs) == 1


def test_a_module_of_one_partition_is_the_same_subgraph_as_in_its_cut() -> None:
    s = Sketch()
    captured = model(s.graph(s.op("relu", s.op("mul.Tensor", s.input((4, 6)), s.param((6,))))))
    _, subgraph = whole_of(captured)
    _, (only,) = slots_of(captured, first_cut(captured))
    assert subgraph == only


def returns_its_input() -> Graph:
    s = Sketch()
    return s.graph(s.input((3,)))


def draws() -> Graph:
    s = Sketch()
    return s.graph(s.op("add.Tensor", s.input((3,)), s.op("rand_like", s.input((3,)))))


@pytest.mark.parametrize(
    ("make", "expected"), [(returns_its_input, "computes nothing"), (draws, "random numbers")]
)
def test_what_cannot_be_verified_is_refused(make, expected: str) -> None:
    with pytest.raises(CaptureError, match=expected):
        whole_of(model(make()))
