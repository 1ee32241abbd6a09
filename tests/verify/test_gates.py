"""Each gate of verification by itself, against Python functions that do what it is there for."""

from dataclasses import replace

import pytest
import torch
from function_backend import SOURCE, FunctionBackend
from verify_subjects import softmax

from mkevolve.data.candidate import Configuration
from mkevolve.data.model import Precision
from mkevolve.data.plan import Dot
from mkevolve.data.verdict import Status, Tier
from mkevolve.interfaces import CaseResult, CompileResult, Order, Protection
from mkevolve.measure.chips import load_chip
from mkevolve.verify.engine import Verifier
from mkevolve.verify.gates import Gate
from mkevolve.verify.references import References


@pytest.fixture(scope="module")
def judged():
    """`judged(function, tier, **changes)`: the verdict on a function as a kernel for one softmax."""
    torch.manual_seed(0)
    subgraph, seen = softmax()
    references = References(subgraph, seen)

    def verdict(function, tier=Tier.SCREEN, source=SOURCE, **changes):
        rules = {name: changes.pop(name) for name in ("off", "deterministic") if name in changes}
        backend = FunctionBackend(subgraph, function, **changes)
        verifier = Verifier(backend, load_chip("h200"), Precision.IEEE, **rules)
        return verifier.verify(subgraph, references, source, Configuration(), tier).verdict

    return verdict


def _right(case):
    return torch.softmax(case.activations[0], -1)


def _last_bits(case):
    return _right(case) * (1 if case.order is Order.FORWARD else 1 + 2e-7)


def _racing(case):
    return _right(case) * (1 if case.order is Order.FORWARD else 1.5)


def _garbage(case):
    return _right(case) * (1 + case.poison)


def _stateful():
    calls = []

    def drifting(case):
        calls.append(case)
        return _right(case) * (1 + 2e-7 * (len(calls) > 1))

    return drifting


def _touching(field):
    return lambda case: replace(CaseResult(Status.PASSED, outputs=(_right(case),)), **{field: ("x0",)})


FAULTS = {
    Gate.VALUE: (lambda: lambda case: _right(case) * 1.1, {}),
    Gate.INPUT: (lambda: _touching("inputs_changed"), {}),
    Gate.STATE: (lambda: _touching("state_changed"), {}),
    Gate.REPEAT: (_stateful, {}),
    Gate.ORDER: (lambda: _racing, {}),
    Gate.POISON: (lambda: _garbage, {}),
    Gate.NOOP: (lambda: _right, {"still": _right}),
    Gate.OUTPUT: (lambda: lambda case: _right(case).double(), {}),
    Gate.PRECISION: (lambda: _right, {"dots": (Dot("float16", "float16", "native"),)}),
    Gate.COMPILE: (lambda: _right, {"compiled": CompileResult(Status.COMPILE_ERROR, "line 3: why")}),
    Gate.DISPATCH: (lambda: _right, {"compiled": CompileResult(Status.STATIC_ERROR, "line 3: why")}),
    Gate.STATIC: (lambda: _right, {"source": SOURCE.replace("return out", "return out + 1")}),
}


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("gate", FAULTS)
def test_each_gate_stops_its_fault_alone_and_nothing_else_does(gate, tier, judged):
    make, changes = FAULTS[gate]
    for off in (frozenset(), frozenset(FAULTS) - {gate}):
        refused = judged(make(), tier, **changes, off=off)
        assert refused.status is not Status.PASSED, off
    if gate is not Gate.REPEAT:  # the other bitwise gates call again, too
        assert judged(make(), tier, **changes, off=frozenset({gate})).passed
    assert judged(make(), tier, **changes, off=frozenset(FAULTS)).passed


@pytest.mark.parametrize("tier", list(Tier))
def test_float_atomics_can_be_allowed(judged, tier):
    assert judged(_last_bits, tier, deterministic=False).passed
    for fault in (_racing, _garbage):
        assert not judged(fault, tier, deterministic=False).passed


def test_where_a_race_shows_is_named(judged):
    evidence = judged(_racing, Tier.ACCEPT).evidence
    assert evidence.tensor == "result 0"
    assert evidence.index == (0, 0)


def test_a_line_is_a_field(judged):
    failing = CaseResult(Status.OUT_OF_BOUNDS, "line 7: load beyond x0", tensor="x0", index=(3, 1))
    evidence = judged(lambda case: failing).evidence
    assert (evidence.line, evidence.tensor, evidence.index) == (7, "x0", (3, 1))


def test_what_is_not_enforced_is_said(judged, monkeypatch):
    lacking = property(lambda backend: Protection((), ("network", "landlock")))
    monkeypatch.setattr(FunctionBackend, "protection", lacking)
    for function in (_right, _racing):
        notes = judged(function).notes
        assert "sandbox: not enforced here: network, landlock" in notes


@pytest.mark.parametrize("wrong", [True, False])
def test_refusing_to_run_without_launches_proves_nothing(judged, wrong):
    def run(case):
        if case.decoy and not wrong:
            return _right(replace(case, activations=(case.activations[0].flip(0) * 0.75,)))
        return _right(case)

    def refusing(case):
        del case
        return CaseResult(Status.RUNTIME_ERROR, "line 9: no launch")

    verdict = judged(run, still=refusing)
    assert verdict.status is (Status.NO_EFFECT if wrong else Status.PASSED)
    assert wrong or any("no launch" in note for note in verdict.notes)
