"""From the results of a candidate's cases to its verdict."""

from dataclasses import replace

import torch

from mkevolve.data.measurement import Traffic
from mkevolve.data.plan import LaunchPlan
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.interfaces import CaseResult
from mkevolve.verify.agenda import Agenda, Entry, Purpose
from mkevolve.verify.attribution import launch_fault
from mkevolve.verify.gates import Gate, Rules
from mkevolve.verify.integrity import first_difference, side_effects, without_launches
from mkevolve.verify.numeric import Comparison, compare, shape_fault

_STEPS = {
    Status.STATIC_ERROR: Step.STATIC,
    Status.OUT_OF_BOUNDS: Step.INTEGRITY,
    Status.INPUT_WRITTEN: Step.INTEGRITY,
    Status.RACE: Step.INTEGRITY,
    Status.NONDETERMINISTIC: Step.INTEGRITY,
    Status.STATE_CHANGED: Step.INTEGRITY,
}
_ALL = Rules()
_EFFECTS = {Status.INPUT_WRITTEN: Gate.INPUT, Status.STATE_CHANGED: Gate.STATE}
_REFUSALS = frozenset({Status.RUNTIME_ERROR, Status.WRONG_OUTPUT, Status.STATIC_ERROR})
_BITWISE = {
    Purpose.REPEAT: (Status.NONDETERMINISTIC, "the same call gives another result"),
    Purpose.POISON: (
        Status.NONDETERMINISTIC,
        "reads memory that nothing wrote: the result depends on what an allocation held",
    ),
}


