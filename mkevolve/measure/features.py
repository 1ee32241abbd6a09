"""What a launch asks of each unit of a processor, from its plan and its sampled traffic."""

import re
from dataclasses import dataclass

from mkevolve.data.chip import Chip
from mkevolve.data.graph import ITEMSIZE
from mkevolve.data.measurement import Traffic
from mkevolve.data.plan import Buffer, Launch
from mkevolve.measure.occupancy import resident

_WGMMA = re.compile(r"wgmma\.\S*?m(\d+)n(\d+)k(\d+)")
_MEMORY = re.compile(r"(ld\.global|st\.global|cp\.async)\.(\d+)$")
_LINE = 128  # bytes that the load and store unit serves at once
_INSTRUCTION = 16  # most bytes one lane moves in one instruction


@dataclass(frozen=True, slots=True)
class Features:
    """Per program where not said otherwise; bytes, floating-point operations and instructions.

    `flops` holds (rate, operations): `rate` is `vector` or a key of the chip's matrix table.
    `dram` and `l2` are bytes of the whole launch. `trips` is how often the loops around memory accesses run.
    """

    programs: int
    resident: int
    warps: int
    threads: int
    stages: int
    spills: int
    asynchronous: bool
    wgmma: bool
    dram: float
    l2: float
    flops: tuple[tuple[str, float], ...]
    shared_bytes: float
    scattered: float  # lanes that write shared memory one after the other
    operand_loads: float  # instructions of all warps that fetch operands for products on the vector units
    transposed: bool  # such a product's operand lies across the order in which lanes read it
    splits: float  # operand elements that are split for three TF32 products
    lines: float
    memory_instructions: float  # of one warp
    instructions: float  # of one warp, without memory
    special: float
    reductions: float
    trips: float
    sites: int
    iterations: float


def features(launch: Launch, traffic: Traffic, buffers: dict[str, Buffer], chip: Chip) -> Features:
    """Extrapolate the sampled programs of one launch to all of it."""
    threads = launch.resources.num_warps * chip.warp_size
    count = max(traffic.programs, 1)
    kinds = {k: _memory(launch, k) for k in ("ld.global", "cp.async", "st.global")}
    loads, trips, sites = _instructions(
        traffic, ("load", "atomic"), threads, kinds["ld.global"] + kinds["cp.async"]
    )
    stores, _, _ = _instructions(traffic, ("store", "atomic"), threads, kinds["st.global"])
    dots = sum(d.count for d in traffic.dots) / count
    work = [(max(w.elements / threads, 1.0), w) for w in traffic.work]
    held = resident(launch.resources, chip)
    return Features(
        programs=traffic.total,
        resident=held,
        warps=launch.resources.num_warps,
        threads=threads,
        stages=max(launch.resources.num_stages, 1),
        spills=launch.resources.spills,
        asynchronous=bool(kinds["cp.async"]),
        wgmma=any(_WGMMA.search(k) for k, _ in launch.instructions),
        dram=_dram(traffic, buffers) + _thrashed(traffic, buffers, chip, held),
        l2=_l2(traffic, launch, chip, held, bool(kinds["cp.async"])),
        flops=_flops(launch, traffic),
        shared_bytes=_operand_bytes(launch, traffic) + _staged(traffic, bool(kinds["cp.async"])),
        scattered=_scattered(traffic, kinds["cp.async"]),
        lines=sum(_lines(a.elements, a.itemsize, a.run) * a.count for a in traffic.accesses) / count,
        operand_loads=_operand_loads(launch, dots),
        transposed=any(a.transposed for a in traffic.accesses if a.kind == "load"),
        splits=_splits(launch, traffic),
        memory_instructions=loads + stores,
        instructions=sum(e * (w.scalar + w.special + w.index) for e, w in work) / count,
        special=sum(e * threads * w.special for e, w in work) / count,
        reductions=traffic.reductions / count,
        trips=trips,
        sites=sites,
        iterations=dots / max(len(launch.dots), 1),
    )


def _memory(launch: Launch, kind: str) -> list[tuple[int, int]]:
    """(bytes a lane, count) of the memory instructions of one kind, as they stand in the binary."""
    found = ((_MEMORY.match(name), count) for name, count in launch.instructions)
    return [(int(m[2]), count) for m, count in found if m is not None and m[1] == kind]


