"""Whose kernels a device ran: the launch plan says what is the candidate's own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve.data.activity import Activity
from mkevolve.data.plan import LaunchPlan

# What torch runs on a device to fill an allocation of `zeros` or `full`, as CUPTI names it.
_FILLS = ("Memset", "FillFunctor")


@dataclass(frozen=True, slots=True)
class Attribution:
    """Device time of one call in microseconds: in the plan's kernels, in the fills of the plan's allocations,
    and in all else, by name.
    """

    own_us: float
    fill_us: float
    foreign: tuple[Activity, ...]

    @property
    def own_share(self) -> float:
        """Share of the time in own kernels; 1 where the device did nothing."""
        total = self.own_us + self.fill_us + sum(a.us or 0.0 for a in self.foreign)
        return self.own_us / total if total else 1.0


def attribute(plan: LaunchPlan, activities: Sequence[Activity]) -> Attribution:
    """Split what was profiled in one call. More fills than the plan holds are foreign."""
    own = {launch.kernel for launch in plan.launches}
    fills = [a for a in activities if a.name not in own and any(mark in a.name for mark in _FILLS)]
    allowed = sum(b.fill is not None for b in plan.buffers)
    if sum(a.count for a in fills) > allowed:
        fills = []
    foreign = tuple(a for a in activities if a.name not in own and a not in fills)
    return Attribution(
        sum(a.us or 0.0 for a in activities if a.name in own), sum(a.us or 0.0 for a in fills), foreign
    )


def foreign_fault(plan: LaunchPlan, activities: Sequence[Activity]) -> str:
    """Why what CUPTI saw is not the candidate's own work; empty where it is."""
    found = attribute(plan, activities)
    if found.foreign:
        names = ", ".join(_short(a.name) for a in found.foreign[:3])
        more = f" and {len(found.foreign) - 3} more" if len(found.foreign) > 3 else ""
        return f"the device ran what the launch plan does not hold: {names}{more}"
    return launch_fault(plan, [a for a in activities if a.name in {x.kernel for x in plan.launches}])


def launch_fault(plan: LaunchPlan, activities: Sequence[Activity]) -> str:
    """How the launches of one call differ from the plan's, by kernel name; empty where they do not."""
    planned = Counter(launch.kernel for launch in plan.launches)
    ran = Counter({a.name: a.count for a in activities})
    for name in sorted(planned.keys() | ran.keys()):
        if planned[name] != ran[name]:
            return f"kernel {_short(name)} was launched {ran[name]} times, {planned[name]} by the launch plan"
    return ""


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."
