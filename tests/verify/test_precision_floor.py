"""The precision floor and what else a plan shows, on plans written by hand."""

from dataclasses import replace

import pytest
from static_subjects import candidate

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, Input, InputKind, Node, Ref, TensorSpec, Value
from mkevolve.data.model import Precision
from mkevolve.data.plan import Buffer, Cast, Dot, Launch, LaunchPlan, Output, Resources, Sum, TensorArg, Wrap
from mkevolve.data.verdict import Status, Step, Tier
from mkevolve.verify.compiled import judge_plans


def spec(dtype):
    return TensorSpec((4, 8), dtype, (8, 1))


def subgraph(x="float32", w="float32", out="float32", op="aten.linear.default"):
    inputs = (
        Input(Value("x0", spec(x)), InputKind.ACTIVATION),
        Input(Value("p0", spec(w)), InputKind.PARAMETER, "w"),
    )
    node = Node("n0", op, (Ref("x0"), Ref("p0")), (), (Value("n0", spec(out)),))
    return Subgraph("sg_1", "fam_1", (("target", Graph(inputs, (node,), (Ref("n0"),))),), "linear")


def plan(out="float32", prepared="float32", **launch):
    one = Launch("f", (1, 1, 1), (), (), (), Resources(32, 0, 0, 4, 3))
    buffers = (Buffer("x0", spec("float32")), Buffer("q0", spec(prepared)), Buffer("t0", spec(out)))
    return LaunchPlan("target", "h200", buffers, (replace(one, **launch),), (Output("t0", 0, spec(out)),))


def judged(found, graph, precision=Precision.IEEE, source=None):
    return judge_plans((found,), graph, precision, source or candidate(), Tier.SCREEN)


ALL = subgraph()
HALF = subgraph("float16", "float16", "float16")
MIXED = subgraph(out="float16")  # multiplies in float32, gives float16
INT8 = subgraph("float16", "int8", "float16")


@pytest.mark.parametrize(
    ("graph", "out", "dot", "text"),
    [
        (ALL, "float32", Dot("float16", "float32", "native", 7), "multiplies in float32"),
        (ALL, "float32", Dot("bfloat16", "float32", "native", 7), "multiplies in float32"),
        (ALL, "float32", Dot("float8_e5m2", "float32", "native", 7), "multiplies in float32"),
        (ALL, "float32", Dot("int8", "int32", "native", 7), "quantised"),
        (ALL, "float32", Dot("float32", "float32", "tf32", 7), "in tf32, under precision=ieee"),
        (ALL, "float32", Dot("float32", "float32", "bf16x3", 7), "in bf16x3"),
        (ALL, "float32", Dot("float32", "float16", "ieee", 7), "accumulates in float16"),
        (MIXED, "float16", Dot("float16", "float32", "native", 7), "multiplies in float32"),
        (HALF, "float16", Dot("float16", "float16", "native", 7), "accumulates in float16"),
        (HALF, "float16", Dot("float8_e4m3fn", "float32", "native", 7), "multiplies in float16"),
        (HALF, "float16", Dot("int8", "int32", "native", 7), "quantised"),
    ],
)
def test_a_product_below_the_floor(graph, out, dot, text):
    verdict = judged(plan(out, prepared=out, dots=(dot,)), graph)
    assert verdict is not None
    assert (verdict.status, verdict.step) == (Status.PRECISION_ERROR, Step.COMPILE)
    assert verdict.message.startswith("line 7: ")
    assert text in verdict.message


