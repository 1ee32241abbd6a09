import pickle
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from verify_subjects import SUBJECTS, graph, subject

from mkevolve.data.decomposition import Slot
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import CapturedModel, Precision, Variant
from mkevolve.data.verdict import Status, Tier
from mkevolve.reference import run_graph
from mkevolve.verify.agenda import Purpose, agenda
from mkevolve.verify.cases import SPECIAL, Distribution
from mkevolve.verify.eager import run_eager, to_tf32
from mkevolve.verify.integrity import impostors
from mkevolve.verify.numeric import compare
from mkevolve.verify.observe import observe
from mkevolve.verify.oracle import plain_attention
from mkevolve.verify.references import References
from mkevolve.verify.work import flops, peak_bytes


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eager_itself_passes_every_case_and_no_impostor_does(name, dtype, make_subject):
    subgraph, seen = make_subject(name, dtype)
    references = References(subgraph, seen)
    entries = agenda(references, Tier.ACCEPT).entries
    always = None
    for entry in entries:
        sample = entry.sample
        made = dict(subgraph.variants)[sample.variant]
        names = [i.name for i in (*made.activations, *made.params)]
        inputs = dict(zip(names, (*sample.activations, *sample.params), strict=True))
        with plain_attention() if sample.distribution in SPECIAL else nullcontext():
            results = tuple(r for r in run_graph(made, inputs) if isinstance(r, torch.Tensor))
        assert compare(results, sample.expected).status is Status.PASSED, entry
        if entry.purpose is Purpose.VALUE:
            fooled = impostors(sample.activations, sample.expected)
            always = fooled if always is None else always & fooled
    assert always == frozenset()


def test_screening_covers_every_variant_and_distribution_once(make_subject):
    subgraph, seen = make_subject("layer_norm")
    plan = agenda(References(subgraph, seen), Tier.SCREEN)
    values = [e for e in plan.entries if e.purpose is Purpose.VALUE]
    assert {e.sample.variant for e in values} == {"check_0", "check_1"}
    assert {e.sample.distribution for e in values} == set(Distribution) - {
        Distribution.EMPHASIS,
        Distribution.CENTRED,
    }
    assert len({e.case.order for e in values}) == 3
    assert {e.case.poison for e in values} == {0, 1}
    assert sum(e.purpose is Purpose.TARGET for e in plan.entries) == 1
    assert sum(e.purpose is Purpose.NOOP for e in plan.entries) == 2


def test_samples_are_made_once_and_keys_say_which(make_subject):
    subgraph, seen = make_subject("softmax")
    references, others = References(subgraph, seen), References(subgraph, seen)
    one = references.sample("check_0", Distribution.LARGE)
    assert one is references.sample("check_0", Distribution.LARGE)
    assert one is not None
    assert one.key != references.sample("check_1", Distribution.LARGE).key
    assert one.key != others.sample("check_0", Distribution.LARGE).key  # its observation might differ


def test_a_draw_that_overflows_is_replaced():
    x = torch.randn(4, 8).half() * 30
    ops = (("aten.mul.Tensor", (Ref("x0"), Ref("x0"))), ("aten.mul.Tensor", (Ref("n0"), Ref("x0"))))
    subgraph, seen = subject("cube", {"target": (x,), "check_0": (x,)}, (), ops)
    sample = References(subgraph, seen).sample("check_0", Distribution.LARGE)
    assert sample is not None
    assert sample.expected[0].finite >= 0.99


def test_a_constant_result_is_no_evidence():
    x = torch.randn(4, 8)
    ops = (("aten.sub.Tensor", (Ref("x0"), Ref("x0"))),)
    subgraph, seen = subject("nothing", {"target": (x,), "check_0": (x,)}, (), ops)
    references = References(subgraph, seen)
    assert references.sample("check_0", Distribution.REDRAW) is None
    assert any("check_0" in note for note in agenda(references, Tier.SCREEN).notes)


