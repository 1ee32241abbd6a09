"""Estimates the time of a launch plan on a chip that is not here, from its plan and its sampled traffic.

Each unit (memory, L2, matrix units, shared memory, issue slots, ...) gets the time that it alone would need;
a latency term follows one program through its dependent steps. Units overlap imperfectly: the launch takes
their p-norm. The constants are physical, few, and fitted to `tests/calibration`, never per kernel.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from mkevolve.data.chip import Chip
from mkevolve.data.ids import content_id
from mkevolve.data.measurement import Clock, Measurement, Traffic
from mkevolve.data.plan import Buffer, LaunchPlan
from mkevolve.measure.features import Features, features

COST_MODEL = "1"  # of the formulas; their numbers are hashed by `version_on`
BAND = 1.5  # factor to either end of the band: about nine in ten of the calibration set lie inside


@dataclass(frozen=True, slots=True)
class Constants:
    """What the datasheet does not say. Times in microseconds."""

    start: float = 4.0  # of a call, on top of its launches
    program: float = 0.3  # from a free slot to a program's first instruction, and its end
    memory_latency: float = 0.85  # a first access
    cache_latency: float = 0.15  # later accesses of a loop
    loop_latency: float = 0.7  # one stage of an asynchronous pipeline
    reduction: float = 0.125  # of a block across its warps
    cycles: float = 2.8  # from an instruction of a warp to its next, with no other warp
    address: float = 3.0  # instructions around one memory instruction
    line: float = 2.1  # cycles of the load and store unit for each 128-byte line that a request touches
    fill: float = 1.0  # warps a scheduler needs to issue every other cycle
    matrix: float = 0.6  # share of the matrix rate that is reached with operands at hand
    fp32: float = 0.65  # the same of the vector rate, for products on it
    read: float = 1.15  # cycles of one warp's load of operands from shared memory for such a product
    conflict: float = 3.8  # times as many where lanes read across the tile's rows
    split: float = 0.25  # cycles an operand element takes to be split for three TF32 products
    l2: float = 1.3  # share of the table's L2 rate
    scatter: float = 0.55  # cycles a lane of a copy that transposes its tile on the way to shared memory
    stream: float = 1.0  # share of the measured memory rate
    spill: float = 12.0  # bytes of spilled registers a cycle
    spill_loop: float = 0.35  # share of the spilled registers that a loop over products touches each time
    serial: float = 0.4  # how much of the other units' time shows where one program runs alone
    norm: float = 4.5


_SYNCHRONOUS_MATRIX = 0.62  # of the matrix rate, for warp-level instructions where warp-group ones exist
_SHARED_RATE = 128  # bytes a cycle of a processor's shared memory
_SCHEDULERS = 4
_SPECIAL_RATE = 16  # special function results a cycle
DEFAULT = Constants()


def version_on(chip: Chip, constants: Constants = DEFAULT) -> str:
    """The version of estimates for a chip, `1-0123456789ab`: it changes with every number that goes in."""
    numbers = [BAND, _SYNCHRONOUS_MATRIX, _SHARED_RATE, _SCHEDULERS, _SPECIAL_RATE]
    described = {k: v for k, v in asdict(chip).items() if k != "source"}
    return content_id(COST_MODEL, [described, asdict(constants), numbers]).replace("_", "-")


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds that each unit alone would take for one launch."""

    dram: float
    l2: float
    matrix: float
    shared: float
    vector: float
    spills: float
    processor: float
    latency: float


def estimate(
    plan: LaunchPlan, traffic: tuple[Traffic, ...], chip: Chip, constants: Constants = DEFAULT
) -> Measurement:
    """Time of one call of `run` on the model clock: its launches and its fills, one after the other.

    `traffic` has one entry a launch. Raises `ValueError` where it has not.
    """
    if len(traffic) != len(plan.launches):
        raise ValueError(f"{len(plan.launches)} launches but traffic of {len(traffic)}")
    buffers = {b.name: b for b in plan.buffers}
    parts = [
        launch_times(features(launch, sample, buffers, chip), chip, constants)
        for launch, sample in zip(plan.launches, traffic, strict=True)
    ]
    fills = sum(_fill(b, chip, constants) for b in plan.buffers if b.fill is not None)
    us = constants.start + fills + sum(total(p, chip, constants) for p in parts)
    return Measurement(Clock.MODEL, us, us / BAND, us * BAND, _terms(parts, fills, chip))