def _instructions(
    traffic: Traffic, kinds: tuple[str, ...], threads: int, static: list[tuple[int, int]]
) -> tuple[float, float, int]:
    """Memory instructions of one warp, how often each of the binary's is run, and how many stand there.

    The width of an instruction is the compiler's choice, so the mix of widths in the binary is taken; without
    a binary's counts, the widest that the access pattern allows.
    """
    chosen = [a for a in traffic.accesses if a.kind in kinds]
    count = max(traffic.programs, 1)
    wanted = sum(max(a.elements, threads) * a.itemsize * a.count for a in chosen) / count
    there = sum(width * number for width, number in static) * threads
    if there:
        sites = sum(number for _, number in static)
        trips = wanted / there
        return trips * sites, trips, sites
    total = 0.0
    for a in chosen:
        width = min(_INSTRUCTION, a.run * a.itemsize, max(a.elements // threads, 1) * a.itemsize)
        total += max(a.elements * a.itemsize / (width * threads), 1.0) * a.count
    return total / count, 1.0, max(len(chosen), 1)


def _lines(elements: int, itemsize: int, run: int) -> float:
    return elements * itemsize / min(_LINE, run * itemsize)


def _dram(traffic: Traffic, buffers: dict[str, Buffer]) -> float:
    """Bytes that memory must give or take once: what the sample touched, scaled, at most all there is."""
    scale = traffic.total / max(traffic.programs, 1)
    total = 0.0
    for b in traffic.buffers:
        size = buffers[b.buffer].spec.nbytes if b.buffer in buffers else float("inf")
        total += min(b.load_unique * scale, size) + min(b.store_unique * scale, size)
    return total


def _thrashed(traffic: Traffic, buffers: dict[str, Buffer], chip: Chip, held: int) -> float:
    """Bytes that programs read again and that L2 has lost by then, because what the running programs touch
    between the two readings is more than it holds.
    """
    count = max(traffic.programs, 1)
    once = sum(b.load_program for b in traffic.buffers)
    again = sum(b.load_sectors for b in traffic.buffers) - once
    running = min(held * chip.processors, traffic.total)
    there = sum(buffers[b.buffer].spec.nbytes for b in traffic.buffers if b.buffer in buffers)
    footprint = min(running * once / count, there)
    return again * traffic.total / count * max(0.0, 1.0 - chip.l2_size / max(footprint, 1.0))


def _l2(traffic: Traffic, launch: Launch, chip: Chip, held: int, asynchronous: bool) -> float:
    """Bytes between the processors and L2. Asynchronous copies pass L1 by; other loads hit it for what their
    programs read again, as far as the programs on a processor fit in what shared memory leaves of it.
    """
    count = max(traffic.programs, 1)
    scale = traffic.total / count
    loads = sum(b.load_sectors for b in traffic.buffers)
    once = sum(b.load_program for b in traffic.buffers)
    room = max(chip.shared_per_processor - held * launch.resources.shared, 16384)
    hit = 0.0 if asynchronous else min(1.0, room / max(held * once / count, 1.0))
    stores = sum(b.store_sectors for b in traffic.buffers)
    return (once + (loads - once) * (1.0 - hit) + stores) * scale


def _flops(launch: Launch, traffic: Traffic) -> tuple[tuple[str, float], ...]:
    precision = {d.operand: d.precision for d in launch.dots}
    result = []
    for operand, flops in traffic.dot_flops:
        each = flops / max(traffic.programs, 1)
        if operand != "float32":
            result.append((operand, each))
        elif precision.get(operand) == "tf32x3":
            result.append(("tf32", 3 * each))
        else:
            result.append(("tf32" if precision.get(operand) == "tf32" else "vector", each))
    return tuple(result)


def _operand_bytes(launch: Launch, traffic: Traffic) -> float:
    """Bytes that the matrix units read from shared memory: every instruction reads both of its tiles."""
    tiles = [(*map(int, m.groups()), c) for k, c in launch.instructions if (m := _WGMMA.search(k))]
    if _on_vector_units(launch):
        return 0.0
    total = 0.0
    for dot in traffic.dots:
        item = ITEMSIZE.get(dot.operand, 1)
        flops = 2.0 * dot.m * dot.n * dot.k * dot.count
        if tiles:
            work = sum(2.0 * m * n * k * c for m, n, k, c in tiles)
            total += flops / work * sum((m + n) * k * item * c for m, n, k, c in tiles)
        else:
            side = max(launch.resources.num_warps, 1) ** 0.5  # warps tile the product in a square
            total += (dot.m + dot.n) * side * dot.k * item * dot.count
    return total / max(traffic.programs, 1)


def _scattered(traffic: Traffic, copies: list[tuple[int, int]]) -> float:
    """Lanes of asynchronous copies that are narrower than memory would allow: the tile is being transposed
    on its way, and the lanes of a warp meet in one bank.
    """
    moved = sum(width * number for width, number in copies)
    loads = [a for a in traffic.accesses if a.kind == "load" and a.run * a.itemsize >= _INSTRUCTION]
    total = sum(a.elements * a.itemsize * a.count for a in loads) / max(traffic.programs, 1)
    narrow = sum(total * width * number / moved / width for width, number in copies if width < _INSTRUCTION)
    return narrow if moved else 0.0


def _on_vector_units(launch: Launch) -> bool:
    return any(d.operand == "float32" and d.precision == "ieee" for d in launch.dots)


def _operand_loads(launch: Launch, dots: float) -> float:
    """Loads of operands by products on the vector units: those in the binary, once an iteration."""
    if not _on_vector_units(launch):
        return 0.0
    static = dict(launch.instructions).get("ld.shared", 0)
    return static * launch.resources.num_warps * dots / max(len(launch.dots), 1)


def _splits(launch: Launch, traffic: Traffic) -> float:
    if not any(d.precision == "tf32x3" for d in launch.dots):
        return 0.0
    fp32 = [d for d in traffic.dots if d.operand == "float32"]
    return sum((d.m + d.n) * d.k * d.count for d in fp32) / max(traffic.programs, 1)


def _staged(traffic: Traffic, asynchronous: bool) -> float:
    if not asynchronous:
        return 0.0
    return sum(b.load_sectors for b in traffic.buffers) / max(traffic.programs, 1)
