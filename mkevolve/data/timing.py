"""What a device clock measures: times of contenders side by side, and the rates that a device reaches."""

from dataclasses import dataclass

from mkevolve.data.measurement import Clock, Measurement
from mkevolve.data.verdict import Status


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one contender, in microseconds a call, on a cold cache.

    `us` is the median over bursts of calls in a CUDA graph, `low` and `high` their 10 % and 90 % quantiles,
    `error` the width of the median's 95 % confidence interval as a share of it. `plain_us` is the median of
    calls whose launches were enqueued one by one, without waiting for the host; 0.0 where it was not
    measured. `digest` is that of the outputs for the case itself. `note` says what is unusual, such as
    `noisy`. With a `status` other than PASSED the contender has no time and `message` says why.
    """

    us: float = 0.0
    low: float = 0.0
    high: float = 0.0
    error: float = 0.0
    plain_us: float = 0.0
    repeats: int = 0
    digest: str = ""
    note: str = ""
    status: Status = Status.PASSED
    message: str = ""

    @property
    def measurement(self) -> Measurement:
        """The time as the ledger keeps it."""
        terms = (("plain", self.plain_us), ("error", self.error), ("repeats", float(self.repeats)))
        return Measurement(Clock.DEVICE, self.us, self.low, self.high, terms)


@dataclass(frozen=True, slots=True)
class Device:
    """The device that measured. `driver` is its version; `memory` in bytes; `l2` likewise."""

    name: str
    capability: str
    driver: str
    memory: int
    l2: int
    processors: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device was seen to reach: bytes a second (read plus written) and FLOP/s by dtype (or `tf32`).

    A dtype that this torch cannot multiply there is left out.
    """

    device: Device
    copy: float
    read: float
    write: float
    matrix: tuple[tuple[str, float], ...]

    @property
    def memory(self) -> float:
        """The best that memory was seen to do, whatever the share of reads."""
        return max(self.copy, self.read, self.write)
