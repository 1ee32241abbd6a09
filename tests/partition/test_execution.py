import random
from dataclasses import replace

import pytest
import torch
from partition_graphs import Sketch, model, random_graph, tensors

from mkevolve.data.decomposition import Decomposition
from mkevolve.errors import IllegalPartition
from mkevolve.partition.execution import execute, programs, reference_fill, verify_references
from mkevolve.partition.extract import slots_of, variant_name
from mkevolve.partition.first_cut import first_cut


def attention_model(*lengths: int):
    graphs = []
    for length in lengths:
        s = Sketch()
        x = s.input((2, length, 12))
        split = s.op("view", s.op("linear", x, s.param((36, 12))), (2, length, 3, 3, 4))
        q, k, v = s.ops("unbind.int", s.op("permute", split, (2, 0, 3, 1, 4)))
        y = s.op("scaled_dot_product_attention", q, k, v)
        y = s.op("reshape", s.op("transpose.int", y, 1, 2), (2, length, 12))
        out = s.op("add.Tensor", x, s.op("linear", y, s.param((12, 12), "out.weight")))
        graphs.append(s.graph(out, x))
    return model(*graphs)


@pytest.mark.parametrize("variant", [0, 1])
def test_references_compose_to_the_model_at_every_variant(variant):
    captured = attention_model(8, 5)
    chosen = captured.variants[variant]
    assert verify_references(captured, first_cut(captured), chosen.name, tensors(chosen.graph)) is None


def test_a_wrong_slot_shows():
    captured = attention_model(8)
    decomposition = first_cut(captured)
    slots, _ = slots_of(captured, decomposition)
    program = programs(captured, decomposition, slots)["target"]
    inputs = tensors(captured.target.graph)
    right = reference_fill(program)

    def wrong(slot, given):
        return tuple(t + (slot.name == "out_add") for t in right(slot, given))

    good, bad = (execute(program, inputs, fill)[0] for fill in (right, wrong))
    assert torch.allclose(good + 1, bad)


def test_results_take_the_strides_of_the_boundary():
    captured = attention_model(8)
    decomposition = first_cut(captured)
    slots, _ = slots_of(captured, decomposition)
    program = programs(captured, decomposition, slots)["target"]
    right = reference_fill(program)

    def transposed(slot, given):
        return tuple(t.transpose(0, 1).contiguous().transpose(0, 1) for t in right(slot, given))

    inputs = tensors(captured.target.graph)
    result = execute(program, inputs, transposed)[0]
    assert result.stride() == captured.target.graph.output_values[0].spec.stride
    assert torch.equal(result, execute(program, inputs, right)[0])


def test_an_untouched_input_comes_back_itself():
    captured = attention_model(8)
    decomposition = first_cut(captured)
    slots, _ = slots_of(captured, decomposition)
    program = programs(captured, decomposition, slots)["target"]
    inputs = tensors(captured.target.graph)
    assert execute(program, inputs, reference_fill(program))[1] is inputs["a"]


def test_check_variants_of_shared_subgraphs_are_a_union():
    graphs = []
    for first, second in ((6, 6), (3, 2)):
        s = Sketch()
        x, y = s.input((first, 4)), s.input((second, 4))
        graphs.append(s.graph(s.op("softmax.int", x, -1), s.op("softmax.int", y, -1)))
    captured = model(*graphs)
    slots, (subgraph,) = slots_of(captured, first_cut(captured))
    assert subgraph.weight == 2
    assert [name for name, _ in subgraph.variants] == ["target", "check_1", "check_1@softmax_2"]
    assert [g.inputs[0].spec.shape[0] for _, g in subgraph.variants] == [6, 3, 2]
    found = programs(captured, first_cut(captured), slots)["check_1"]
    assert variant_name(subgraph, found.graphs["softmax_2"]) == "check_1@softmax_2"


def test_a_boundary_in_channels_last():
    s = Sketch()
    x = s.op("relu", s.input((2, 3, 4, 5)))
    graph = s.graph(s.op("tanh", s.op("permute", x, (0, 2, 3, 1))))
    captured = model(graph)
    plain = Decomposition((("relu",), ("tanh",)))
    last = replace(plain, formats=(("relu", "channels_last"),))
    slots, subgraphs = slots_of(captured, last)
    assert subgraphs[0].target.output_values[0].spec.stride == (60, 1, 15, 3)
    assert subgraphs[1].target.inputs[0].spec.stride == (60, 15, 3, 1)
    assert [s.subgraph for s in slots] != [s.subgraph for s in slots_of(captured, plain)[0]]
    seen = {}
    program = programs(captured, last, slots)["target"]

    def watched(slot, given):
        seen[slot.name] = given[0].stride()
        return reference_fill(program)(slot, given)

    execute(program, tensors(graph), watched)
    assert seen["tanh"] == (60, 15, 3, 1)
    assert verify_references(captured, last, "target", tensors(graph)) is None


def test_a_format_that_a_view_cannot_follow_is_refused():
    s = Sketch()
    x = s.op("relu", s.input((2, 3, 4, 5)))
    captured = model(s.graph(s.op("tanh", s.op("view", x, (2, 60)))))
    bad = Decomposition((("relu",), ("tanh",)), formats=(("relu", "channels_last"),))
    with pytest.raises(IllegalPartition, match=r"^formats: view"):
        slots_of(captured, bad)


def test_values_are_dropped_after_their_last_use():
    graph = random_graph(random.Random(5), 20)
    captured = model(graph)
    decomposition = first_cut(captured)
    slots, _ = slots_of(captured, decomposition)
    program = programs(captured, decomposition, slots)["target"]
    dropped = [name for names in program.dead for name in names]
    assert len(dropped) == len(set(dropped))
    assert not {o.name for o in graph.outputs} & set(dropped)


def test_a_draw_that_nobody_reads_still_happens():
    s = Sketch()
    x = s.input((4, 6))
    s.ops("native_dropout", x, 0.5, True)
    y, _ = s.ops("native_dropout", x, 0.5, True)
    graph = s.graph(y)
    captured = model(graph)
    torch.manual_seed(3)
    assert verify_references(captured, first_cut(captured), "target", tensors(graph)) is None
