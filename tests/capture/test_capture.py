import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from capture_cases import Constants, Replay, both, model_of
from torch import nn

from mkevolve.capture import ONE_SIZE, bind, capture, check_capture, constants_of, normalise_call
from mkevolve.data.codec import decode_graph, encode_graph
from mkevolve.data.graph import InputKind, Node
from mkevolve.errors import CaptureError, ModelError
from mkevolve.models.config import read_model_config
from mkevolve.models.source import build_model

CONF = Path(__file__).parents[2] / "conf" / "model"
NAMES = sorted(p.stem for p in CONF.glob("*.yaml") if p.stem != "file")


def configured(name, **changes):
    node = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return build_model(read_model_config({**node, **changes}))


@cache
def captured_default(name):
    return capture(configured(name))


def batch():
    return (torch.randn(3, 4),)


@pytest.mark.parametrize("name", NAMES)
def test_every_configured_model_is_captured_and_equals_eager(name):
    model, captured = configured(name), captured_default(name)
    assert [v.name for v in captured.variants] == ["target", "check_1", "check_2"]
    assert captured.notes == ()
    check_capture(model, captured)
    graph = captured.target.graph
    assert decode_graph(encode_graph(graph)) == graph
    assert all(torch._C._get_schema(*_schema(n)) for n in graph.nodes)


def _schema(node):
    namespace, op, overload = node.op.split(".")
    return f"{namespace}::{op}", "" if overload == "default" else overload


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_blocks_equal_eager(dtype):
    model = configured("resnet_block", dtype=dtype)
    captured = capture(model)
    check_capture(model, captured)
    assert {v.spec.dtype for v in captured.target.graph.values().values()} == {dtype}


def test_training_mode_updates_statistics_like_eager():
    model = configured("resnet_block", train=True)
    captured = capture(model)
    assert captured.training
    assert sum(m.kind == "buffer" for m in captured.mutations) == 9
    check_capture(model, captured)


def test_channels_last_is_seen_in_the_strides():
    model = configured("resnet_block", memory_format="channels_last")
    captured = capture(model)
    check_capture(model, captured)
    assert captured.target.graph.output_values[0].spec.stride == (64 * 224 * 224, 1, 224 * 64, 64)


def test_two_captures_are_equal_and_hold_no_device():
    first = captured_default("transformer_block")
    assert capture(configured("transformer_block")) == first
    assert "cpu" not in str(first)


def test_inputs_are_ordered_and_names_agree_between_variants():
    captured = captured_default("resnet_block")
    kinds = [i.kind for i in captured.target.graph.inputs]
    assert kinds == sorted(kinds, key=list(InputKind).index)
    for variant in captured.checks:
        assert [n.name for n in variant.graph.nodes] == [n.name for n in captured.target.graph.nodes]
        assert variant.graph.params == captured.target.graph.params
    norms = [n for n in captured.target.graph.nodes if n.op == "aten.batch_norm.default"]
    assert [(n.name, len(n.outputs)) for n in norms] == [
        ("batch_norm", 1),
        ("batch_norm_1", 1),
        ("batch_norm_2", 1),
    ]


def test_constants_of_every_origin_are_found():
    model = model_of(Constants(), batch)
    captured = capture(model)
    check_capture(model, captured)
    targets = {i.target for i in captured.target.graph.params}
    assert {"table", "many[0]", "many[1]['k']"} < targets
    assert len(targets) == 5
    model.module.table += 1.0
    args, _ = model.example("target")
    torch.testing.assert_close(Replay(model, captured, captured.target)(*args), model.module(*args))