def launch_times(f: Features, chip: Chip, c: Constants) -> Times:
    """Time of each unit, as if it were alone."""
    cycle = 1e6 / chip.clock_hz
    busiest = -(-f.programs // chip.processors)  # programs of the busiest processor
    together = min(f.resident, busiest)
    warps = together * f.warps / _SCHEDULERS
    issued = (f.instructions + f.memory_instructions * (1 + c.address)) * f.warps
    matrix = sum(_product_cycles(rate, flops, f, chip, c) for rate, flops in f.flops)
    shared = f.shared_bytes / _SHARED_RATE + f.scattered * c.scatter
    shared += f.operand_loads * c.read * (c.conflict if f.transposed else 1.0)
    issue = issued / _SCHEDULERS * (1 + c.fill / warps)
    vector = max(issue, f.special / _SPECIAL_RATE, f.lines * c.line)
    rounds = 1 + c.spill_loop * max(f.iterations - 1.0, 0.0)
    spilled = 2 * f.spills * f.threads * rounds / c.spill
    longest, summed = max(matrix, shared, vector), matrix + shared + vector
    processor = longest + (summed - longest) * min(c.serial / together, 1.0) + spilled + f.splits * c.split
    waves = max(f.programs / (chip.processors * f.resident), 1.0)
    return Times(
        dram=f.dram / (chip.dram_measured * c.stream) * 1e6,
        l2=f.l2 / (chip.l2_bytes * c.l2) * 1e6,
        matrix=matrix * busiest * cycle,
        shared=shared * busiest * cycle,
        vector=vector * busiest * cycle,
        spills=spilled * busiest * cycle,
        processor=processor * busiest * cycle,
        latency=waves * _program_latency(f, chip, c),
    )


def total(t: Times, chip: Chip, c: Constants) -> float:
    """Microseconds of one launch."""
    overlapped: float = sum(x**c.norm for x in (t.dram, t.l2, t.processor, t.latency)) ** (1 / c.norm)
    return chip.launch_us + overlapped


def _product_cycles(rate: str, flops: float, f: Features, chip: Chip, c: Constants) -> float:
    per_cycle = chip.processors * chip.clock_hz
    if rate == "vector":
        return flops / (dict(chip.vector)["float32"] * c.fp32 / per_cycle)
    share = c.matrix if f.wgmma or chip.arch < "90" else c.matrix * _SYNCHRONOUS_MATRIX
    rates = dict(chip.vector) | dict(chip.matrix)
    return flops / (rates.get(rate, min(rates.values())) * share / per_cycle)


def _program_latency(f: Features, chip: Chip, c: Constants) -> float:
    """One program alone: start, first access, the steps of its loops, instructions, reductions."""
    issued = f.instructions + f.memory_instructions * (1 + c.address)
    straight = c.program + c.memory_latency + issued * c.cycles * 1e6 / chip.clock_hz
    straight += f.reductions * c.reduction
    if f.asynchronous:
        straight += f.splits * c.split * 1e6 / chip.clock_hz
        return straight + f.iterations * c.loop_latency / max(f.stages - 1, 1)
    return straight + max(f.trips - 1.0, 0.0) * min(f.sites, 3) * c.cache_latency


def _fill(buffer: Buffer, chip: Chip, c: Constants) -> float:
    return chip.launch_us + buffer.spec.nbytes / (chip.dram_measured * c.stream) * 1e6


def _terms(parts: Iterable[Times], fills: float, chip: Chip) -> tuple[tuple[str, float], ...]:
    parts = tuple(parts)
    sums = [(name, sum(getattr(p, name) for p in parts)) for name in Times.__dataclass_fields__]
    return (("launches", len(parts) * chip.launch_us), ("fills", fills), *sums)
