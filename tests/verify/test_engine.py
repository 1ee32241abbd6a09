"""The verifier against a backend that runs Python functions here: what is judged, without Triton."""

from dataclasses import replace

import pytest
import torch
from function_backend import SOURCE, TRAFFIC, FunctionBackend

from mkevolve.data.candidate import Configuration
from mkevolve.data.model import Precision
from mkevolve.data.plan import Dot
from mkevolve.data.verdict import Status, Step, Tier
from mkevolve.interfaces import CaseResult, CompileResult, Order
from mkevolve.measure.chips import load_chip
from mkevolve.verify.engine import Verifier
from mkevolve.verify.references import References


def right(case):
    return torch.softmax(case.activations[0], -1)


def verify(make_subject, function, tier=Tier.SCREEN, source=SOURCE, precision=Precision.IEEE, **changes):
    subgraph, seen = make_subject("softmax")
    backend = FunctionBackend(subgraph, function, **changes)
    verifier = Verifier(backend, load_chip("h200"), precision)
    finding = verifier.verify(subgraph, References(subgraph, seen), source, Configuration(), tier)
    return finding, backend


@pytest.mark.parametrize("tier", list(Tier))
def test_a_right_candidate_passes_in_one_job(make_subject, tier):
    finding, backend = verify(make_subject, right, tier)
    verdict = finding.verdict
    assert verdict.passed, verdict
    assert len(backend.jobs) == 1
    assert verdict.tier is tier
    assert verdict.evidence.cases == len(backend.jobs[0].cases)
    assert verdict.evidence.compared > 1000
    assert 0 < verdict.evidence.error < verdict.evidence.allowed
    assert finding.traffic == (TRAFFIC,)
    assert "target: 6 of 64 program instances" in verdict.notes
    assert finding.target_plan.variant == "target"
    assert finding.seconds > 0


def test_nothing_runs_that_breaks_the_contract(make_subject):
    finding, backend = verify(make_subject, right, source=SOURCE.replace("return out", "return out + 1"))
    assert finding.verdict.status is Status.STATIC_ERROR
    assert backend.jobs == []
    with pytest.raises(ValueError, match="no plan"):
        _ = finding.target_plan


def test_a_configuration_must_fit_the_table(make_subject):
    subgraph, seen = make_subject("softmax")
    verifier = Verifier(FunctionBackend(subgraph, right), load_chip("h200"), Precision.IEEE)
    wrong = Configuration((("BLOCK", 3),))
    found = verifier.verify(subgraph, References(subgraph, seen), SOURCE, wrong, Tier.SCREEN)
    assert found.verdict.status is Status.STATIC_ERROR


def test_nothing_runs_that_does_not_compile(make_subject):
    failed = CompileResult(Status.RESOURCE_ERROR, "shared memory: 300000 bytes, the chip has 232448")
    finding, backend = verify(make_subject, right, compiled=failed)
    assert finding.verdict.status is Status.RESOURCE_ERROR
    assert finding.verdict.step is Step.COMPILE
    assert "300000" in finding.verdict.message
    assert backend.jobs == []


@pytest.mark.parametrize(
    ("dot", "precision", "passes"),
    [
        (Dot("float32", "float32", "ieee"), Precision.IEEE, True),
        (Dot("float32", "float32", "tf32x3"), Precision.IEEE, True),
        (Dot("float32", "float32", "tf32"), Precision.IEEE, False),
        (Dot("float32", "float32", "tf32"), Precision.TF32, True),
        (Dot("float16", "float32", "native"), Precision.IEEE, False),  # narrower than the subgraph
        (Dot("float16", "float16", "native"), Precision.TF32, False),
    ],
)
def test_precision_is_a_floor(make_subject, dot, precision, passes):
    finding, _ = verify(make_subject, right, precision=precision, dots=(dot,))
    assert (finding.verdict.status is Status.PASSED) == passes
    if not passes:
        assert finding.verdict.status is Status.PRECISION_ERROR


def test_a_view_of_an_input_is_refused_before_running(make_subject):
    finding, backend = verify(make_subject, right, buffer="x0")
    assert finding.verdict.status is Status.WRONG_OUTPUT
    assert backend.jobs == []