@pytest.mark.parametrize(
    ("graph", "out", "dot", "precision"),
    [
        (ALL, "float32", Dot("float32", "float32", "ieee", 7), Precision.IEEE),
        (ALL, "float32", Dot("float32", "float32", "tf32x3", 7), Precision.IEEE),
        (ALL, "float32", Dot("float32", "float32", "ieee", 7), Precision.TF32),
        (ALL, "float32", Dot("float32", "float32", "tf32x3", 7), Precision.TF32),
        (ALL, "float32", Dot("float32", "float32", "tf32", 7), Precision.TF32),
        (ALL, "float32", Dot("float64", "float64", "ieee", 7), Precision.IEEE),
        (HALF, "float16", Dot("float16", "float32", "native", 7), Precision.IEEE),
        (HALF, "float16", Dot("float32", "float32", "ieee", 7), Precision.IEEE),
        (INT8, "float16", Dot("int8", "int32", "native", 7), Precision.IEEE),
        (INT8, "float16", Dot("float16", "float32", "native", 7), Precision.IEEE),
    ],
)
def test_a_product_on_the_floor(graph, out, dot, precision):
    assert judged(plan(out, prepared=out, dots=(dot,)), graph, precision) is None


def test_an_open_default_is_named():
    source = candidate(jit="v = tl.dot(v, v)")
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "tl.dot" in text)
    for precision in Precision:
        for at in (line, None):
            found = plan(dots=(Dot("float32", "float32", "tf32", at),))
            verdict = judged(found, ALL, precision, source)
            assert verdict is not None
            assert "leaves input_precision open" in verdict.message
            assert verdict.evidence.line == at
    half = plan("float16", prepared="float16", dots=(Dot("float16", "float32", "native", line),))
    assert judged(half, HALF, source=source) is None


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"casts": (Cast("float32", "float16", 9),)}, "line 9: float32 is rounded to float16"),
        ({"casts": (Cast("float32", "bfloat16", 9),)}, "rounded to bfloat16"),
        ({"casts": (Cast("float32", "float8_e5m2", 9),)}, "rounded to float8"),
        ({"casts": (Cast("int16", "bfloat16", 9),)}, "rounded to bfloat16"),
        ({"args": (TensorArg("x0", 1, "bfloat16"),)}, "kernel f reads x0 as bfloat16"),
        ({"sums": (Sum("loop", "float16", 9),)}, "line 9: a loop is kept in float16"),
        ({"prepared": "float16"}, "prepare gives float16 (q0)"),
        ({"prepared": "float8_e4m3fn"}, "prepare gives float8"),
    ],
)
def test_what_is_narrower_than_the_subgraph(parts, text):
    verdict = judged(plan(**parts), ALL)
    assert verdict is not None
    assert verdict.status is Status.PRECISION_ERROR
    assert text in verdict.message
    assert "float32" in verdict.message


def test_a_half_subgraph_may_round_but_not_sum_in_half():
    assert judged(plan("float16", "float16", casts=(Cast("float32", "float16", 9),)), HALF) is None
    assert judged(plan("float16", "float16", casts=(Cast("float64", "float32", 9),)), HALF) is None
    verdict = judged(plan("float16", "float16", sums=(Sum("reduction", "float16", 9),)), HALF)
    assert verdict is not None
    assert verdict.status is Status.PRECISION_ERROR


def test_integers_have_no_floor():
    graph = subgraph("int64", "int64", "int64", "aten.add.Tensor")
    assert judged(plan("int64", "int64"), graph) is None


def test_an_offset_that_wraps_is_out_of_bounds():
    verdict = judged(plan(wraps=(Wrap("x", 12),)), ALL)
    assert verdict is not None
    assert (verdict.status, verdict.evidence.line) == (Status.OUT_OF_BOUNDS, 12)
    assert verdict.message.startswith("line 12: kernel f reaches x by an offset of 32 bits")
    assert "tl.int64" in verdict.message


def test_float_atomics_are_refused_unless_they_may_differ():
    found = plan(sums=(Sum("atomic addition", "float32", 9),))
    verdict = judged(found, ALL)
    assert (verdict.status, verdict.evidence.line) == (Status.NONDETERMINISTIC, 9)
    assert "second launch" in verdict.message
    assert judge_plans((found,), ALL, Precision.IEEE, candidate(), Tier.SCREEN, False) is None
    narrow = plan(sums=(Sum("atomic addition", "float16", 9),))
    assert (
        judge_plans((narrow,), ALL, Precision.IEEE, candidate(), Tier.SCREEN, False).status
        is Status.PRECISION_ERROR
    )