class Writes(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.calls, self.seen, self.shift = how, 0, [], torch.zeros(4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        if self.how == "calls":
            self.calls += 1
        elif self.how == "seen":
            self.seen.append(x.mean())
        elif self.how == "shift":
            self.shift.add_(1.0)
        elif self.how == "fresh":
            self.fresh = x
        elif self.how == "weight":
            with torch.no_grad():
                self.weight.mul_(0.5)
        return x * self.calls + self.shift + self.weight


@pytest.mark.parametrize("how", ["calls", "seen", "shift", "fresh", "weight"])
def test_state_outside_buffers_is_refused_and_left_alone(how):
    module = Writes(how)
    with pytest.raises(CaptureError, match=how):
        capture(model_of(module, batch))
    assert (module.calls, module.seen, hasattr(module, "fresh")) == (0, [], False)
    assert type(module.shift) is torch.Tensor
    assert torch.equal(module.shift, torch.zeros(4))
    assert torch.equal(module.weight, torch.ones(4))


class Assigns(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x, scratch):
        self.mean = 0.5 * self.mean + x.mean(0)
        scratch.add_(1.0)
        return x + self.mean + scratch


def test_assigned_buffers_and_written_inputs_are_mutations():
    model = model_of(Assigns(), lambda: (torch.randn(3, 4), torch.randn(3, 4)))
    captured = capture(model)
    assert {(m.kind, m.target) for m in captured.mutations} == {("buffer", "mean"), ("input", "scratch")}
    for (want, call, module), (got, other, replay) in both(model, captured, captured.target, 0):
        torch.testing.assert_close((got, other), (want, call))
        torch.testing.assert_close(replay.buffer("mean"), module.mean)


class Same(nn.Module):
    def forward(self, x, y):
        y.add_(1.0)
        return x + y


def test_one_tensor_passed_twice_is_two_inputs():
    def twice():
        tensor = torch.randn(3, 4)
        return tensor, tensor

    captured = capture(model_of(Same(), twice))
    assert len(captured.target.graph.activations) == 2


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x[x > 0],
        lambda x: x * x.max().item(),
        lambda x: x if bool(x.sum() > 0) else -x,
        lambda x: torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)),
    ],
)
def test_data_dependence_is_refused_with_its_place(forward):
    class Depends(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(CaptureError, match=r"data-dependent") as caught:
        capture(model_of(Depends(), batch))
    assert "test_capture.py" in str(caught.value)


def test_forward_that_fails_on_its_inputs_is_the_models_mistake():
    class Fails(nn.Module):
        def forward(self, x):
            return x @ torch.zeros(3, 3)

    with pytest.raises(ModelError, match=r"3x4 float32.*cannot be multiplied"):
        capture(model_of(Fails(), batch))


class Keywords(nn.Module):
    def forward(self, x, bias=None, *, scale=2.0):
        return x * scale if bias is None else x * scale + bias


def test_binding_follows_the_signature_and_names_what_differs():
    model = model_of(Keywords(), batch)
    captured = capture(model)
    x = torch.randn(3, 4)
    assert bind(captured.target, *normalise_call(model.module, (), {"x": x}))["x"] is x
    with pytest.raises(CaptureError, match="scale"):
        bind(captured.target, *normalise_call(model.module, (x,), {"scale": 3.0}))
    with pytest.raises(CaptureError, match="arguments"):
        bind(captured.target, *normalise_call(model.module, (x, x), {}))


def test_a_captured_number_must_be_passed_again():
    model = model_of(Keywords(), lambda: ((torch.randn(3, 4),), {"scale": 3.0}))
    captured = capture(model)
    x = torch.randn(3, 4)
    assert torch.equal(Replay(model, captured, captured.target)(x, scale=3.0), x * 3.0)
    with pytest.raises(CaptureError, match=r"scale is 4\.0.*captured with 3\.0"):
        bind(captured.target, (x,), {"scale": 4.0})


def test_constants_need_the_captured_module():
    model, captured = configured("mlp"), captured_default("mlp")
    assert constants_of(model.module, captured)["p_up_weight"] is model.module.up.weight
    with pytest.raises(CaptureError, match=r"up\.weight"):
        constants_of(nn.Linear(2, 2), captured)


def test_sizes_that_cannot_change_are_said():
    class Fixed(nn.Module):
        def forward(self, x):
            return x + torch.ones(3, 4)

    captured = capture(model_of(Fixed(), batch))
    assert captured.checks == ()
    assert captured.notes == (ONE_SIZE,)


class Branches(nn.Module):
    def forward(self, x):
        return x.exp() if x.shape[0] == 1 else x.sin()


def test_a_variant_with_another_graph_is_dropped_and_said():
    model = model_of(Branches(), batch)
    captured = capture(model)
    assert all(v.leaves[0].spec.shape[0] > 1 for v in captured.variants)
    config = {
        "name": "branches",
        "build": {"_target_": "capture_cases.Constants"},
        "inputs": [{}],
        "variants": {"target": [[3, 4]], "check_1": [[2, 4]], "check_2": [[3, 5]]},
    }
    model = build_model(read_model_config(config))
    captured = capture(model)
    assert [v.name for v in captured.variants] == ["target", "check_1"]
    assert captured.notes[0].startswith("variant check_2 (3x5 float32) dropped")


class Columns(nn.Module):
    """At batch 1 the transposed rows are contiguous: another graph."""

    def forward(self, x):
        return x.transpose(0, 1).reshape(-1)


class Halves(nn.Module):
    def forward(self, x):
        if x.shape[0] == 1:
            raise ValueError("a single row")
        return x * 2


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Columns(), r"variant check_2 \(1x\d+ float32\) dropped, its graph differs: "),
        (Halves(), r"forward fails at sizes drawn for it \(1x\d+ float32\)"),
    ],
)
def test_why_a_model_of_one_size_has_one_check_variant(module, reason):
    captured = capture(model_of(module, batch))
    assert [v.name for v in captured.variants] == ["target", "check_1"]
    assert len(captured.notes) == 1
    assert re.match("only one check variant: " + reason, captured.notes[0])
    assert "\n" not in captured.notes[0]


def tampered(captured, change):
    graphs = [
        (v, type(v.graph)(v.graph.inputs, tuple(map(change, v.graph.nodes)), v.graph.outputs))
        for v in captured.variants
    ]
    return replace(captured, variants=tuple(replace(v, graph=g) for v, g in graphs))


def test_check_sees_a_wrong_value():
    model, captured = configured("mlp"), captured_default("mlp")
    wrong = tampered(
        captured,
        lambda n: (
            Node(n.name, "aten.relu.default", n.args, (), n.outputs) if n.op == "aten.gelu.default" else n
        ),
    )
    with pytest.raises(CaptureError, match="result 1 differs from eager"):
        check_capture(model, wrong)


class TwoMeans(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.zeros(4))
        self.register_buffer("high", torch.ones(4))

    def forward(self, x):
        self.low.mul_(0.5).add_(x.amin(0))
        self.high.mul_(0.5).add_(x.amax(0))
        return x - 1.0


def test_check_sees_a_buffer_that_is_written_wrongly():
    model = model_of(TwoMeans(), batch)
    captured = capture(model)
    check_capture(model, captured)
    low, high = captured.mutations
    swapped = (replace(low, target=high.target), replace(high, target=low.target))
    with pytest.raises(CaptureError, match="call 1: afterwards low differs from eager"):
        check_capture(model, replace(captured, mutations=swapped))
