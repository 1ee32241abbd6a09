"""What the launch plan already shows: precision of matrix products, strides and storage of the results."""

from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision
from mkevolve.data.plan import Launch, LaunchPlan, Wrap
from mkevolve.data.verdict import Evidence, Status, Step, Tier, Verdict
from mkevolve.verify.jit import open_dots
from mkevolve.verify.numeric import spec_fault
from mkevolve.verify.precision import precision_fault
from mkevolve.verify.reader import parse
from mkevolve.verify.source import Violation

_ATOMICS = (
    "floats are added atomically, and the order of programs decides the last bits: store partial sums and add"
    " them in a second launch, or say deterministic=false"
)


def judge_plans(
    plans: tuple[LaunchPlan, ...],
    subgraph: Subgraph,
    precision: Precision,
    source: str,
    tier: Tier,
    deterministic: bool = True,
) -> Verdict | None:
    """Return the verdict on plans that break the contract or the precision policy; None where none does.

    `deterministic` refuses float atomics: a device may add in one order for a thousand calls, and in another
    in the next.
    """
    try:
        undecided = open_dots(parse(source))
    except Violation:  # the rules of the source are not applied
        undecided = ()
    variants = dict(subgraph.variants)
    for plan in plans:
        graph = variants[plan.variant]
        fault = precision_fault(plan, graph, precision, undecided)
        if fault is not None:
            return _refusal(Status.PRECISION_ERROR, tier, plan, *fault)
        wrap = next(((w, launch) for launch in plan.launches for w in launch.wraps), None)
        if wrap is not None:
            return _refusal(Status.OUT_OF_BOUNDS, tier, plan, wrap[0].line, _wraps(*wrap))
        specs = tuple(v.spec for v in graph.output_values)
        wrong = spec_fault(tuple(o.spec for o in plan.outputs), specs) or _aliasing(plan)
        if wrong:
            return Verdict(Status.WRONG_OUTPUT, Step.COMPILE, tier, wrong, Evidence(plan.variant))
        if not plan.launches and any(s.numel for s in specs):
            message = "run launches no kernel here: every grid has a 0, or no branch comes to a launch"
            return Verdict(Status.NO_EFFECT, Step.COMPILE, tier, message, Evidence(plan.variant))
        atomic = [s for launch in plan.launches for s in launch.sums if s.what == "atomic addition"]
        if atomic and deterministic:
            return _refusal(Status.NONDETERMINISTIC, tier, plan, atomic[0].line, _ATOMICS)
    return None


def _refusal(status: Status, tier: Tier, plan: LaunchPlan, line: int | None, message: str) -> Verdict:
    where = f"line {line}" if line else ""
    text = f"{where}: {message}" if where else message
    return Verdict(status, Step.COMPILE, tier, text, Evidence(plan.variant, where=where, line=line))


def _wraps(wrap: Wrap, launch: Launch) -> str:
    return (
        f"kernel {launch.kernel} reaches {wrap.argument} by an offset of 32 bits, which it outgrows at these"
        " sizes: widen the first factor, as in tl.program_id(0).to(tl.int64)"
    )


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
