"""Whether a measured time can be true: no kernel on a cold cache beats the chip."""

from dataclasses import dataclass
from enum import StrEnum

from mkevolve.data.chip import Chip
from mkevolve.measure.roofline import Roofline

# A datasheet's rates are nominal: boost clocks and rounding reach a little beyond, never a quarter.
_MARGIN = 0.8


class Plausibility(StrEnum):
    """What a measured time is worth."""

    PLAUSIBLE = "plausible"
    SUSPICIOUS = (
        "suspicious"  # beats what this chip was seen to reach: to be measured again, in a fresh process
    )
    IMPOSSIBLE = "impossible"  # beats the datasheet: no measurement


@dataclass(frozen=True, slots=True)
class Judgement:
    """`floor_us` is the least possible time, `reached_us` what the chip has been seen to reach."""

    plausibility: Plausibility
    floor_us: float
    reached_us: float
    message: str = ""


def judge(us: float, bound: Roofline, chip: Chip) -> Judgement:
    """Judge a time that was measured with cold inputs against the bound of the same subgraph on `chip`.

    Impossible: faster than 0.8 of the datasheet's bound. Suspicious: faster than the same work takes at the
    rates that were measured on the chip.
    """
    floor = _MARGIN * bound.us
    memory = bound.memory_us * chip.dram_bytes / chip.dram_measured
    reached = max(memory, bound.compute_us / chip.matrix_reached)
    if not us > 0.0 or us < floor:
        message = f"{us:.3g} us is impossible: {chip.name} needs {floor:.3g} us at least ({bound.limit})"
        return Judgement(Plausibility.IMPOSSIBLE, floor, reached, message)
    if us < reached:
        message = f"{us:.3g} us beats the {reached:.3g} us that {chip.name} was seen to reach ({bound.limit})"
        return Judgement(Plausibility.SUSPICIOUS, floor, reached, message)
    return Judgement(Plausibility.PLAUSIBLE, floor, reached)