def test_an_input_of_little_effect_gets_a_case_where_it_shows():
    x, b = torch.randn(4, 8) * 1e4, torch.randn(8).bfloat16() * 1e-3
    ops = (("aten.add.Tensor", (Ref("x0"), Ref("p0"))),)
    subgraph, seen = subject("weak", {"target": (x.bfloat16(),), "check_0": (x.bfloat16(),)}, (b,), ops)
    found = References(subgraph, seen).influence()
    assert found.silent == ()
    (sample,) = found.samples
    assert sample.distribution is Distribution.EMPHASIS
    without = sample.activations[0].clone()
    assert compare((without,), sample.expected).status is Status.WRONG_VALUE


def test_an_input_without_effect_is_named():
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    ops = (
        ("aten.mul.Scalar", (Ref("x1"), 0.0)),
        ("aten.add.Tensor", (Ref("x0"), Ref("n0"))),
    )
    subgraph, seen = subject("silent", {"target": (x, y), "check_0": (x, y)}, (), ops)
    assert References(subgraph, seen).influence().silent == ("x1",)


def test_tf32_widens_what_eager_may_do(make_subject):
    subgraph, seen = make_subject("conv")
    ieee = References(subgraph, seen).sample("check_0", Distribution.REDRAW)
    references = References(subgraph, seen)
    references.under(Precision.TF32)
    tf32 = references.sample("check_0", Distribution.REDRAW)
    assert ieee is not None
    assert tf32 is not None
    assert tf32.expected[0].allowed > 20 * ieee.expected[0].allowed


def test_a_key_stands_for_one_set_of_inputs():
    """Where the target stands in for checks and its first draw is no evidence, two draws are in use."""
    x = torch.randn(4, 8).half() * 1.5e4
    ops = (("aten.mul.Scalar", (Ref("x0"), 2.0)),)
    whole, seen = subject("twice", {"target": (x,), "check_0": (x,)}, (), ops)
    subgraph = replace(whole, variants=whole.variants[:1])
    found: dict[str, torch.Tensor] = {}
    for seed in range(40):
        references = References(subgraph, seen, seed)
        redrawn, (target, _) = references.sample("target", Distribution.REDRAW), references.target()
        if redrawn is not None and not torch.equal(redrawn.activations[0], target.activations[0]):
            assert redrawn.key != target.key
            found[redrawn.key] = redrawn.activations[0]
    assert found  # some seed needed a second attempt


def test_tf32_rounds_operands_only():
    x, w, b = torch.randn(8, 16), torch.randn(4, 16), torch.randn(4)
    rows = torch.randn(4, 4)
    made = graph((x,), (w, b), (("aten.linear.default", (Ref("x0"), Ref("p0"), Ref("p1"))),))
    (given,) = run_eager(made, {"x0": x, "p0": w, "p1": b}, Precision.TF32)
    assert torch.equal(given, torch.nn.functional.linear(to_tf32(x), to_tf32(w), b))
    assert not torch.equal(to_tf32(b), b)
    same = graph((rows,), (), (("aten.addmm.default", (Ref("x0"), Ref("x0"), Ref("x0"))),))
    (given,) = run_eager(same, {"x0": rows}, Precision.TF32)
    assert torch.equal(given, torch.addmm(rows, to_tf32(rows), to_tf32(rows)))
    (plain,) = run_eager(same, {"x0": rows}, Precision.IEEE)
    assert torch.equal(plain, torch.addmm(rows, rows, rows))
    q, k, v, mask = (
        torch.randn(1, 2, 5, 8),
        torch.randn(1, 2, 7, 8),
        torch.randn(1, 2, 7, 8),
        torch.randn(5, 7),
    )
    parts = (Ref("x0"), Ref("x1"), Ref("x2"), Ref("x3"))
    scores = graph((q, k, v, mask), (), (("aten.scaled_dot_product_attention.default", parts),))
    (given,) = run_eager(scores, {"x0": q, "x1": k, "x2": v, "x3": mask}, Precision.TF32)
    rounded = (to_tf32(q), to_tf32(k), to_tf32(v))
    assert torch.equal(given, torch.nn.functional.scaled_dot_product_attention(*rounded, mask))


