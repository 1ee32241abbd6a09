"""What ran on a device during a call, by name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Kernels, fills or copies of one name: how often, and for how many microseconds in all.

    `us` is None where launches were counted and not timed.
    """

    name: str
    count: int
    us: float | None = None