def test_wrong_values_name_variant_distribution_and_place(make_subject):
    def no_maximum(case):
        e = torch.exp(case.activations[0])
        return e / e.sum(-1, keepdim=True)

    verdict = verify(make_subject, no_maximum)[0].verdict
    assert verdict.status is Status.WRONG_VALUE
    assert verdict.evidence.distribution == "large"
    assert verdict.evidence.variant is not None
    assert "NaN" in verdict.message


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.TIMEOUT, Status.OUT_OF_BOUNDS])
def test_a_failing_case_is_the_verdict(make_subject, status):
    verdict = verify(make_subject, lambda case: CaseResult(status, "line 3: why"))[0].verdict
    assert verdict.status is status
    assert verdict.message == "line 3: why"


@pytest.mark.parametrize(
    ("field", "status"),
    [("inputs_changed", Status.INPUT_WRITTEN), ("state_changed", Status.STATE_CHANGED)],
)
def test_side_effects_are_named(make_subject, field, status):
    def touches(case):
        return replace(CaseResult(Status.PASSED, outputs=(right(case),)), **{field: ("x0",)})

    verdict = verify(make_subject, touches)[0].verdict
    assert verdict.status is status
    assert "x0" in verdict.message


def test_a_race_is_told_from_a_wrong_value(make_subject):
    def ascending_only(case):
        out = right(case)
        return out if case.order is Order.FORWARD else out * 1.5

    for tier in Tier:
        verdict = verify(make_subject, ascending_only, tier)[0].verdict
        assert verdict.status is Status.RACE


def test_a_read_of_poison_is_told_from_a_wrong_value(make_subject):
    for tier in Tier:
        verdict = verify(make_subject, lambda case: right(case) * (1 + case.poison), tier)[0].verdict
        assert verdict.status is Status.NONDETERMINISTIC
        assert "nothing wrote" in verdict.message


def test_last_bits_that_change_are_nondeterministic(make_subject):
    def atomics(case):
        return right(case) * (1 if case.order is Order.FORWARD else 1 + 2e-7)

    assert verify(make_subject, atomics)[0].verdict.passed  # a few cases in any order do not show it
    verdict = verify(make_subject, atomics, Tier.ACCEPT)[0].verdict
    assert verdict.status is Status.NONDETERMINISTIC


def test_a_call_that_is_not_repeatable_is_nondeterministic(make_subject):
    calls = []

    def drifting(case):
        calls.append(case)
        return right(case) * (1 + 2e-7 * (len(calls) > 1))

    verdict = verify(make_subject, drifting, Tier.ACCEPT)[0].verdict
    assert verdict.status is Status.NONDETERMINISTIC


def test_a_right_result_without_launches_has_no_effect(make_subject):
    verdict = verify(make_subject, right, still=right)[0].verdict
    assert verdict.status is Status.NO_EFFECT


def test_a_part_made_without_launches_has_no_effect(make_subject):
    def partly(case):
        out = torch.full_like(case.activations[0], 1e30 + case.poison * 1e30)
        out[0, 0] = right(case)[0, 0]
        return out

    verdict = verify(make_subject, right, still=partly)[0].verdict
    assert verdict.status is Status.NO_EFFECT
    assert "without any launch" in verdict.message


def test_wrong_shape_is_refused(make_subject):
    verdict = verify(make_subject, lambda case: right(case)[:, 1:])[0].verdict
    assert verdict.status is Status.WRONG_OUTPUT


@pytest.mark.parametrize(("most", "cases"), [(5e7, 14), (0.0, 3)])
def test_without_check_variants_the_verdict_says_so(make_subject, monkeypatch, most, cases):
    monkeypatch.setattr("mkevolve.verify.references.SMALL_FLOPS", most)
    subgraph, seen = make_subject("softmax")
    alone = replace(subgraph, variants=subgraph.variants[:1])
    verifier = Verifier(FunctionBackend(alone, right), load_chip("h200"), Precision.IEEE)
    verdict = verifier.verify(alone, References(alone, seen), SOURCE, Configuration(), Tier.SCREEN).verdict
    assert verdict.passed
    assert any("one size" in note for note in verdict.notes)
    assert verdict.evidence.cases == cases - (most > 0)  # nothing was captured at the target


def test_nothing_compared_is_not_a_pass(make_subject):
    def unwritten(case):
        outputs = (right(case),)
        written = (torch.zeros(outputs[0].shape, dtype=torch.bool),)
        return CaseResult(Status.PASSED, outputs=outputs, written=written)

    verdict = verify(make_subject, unwritten)[0].verdict
    assert verdict.status is Status.WRONG_VALUE
    assert "nothing could be compared" in verdict.message