class Judge:
    """Judges one run of an agenda. `plans` are the launch plans, the target's first, where they are known.

    After a refusal `failed` is the entry that decided. `unwilling` says why a call without launches gave no
    result, where it gave none: then nothing is known about what made the others.
    """

    def __init__(
        self, agenda: Agenda, tier: Tier, plans: tuple[LaunchPlan, ...] = (), rules: Rules = _ALL
    ) -> None:
        self._agenda = agenda
        self._tier = tier
        self._plans = plans
        self._rules = rules
        self._compared = 0
        self._cases = 0
        self._worst = Comparison(Status.PASSED, error=0.0, allowed=0.0)
        self._still: list[tuple[torch.Tensor, ...]] = []
        self.failed: Entry | None = None
        self.unwilling = ""

    def verdict(self, results: tuple[CaseResult, ...]) -> Verdict:
        """Judge the results in order; the first failure decides."""
        for entry, result in zip(self._agenda.entries, results, strict=False):
            self._cases += 1
            refusal = self._entry(entry, result, results)
            if refusal is not None:
                self.failed = entry
                return refusal
        if self._compared == 0 and self._rules.on(Gate.VALUE) and not self._empty():
            return self._refuse(None, Status.WRONG_VALUE, Step.NUMERIC, "nothing could be compared")
        evidence = Evidence(
            error=self._worst.error,
            allowed=self._worst.allowed,
            compared=self._compared,
            cases=self._cases,
            replaced=self._agenda.replaced,
        )
        notes = (*self._agenda.notes, *self._sampled(results))
        if self._compared == 0:
            notes = (*notes, "nothing compared: every result is empty")
        return Verdict(Status.PASSED, Step.INTEGRITY, self._tier, "", evidence, notes)

    def traffic(self, results: tuple[CaseResult, ...]) -> tuple[Traffic, ...]:
        """What was counted in the sampled instances at the target."""
        for entry, result in zip(self._agenda.entries, results, strict=False):
            if entry.purpose is Purpose.TARGET:
                return result.traffic
        return ()

    def _empty(self) -> bool:
        """Whether there is no element that could have been compared."""
        samples = [e.sample for e in self._agenda.entries]
        return all(s.expected and not any(e.spec.numel for e in s.expected) for s in samples)

    def _sampled(self, results: tuple[CaseResult, ...]) -> tuple[str, ...]:
        counts = [(t.programs, t.total) for t in self.traffic(results)]
        ran, total = sum(c[0] for c in counts), sum(c[1] for c in counts)
        return (f"target: {ran} of {total} program instances",) if ran < total else ()

    def _entry(self, entry: Entry, result: CaseResult, results: tuple[CaseResult, ...]) -> Verdict | None:
        if result.status is not Status.PASSED:
            return self._failed(entry, result)
        for status, message in side_effects(result):
            if self._rules.on(_EFFECTS[status]):
                where = (result.tensor, result.index or None)
                return _placed(self._refuse(entry, status, Step.INTEGRITY, message), *where)
        fault = self._launched(entry, result)
        if fault:
            return self._refuse(entry, Status.FOREIGN_KERNEL, Step.INTEGRITY, fault)
        specs = tuple(e.spec for e in entry.sample.expected)
        fault = shape_fault(result.outputs, specs) if specs else ""
        if fault and entry.purpose is Purpose.NOOP:
            self.unwilling = fault
            return None
        if fault and self._rules.on(Gate.OUTPUT):
            return self._refuse(entry, Status.WRONG_OUTPUT, Step.NUMERIC, fault)
        if entry.purpose is Purpose.NOOP:
            return self._noop(entry, result)
        refusal = self._bitwise(entry, result, results) if entry.same_as is not None else None
        return refusal or self._values(entry, result)

    def _failed(self, entry: Entry, result: CaseResult) -> Verdict | None:
        """A call that did not end well. Without launches that proves nothing: it may have seen that."""
        if entry.purpose is Purpose.NOOP and result.status in _REFUSALS:
            self.unwilling = result.message
            return None
        step = _STEPS.get(result.status, Step.NUMERIC)
        prefix = "with launches disabled: " if entry.purpose is Purpose.NOOP else ""
        refusal = self._refuse(entry, result.status, step, prefix + result.message)
        return _placed(refusal, result.tensor, result.index or None)

    def _launched(self, entry: Entry, result: CaseResult) -> str:
        """How what ran on a device differs from the launch plan."""
        plan = next((p for p in self._plans if p.variant == entry.case.variant), None)
        if plan is None or not (result.activities and entry.case.launch and self._rules.on(Gate.DISPATCH)):
            return ""
        return launch_fault(plan, result.activities)

    def _values(self, entry: Entry, result: CaseResult) -> Verdict | None:
        if not entry.sample.expected or not self._rules.on(Gate.VALUE):
            return None
        shapes = [tuple(o.shape) for o in result.outputs]
        if shapes != [e.spec.shape for e in entry.sample.expected]:
            return None  # where the gate of outputs is off: no element is known to be another's
        found = compare(result.outputs, entry.sample.expected, result.written)
        self._compared += found.compared
        if found.status is not Status.PASSED:
            return self._refuse(entry, found.status, Step.NUMERIC, found.message, found)
        if _tightness(found) > _tightness(self._worst):
            self._worst = found
        return None

    def _bitwise(self, entry: Entry, result: CaseResult, results: tuple[CaseResult, ...]) -> Verdict | None:
        assert entry.same_as is not None
        where = first_difference(results[entry.same_as].outputs, result.outputs, result.written)
        if where is None:
            return None
        found = compare(result.outputs, entry.sample.expected, result.written, explain=False)
        right = found.status is Status.PASSED
        if right and not self._rules.deterministic:
            return None
        if entry.purpose in _BITWISE:
            status, message = _BITWISE[entry.purpose]
        elif right:
            status = Status.NONDETERMINISTIC
            message = "the last bits depend on the order of program instances (a float atomic?)"
        else:
            status, message = Status.RACE, "the result depends on the order of program instances: they race"
        tensor, index = f"result {where[0]}", where[1]
        refusal = self._refuse(
            entry, status, Step.INTEGRITY, f"{message}; first at {tensor} at {list(index)}"
        )
        return _placed(refusal, tensor, index)

    def _noop(self, entry: Entry, result: CaseResult) -> Verdict | None:
        self._still.append(result.outputs)
        if len(self._still) < 2 or not entry.sample.expected:
            return None
        message = without_launches(self._still[0], self._still[1], entry.sample.expected)
        return self._refuse(entry, Status.NO_EFFECT, Step.INTEGRITY, message) if message else None

    def _refuse(
        self,
        entry: Entry | None,
        status: Status,
        step: Step,
        message: str,
        found: Comparison | None = None,
    ) -> Verdict:
        sample = entry.sample if entry is not None else None
        difference = found.difference if found else None
        evidence = Evidence(
            variant=sample.variant if sample else None,
            distribution=sample.distribution.value if sample else None,
            seed=sample.seed if sample else None,
            error=found.error if found else None,
            allowed=found.allowed if found else None,
            compared=self._compared,
            cases=self._cases,
            where=difference.text if difference else "",
            tensor=f"result {found.result}" if found and found.result is not None else "",
            index=difference.index if difference else None,
            share=difference.share if difference else None,
            pattern=difference.pattern if difference else "",
            replaced=self._agenda.replaced,
        )
        return Verdict(status, step, self._tier, message, evidence)


def _placed(verdict: Verdict, tensor: str, index: tuple[int, ...] | None) -> Verdict:
    return replace(verdict, evidence=replace(verdict.evidence, tensor=tensor, index=index))


def _tightness(found: Comparison) -> float:
    return (found.error or 0.0) / found.allowed if found.allowed else -1.0
