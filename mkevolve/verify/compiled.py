"""What the launch plan already shows: precision of matrix products, strides and storage of the results."""

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.data.plan import Dot, LaunchPlan
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.verify.jit import open_dots
from mkevolve.verify.numeric import spec_fault
from mkevolve.verify.reader import parse
from mkevolve.verify.source import Violation

_ALLOWED = {
    Precision.IEEE: frozenset({"ieee", "tf32x3"}),
    Precision.TF32: frozenset({"ieee", "tf32x3", "tf32"}),
}
_WIDE = frozenset({"float32", "float64", "int32"})


def judge_plans(
    plans: tuple[LaunchPlan, ...], subgraph: Subgraph, precision: Precision, source: str, tier: Tier
) -> Verdict | None:
    """Return the verdict on plans that break the contract or the precision policy; None where none does."""
    try:
        undecided = open_dots(parse(source))
    except Violation:  # the rules of the source are not applied
        undecided = ()
    variants = dict(subgraph.variants)
    for plan in plans:
        for launch in plan.launches:
            for dot in launch.dots:
                fault = _precision_fault(dot, precision, undecided)
                if fault:
                    line = f"line {dot.line}" if dot.line else launch.kernel
                    evidence = Evidence(plan.variant, where=line)
                    return Verdict(Status.PRECISION_ERROR, Step.COMPILE, tier, f"{line}: {fault}", evidence)
        specs = tuple(v.spec for v in variants[plan.variant].output_values)
        fault = spec_fault(tuple(o.spec for o in plan.outputs), specs) or _aliasing(plan)
        if fault:
            return Verdict(Status.WRONG_OUTPUT, Step.COMPILE, tier, fault, Evidence(plan.variant))
        if not plan.launches and any(s.numel for s in specs):
            message = "run launches no kernel"
            return Verdict(Status.NO_EFFECT, Step.COMPILE, tier, message, Evidence(plan.variant))
    return None


def _precision_fault(dot: Dot, precision: Precision, undecided: tuple[int, ...]) -> str:
    if dot.accumulator not in _WIDE:
        return f"tl.dot accumulates in {dot.accumulator}; float32 is the least"
    if dot.operand != "float32":
        return ""
    if dot.line in undecided:
        return "tl.dot on float32 leaves input_precision open: write it out"
    if dot.precision not in _ALLOWED[precision]:
        allowed = " or ".join(sorted(_ALLOWED[precision]))
        return f"tl.dot on float32 in {dot.precision}, under precision={precision}: use {allowed}"
    return ""


def _aliasing(plan: LaunchPlan) -> str:
    seen: set[str] = set()
    for number, output in enumerate(plan.outputs):
        if output.spec.numel == 0:
            continue
        if not output.buffer.startswith("t"):
            return f"result {number} is a view of the input {output.buffer}"
        if output.buffer in seen:
            return f"result {number} shares its storage with another result"
        seen.add(output.buffer)
    return ""
