"""Time and what it was obtained with: environments, chips, traffic, measurements."""

from dataclasses import dataclass
from enum import StrEnum

from mkevolve.data.candidate import Configuration
from mkevolve.data.ids import content_id
from mkevolve.data.verdict import Tier, Verdict


class Clock(StrEnum):
    """`device`: measured. `model`: estimated; the two never mix."""

    DEVICE = "device"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Environment:
    """Records rank only against records of the same environment. `driver` is empty on the model clock."""

    clock: Clock
    chip: str
    driver: str
    torch: str
    triton: str
    precision: str
    verifier: str
    cost_model: str

    @property
    def id(self) -> str:
        return content_id("env", [str(getattr(self, f)) for f in self.__slots__])


@dataclass(frozen=True, slots=True)
class BufferTraffic:
    """Bytes (whole 32-byte sectors) that the sampled programs of one launch moved from and to one buffer.

    `load_sectors` and `store_sectors` are summed over requests. `load_program` counts a sector once a
    program (what a program must fetch at least), `*_unique` once over all sampled programs together.
    """

    buffer: str
    load_sectors: int = 0
    load_program: int = 0
    load_unique: int = 0
    store_sectors: int = 0
    store_unique: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """`count` block requests of one kind (`load`, `store`, `atomic`) and shape.

    Each moves `elements` lanes of `itemsize` bytes, `run` of which lie side by side in memory: what bounds
    the width of the memory instructions. `transposed`: neighbours in memory are not neighbours along the
    block's last axis.
    """

    kind: str
    elements: int
    itemsize: int
    run: int
    count: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class DotShape:
    """`count` matrix products of m x k by k x n tiles of `operand` dtype in the sampled programs."""

    operand: str
    m: int
    n: int
    k: int
    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions an element of all block operations on `elements` elements in the sampled programs.

    `scalar` are ordinary floating-point ones, `special` those of the special function unit, `index` integer
    ones without pointer additions. A program of more threads than elements still issues each once a warp.
    """

    elements: int
    scalar: int
    special: int
    index: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counted in sampled program instances of one launch at one variant, by the interpreter.

    `programs` instances of `total` were run. Bytes are sums over the sampled instances: `load_bytes` and
    `store_bytes` as requested by unmasked lanes, `*_sectors` the distinct 32-byte sectors that each request
    of 32 lanes touches (summed over requests), `unique_*` the bytes of the distinct sectors per buffer over
    all sampled instances together. `flops` counts two per multiply-add of each dot by operand dtype;
    `scalar_ops` elementwise floating-point operations, `special_ops` those of the special function unit,
    `index_ops` integer ones without pointer additions (a division counts as several). `reductions` counts
    block reductions and scans. The last fields split the sums: by buffer, shape of access, shape of dot.
    """

    kernel: str
    programs: int
    total: int
    load_bytes: int
    store_bytes: int
    load_sectors: int
    store_sectors: int
    unique_load_bytes: int
    unique_store_bytes: int
    dot_flops: tuple[tuple[str, int], ...] = ()
    scalar_ops: int = 0
    special_ops: int = 0
    index_ops: int = 0
    reductions: int = 0
    work: tuple[Work, ...] = ()
    buffers: tuple[BufferTraffic, ...] = ()
    accesses: tuple[Access, ...] = ()
    dots: tuple[DotShape, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """A time in microseconds with its spread: 10 % / 90 % quantiles, or the cost model's band.

    `terms` shows what made it up (name, microseconds or a share), for the report.
    """

    clock: Clock
    us: float
    low: float
    high: float
    terms: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One row of the ledger: what was found for (subgraph, candidate, configuration, environment, tier).

    `seconds` is what it cost; budgets are recomputed from these rows. `cases` says what it was verified on
    (see `cases_id`); it is empty in rows of older versions, which count for nothing any more.
    """

    subgraph: str
    candidate: str
    configuration: Configuration
    environment: str
    tier: Tier
    verdict: Verdict
    measurement: Measurement | None
    seconds: float
    cases: str = ""

    @property
    def id(self) -> str:
        return content_id(
            "e",
            [
                self.subgraph,
                self.candidate,
                self.configuration.text(),
                self.environment,
                self.tier.value,
                *([self.cases] if self.cases else []),
            ],
        )
