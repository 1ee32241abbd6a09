"""The verifier: cheapest step first, and the first failure ends it. It alone accepts a candidate."""

import math
import re
import time
from dataclasses import dataclass, replace

from mkevolve.data.candidate import Configuration
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.graph import Graph, TensorSpec
from mkevolve.data.measurement import Traffic
from mkevolve.data.model import Precision
from mkevolve.data.plan import LaunchPlan
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.interfaces import Backend, CompileJob, RunJob
from mkevolve.verify.agenda import Agenda, Entry, Purpose, agenda, completed, diagnosis, thinned
from mkevolve.verify.attribution import attribute, foreign_fault
from mkevolve.verify.compiled import judge_plans
from mkevolve.verify.gates import Gate, Rules
from mkevolve.verify.integrity import by_other_means
from mkevolve.verify.judge import Judge
from mkevolve.verify.references import SMALL_FLOPS, References
from mkevolve.verify.static import check, nan_notes, tunables
from mkevolve.verify.work import flops

VERIFIER = "3"
DEADLINE = {Tier.SCREEN: 60.0, Tier.ACCEPT: 300.0}  # seconds for all cases of a candidate
_LINE = re.compile(r"(?:with launches disabled: )?line (\d+)\b")
_PROGRAMS = 256
_TENSOR = re.compile(r"\b(result \d+|(?<=parameter )p\d+|(?<=input )[xq]\d+)\b")
COMPILE_DEADLINE = 10.0  # seconds a variant
_COMPILES = {Status.STATIC_ERROR: Gate.DISPATCH, Status.WRONG_OUTPUT: Gate.OUTPUT}  # by what a child says
_PLANS = {
    Status.PRECISION_ERROR: Gate.PRECISION,
    Status.WRONG_OUTPUT: Gate.OUTPUT,
    Status.NO_EFFECT: Gate.NOOP,
    Status.OUT_OF_BOUNDS: Gate.BOUNDS,
    Status.NONDETERMINISTIC: Gate.ORDER,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with what it was judged by: plans (the target's first), traffic of instances sampled there.

    Both are empty where verification ended before them.
    """

    verdict: Verdict
    plans: tuple[LaunchPlan, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    seconds: float = 0.0

    @property
    def target_plan(self) -> LaunchPlan:
        """The plan at the target sizes; raises ValueError where verification ended before compiling."""
        if not self.plans:
            raise ValueError(f"no plan: {self.verdict.status}")
        return self.plans[0]


class Verifier:
    """Verifies candidates of any subgraph, in children of `backend`; judged in this process alone."""

    def __init__(
        self,
        backend: Backend,
        chip: Chip,
        precision: Precision,
        *,
        off: frozenset[Gate] = frozenset(),
        deterministic: bool = True,
    ) -> None:
        self._backend = backend
        self._chip = chip
        self._precision = precision
        self._rules = Rules(off, deterministic, backend.on_device)
        self._agendas: dict[tuple[int, Tier], tuple[References, Agenda]] = {}

    def verify(
        self,
        subgraph: Subgraph,
        references: References,
        source: str,
        configuration: Configuration,
        tier: Tier,
    ) -> Finding:
        """Verify one configuration of a candidate. Never raises for a candidate's fault."""
        start = time.perf_counter()
        finding = self._steps(subgraph, references, source, configuration, tier)
        verdict = self._noted(finding.verdict, source)
        return replace(finding, verdict=verdict, seconds=time.perf_counter() - start)

    def _noted(self, verdict: Verdict, source: str) -> Verdict:
        """The verdict with the line and tensor that its message names, and what was not enforced here."""
        notes = list(verdict.notes)
        if not self._rules.whole:
            notes += nan_notes(source)
        missing = self._backend.protection.missing
        if missing:
            notes.append(f"sandbox: not enforced here: {', '.join(missing)}")
        line, tensor = verdict.evidence.line, verdict.evidence.tensor
        if line is None and (named := _LINE.match(verdict.message)):
            line = int(named[1])
        if not tensor and (named := _TENSOR.search(verdict.message)):
            tensor = named[1]
        evidence = replace(verdict.evidence, line=line, tensor=tensor)
        return replace(verdict, notes=tuple(notes), evidence=evidence)

    def _steps(
        self,
        subgraph: Subgraph,
        references: References,
        source: str,
        configuration: Configuration,
        tier: Tier,
    ) -> Finding:
        on = self._rules.on
        broken = check(source, subgraph) if on(Gate.STATIC) else None
        refused = broken or _configuration_fault(source, configuration, on(Gate.STATIC))
        if refused is not None:
            return Finding(replace(refused, tier=tier))
        every = tier is Tier.ACCEPT or self._rules.whole
        variants = subgraph.variants if every else subgraph.variants[:1]
        deadline = COMPILE_DEADLINE * len(variants)
        job = CompileJob(source, configuration, tuple(map(_specs, variants)), self._chip, deadline)
        compiled = self._backend.compile(job)
        if compiled.status is not Status.PASSED and on(_COMPILES.get(compiled.status, Gate.COMPILE)):
            step = Step.STATIC if compiled.status is Status.STATIC_ERROR else Step.COMPILE
            return Finding(Verdict(compiled.status, step, tier, compiled.message))
        refused = judge_plans(
            compiled.plans, subgraph, self._precision, source, tier, self._rules.deterministic
        )
        if refused is not None and on(_PLANS[refused.status]):
            return Finding(refused, compiled.plans)
        return self._run(references, source, configuration, tier, compiled.plans)

    def _run(
        self,
        references: References,
        source: str,
        configuration: Configuration,
        tier: Tier,
        plans: tuple[LaunchPlan, ...],
    ) -> Finding:
        plan = self._agenda(references, tier)
        if not self._rules.whole and plans and len(plans[0].launches) == 1:
            plan = thinned(plan, tier)
        if tier is Tier.ACCEPT and not self._rules.whole and _is_small(references.subgraph, plans):
            plan = completed(plan, self._rules)
        cases = tuple(e.case for e in plan.entries)
        job = RunJob(source, configuration, cases, DEADLINE[tier], self._rules.unenforced)
        results = self._backend.run(job)
        judge = Judge(plan, tier, plans, self._rules)
        verdict = judge.verdict(results)
        if verdict.status is Status.WRONG_VALUE and judge.failed is not None:
            verdict = self._diagnosed(verdict, judge.failed, source, configuration)
        if verdict.passed and judge.unwilling:
            verdict = self._decoyed(verdict, judge.unwilling, plan, job)
        if verdict.passed and tier is Tier.ACCEPT and self._rules.whole and plans:
            target = next(e.case for e in plan.entries if e.purpose is Purpose.TARGET)
            verdict = self._profiled(verdict, replace(job, cases=(target,), profile=True), plans[0])
        return Finding(verdict, plans, judge.traffic(results))

    def _decoyed(self, verdict: Verdict, why: str, plan: Agenda, job: RunJob) -> Verdict:
        """Where no call is made without launches: kernels that read other values must give other results."""
        entry = next(e for e in plan.entries if e.purpose is Purpose.NOOP)
        case = replace(entry.case, launch=True, decoy=True)
        (result,) = self._backend.run(replace(job, cases=(case,)))
        if result.status is not Status.PASSED:
            return replace(verdict, status=result.status, message=f"with decoys: {result.message}")
        message = by_other_means(result.outputs, entry.sample.expected)
        if message:
            return replace(verdict, status=Status.NO_EFFECT, message=message)
        note = f"no result without launches ({why}); with other values in the kernels it is another"
        return replace(verdict, notes=(*verdict.notes, note))

    def _profiled(self, verdict: Verdict, job: RunJob, plan: LaunchPlan) -> Verdict:
        """Have the device's own record show that nothing but the candidate's kernels ran."""
        (result,) = self._backend.run(job)
        if result.status is not Status.PASSED:
            return replace(verdict, status=result.status, message=f"while profiled: {result.message}")
        fault = foreign_fault(plan, result.activities) if self._rules.on(Gate.DISPATCH) else ""
        if fault:
            return replace(verdict, status=Status.FOREIGN_KERNEL, message=fault)
        share = attribute(plan, result.activities).own_share
        note = f"own kernels: {100 * share:.0f} % of the device time"
        return replace(verdict, notes=(*verdict.notes, note))

    def _agenda(self, references: References, tier: Tier) -> Agenda:
        key = (id(references), tier)
        known = self._agendas.get(key)
        if known is None or known[0] is not references:
            references.under(self._precision)
            made = agenda(references, tier, self._rules)
            known = self._agendas[key] = (references, made)
        return known[1]

    def _diagnosed(
        self, verdict: Verdict, entry: Entry, source: str, configuration: Configuration
    ) -> Verdict:
        """Tell a wrong value from a race and from a read of what nothing wrote, by calling again."""
        if entry.purpose not in (Purpose.VALUE, Purpose.TARGET) or (
            entry.case.order == "forward" and not entry.case.poison
        ):
            return verdict
        entries = diagnosis(entry)
        cases = tuple(e.case for e in entries)
        job = RunJob(source, configuration, cases, DEADLINE[Tier.SCREEN], self._rules.unenforced)
        found = Judge(Agenda(entries, ()), verdict.tier, (), self._rules).verdict(self._backend.run(job))
        if found.passed:
            message = "the result depends on the order of program instances: they race"
            return replace(verdict, status=Status.RACE, step=Step.INTEGRITY, message=message)
        if found.status is Status.NONDETERMINISTIC:
            return replace(verdict, status=found.status, step=found.step, message=found.message)
        return verdict


def _is_small(subgraph: Subgraph, plans: tuple[LaunchPlan, ...]) -> bool:
    """Whether the interpreter runs the target whole in about a second."""
    programs = sum(math.prod(launch.grid) for launch in plans[0].launches) if plans else 0
    return 0 < programs <= _PROGRAMS and flops(subgraph.target) <= SMALL_FLOPS


def _configuration_fault(source: str, configuration: Configuration, strict: bool) -> Verdict | None:
    table = tunables(source)
    if isinstance(table, Verdict):
        return table if strict else None
    given = dict(configuration.settings)
    if set(given) != {name for name, _ in table}:
        message = f"the configuration ({configuration.text() or 'empty'}) does not fit TUNABLES"
        return Verdict(Status.STATIC_ERROR, Step.STATIC, Tier.SCREEN, message, Evidence())
    return None


def _specs(variant: tuple[str, Graph]) -> tuple[str, tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    name, graph = variant
    return name, tuple(i.spec for i in graph.activations), tuple(i.spec for i in graph.params)