def test_huge_targets_fall_back(monkeypatch, make_subject):
    subgraph, seen = make_subject("conv")
    sample, note = References(subgraph, seen).target()
    assert note == ""
    assert sample.expected[0].reference.dtype == torch.float64
    monkeypatch.setattr("mkevolve.verify.references._FP64_FLOPS", 0.0)
    sample, note = References(subgraph, seen).target()
    assert "float32" in note
    assert sample.expected[0].reference.dtype == torch.float32
    half, seen_half = make_subject("conv", torch.bfloat16)
    narrow, _ = References(half, seen_half).target()
    assert narrow.expected[0].reference.dtype == torch.float32
    monkeypatch.setattr("mkevolve.verify.references._FP32_FLOPS", 0.0)
    sample, note = References(subgraph, seen).target()
    assert "not compared" in note
    assert sample.expected == ()


def test_work_of_a_convolution():
    x, w = torch.randn(2, 3, 5, 5), torch.randn(7, 3, 3, 3)
    made = graph((x,), (w,), (("aten.conv2d.default", (Ref("x0"), Ref("p0"), None, (1, 1), (1, 1))),))
    assert flops(made) == 2 * (2 * 7 * 25) * 27
    assert peak_bytes(made, 8) == 8 * (150 + 189 + 350)


def test_observe_follows_values_through_the_model():
    def value(name, rows):
        return Value(name, TensorSpec((rows, 3), "float32", (3, 1)))

    def model_graph(rows):
        weight = Input(Value("w", TensorSpec((3, 3), "float32", (3, 1))), InputKind.PARAMETER, "lin.weight")
        nodes = (
            Node("a", "aten.relu.default", (Ref("x"),), (), (value("a", rows),)),
            Node("b", "aten.mm.default", (Ref("a"), Ref("w")), (), (value("b", rows),)),
            Node("c", "aten.relu.default", (Ref("b"),), (), (value("c", rows),)),
        )
        return Graph((Input(value("x", rows), InputKind.ACTIVATION), weight), nodes, (Ref("c"),))

    variants = tuple(
        Variant(n, model_graph(r), ()) for n, r in (("target", 9), ("check_0", 2), ("check_1", 4))
    )
    model = CapturedModel("m", "float32", False, variants, "", "")
    weight = torch.randn(3, 3)
    examples = {"check_0": {"x": torch.randn(2, 3)}, "check_1": {"x": torch.randn(4, 3)}}
    slots = (
        Slot("first", "sg_relu", ("a",), ("x",), ("a",), "relu"),
        Slot("lin", "sg_mm", ("b",), ("a", "w"), ("b",), "mm"),
        Slot("last", "sg_relu", ("c",), ("b",), ("c",), "relu"),
    )
    found = observe(model, {"lin.weight": weight}, examples, slots)
    assert set(found) == {"sg_relu", "sg_mm"}
    relu, mm = found["sg_relu"], found["sg_mm"]
    assert [name for name, _ in relu.captured] == ["check_0", "check_1", "check_0@last", "check_1@last"]
    assert torch.equal(mm.captured[0][1][0], examples["check_0"]["x"].relu())
    assert torch.equal(mm.params[0], weight)
    assert mm.statistics[0].nonnegative
    assert 0.1 < mm.statistics[0].zeros < 0.9
    assert not relu.statistics[0].nonnegative
    unseen = observe(model, {"lin.weight": weight}, {}, slots)["sg_mm"]
    assert len(unseen.statistics) == 2
    assert unseen.statistics[0].std == 1.0
    again = pickle.loads(pickle.dumps(mm))
    assert torch.equal(again.captured[1][1][0], mm.captured[1][1][0])
    assert again.statistics == mm.statistics
