"""Counts what sampled program instances of a launch move and compute."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mkevolve.backends.memory import Addresses, Region
from mkevolve.data.measurement import Access, BufferTraffic, DotShape, Traffic, Work

SECTOR = 32  # bytes
_SHIFT = np.uint64(5)
WARP = 32

Stamps = npt.NDArray[np.int32]


class _BufferCount:
    """Sectors of one buffer; a stamp array remembers the last program that touched each."""

    def __init__(self, region: Region) -> None:
        self.first = region.start >> 5
        self.sectors = (region.end >> 5) - self.first + 1
        self.load_sectors = self.load_program = self.load_unique = 0
        self.store_sectors = self.store_unique = 0
        self._loads: Stamps | None = None
        self._stores: Stamps | None = None

    def load(self, sectors: Addresses, requests: int, program: int) -> None:
        self._loads = np.zeros(self.sectors, np.int32) if self._loads is None else self._loads
        at = np.unique(sectors).astype(np.int64) - self.first
        stamps = self._loads[at]
        self.load_sectors += requests
        self.load_program += int(np.count_nonzero(stamps != program))
        self.load_unique += int(np.count_nonzero(stamps == 0))
        self._loads[at] = program

    def store(self, sectors: Addresses, requests: int) -> None:
        self._stores = np.zeros(self.sectors, np.int32) if self._stores is None else self._stores
        at = np.unique(sectors).astype(np.int64) - self.first
        self.store_sectors += requests
        self.store_unique += int(np.count_nonzero(self._stores[at] == 0))
        self._stores[at] = 1

    def result(self, name: str) -> BufferTraffic:
        return BufferTraffic(
            name,
            self.load_sectors * SECTOR,
            self.load_program * SECTOR,
            self.load_unique * SECTOR,
            self.store_sectors * SECTOR,
            self.store_unique * SECTOR,
        )


def memory_order(pointers: Addresses) -> tuple[Sequence[int], int]:
    """Axes of a block of addresses from the widest step to the narrowest, as the compiler orders lanes, and
    the narrowest step in bytes. An axis along which nothing changes counts as the widest.
    """
    steps = []
    for axis, size in enumerate(pointers.shape):
        step = 0
        if size > 1:
            origin: list[int | slice] = [0] * pointers.ndim
            origin[axis] = 1
            step = abs(int(pointers[tuple(origin)]) - int(pointers[(0,) * pointers.ndim]))
        steps.append(step or 1 << 62)
    order = sorted(range(len(steps)), key=lambda a: (-steps[a], a))
    return order, steps[order[-1]] if order else 0


def contiguous_run(ordered: Addresses, itemsize: int) -> int:
    """How many neighbouring lanes of an ordered block lie side by side in memory, from the first lane on."""
    flat = ordered.reshape(-1)
    if flat.size == 1:
        return 1
    if int(flat[-1]) - int(flat[0]) == (flat.size - 1) * itemsize:
        return int(flat.size)
    row = ordered.reshape(-1, ordered.shape[-1])[0]
    breaks = np.flatnonzero(row[1:] - row[:-1] != np.uint64(itemsize))
    return int(breaks[0]) + 1 if breaks.size else int(row.size)


class LaunchCounter:
    """Traffic and operations of one launch. `program` is set before each instance, counted from 1."""

    def __init__(self, kernel: str, total: int) -> None:
        self.kernel = kernel
        self.total = total
        self.program = 0
        self.reductions = 0
        self._work: dict[int, list[int]] = {}
        self._load_bytes = self._store_bytes = 0
        self._buffers: dict[str, _BufferCount] = {}
        self._accesses: Counter[tuple[str, int, int, int, bool]] = Counter()
        self._dots: Counter[tuple[str, int, int, int]] = Counter()

    def access(
        self, kind: str, pointers: Addresses, mask: npt.NDArray[np.bool_] | None, itemsize: int
    ) -> Addresses:
        """Count one block request; returns the addresses of unmasked lanes in memory order."""
        transposed = False
        if pointers.ndim > 1:
            order, _ = memory_order(pointers)
            transposed = list(order) != list(range(pointers.ndim))
            if transposed:
                pointers = pointers.transpose(order)
                mask = None if mask is None else mask.transpose(order)
        run = contiguous_run(pointers, itemsize)
        self._accesses[kind, int(pointers.size), itemsize, run, transposed] += 1
        return pointers.reshape(-1) if mask is None else pointers[mask]

    def move(self, kind: str, region: Region, lanes: Addresses, itemsize: int) -> None:
        """Count the unmasked lanes of a request that lie in one buffer, in memory order."""
        sectors = lanes >> _SHIFT
        new = np.ones(sectors.size, np.bool_)
        new[1:] = sectors[1:] != sectors[:-1]
        new[::WARP] = True
        touched = sectors[new]
        count = self._buffers.get(region.name)
        if count is None:
            count = self._buffers[region.name] = _BufferCount(region)
        if kind != "store":
            self._load_bytes += lanes.size * itemsize
            count.load(touched, touched.size, self.program)
        if kind != "load":
            self._store_bytes += lanes.size * itemsize
            count.store(touched, touched.size)

    def work(self, elements: int, scalar: int = 0, special: int = 0, index: int = 0) -> None:
        """Count a block operation of so many instructions an element."""
        sums = self._work.setdefault(elements, [0, 0, 0])
        sums[0] += scalar
        sums[1] += special
        sums[2] += index

    def dot(self, operand: str, m: int, n: int, k: int, count: int = 1) -> None:
        self._dots[operand, m, n, k] += count

    def result(self) -> Traffic:
        """The sums so far."""
        buffers = tuple(count.result(name) for name, count in sorted(self._buffers.items()))
        work = tuple(Work(elements, *sums) for elements, sums in sorted(self._work.items()))
        flops: Counter[str] = Counter()
        for (operand, m, n, k), count in self._dots.items():
            flops[operand] += 2 * m * n * k * count
        return Traffic(
            kernel=self.kernel,
            programs=self.program,
            total=self.total,
            load_bytes=self._load_bytes,
            store_bytes=self._store_bytes,
            load_sectors=sum(b.load_sectors for b in buffers) // SECTOR,
            store_sectors=sum(b.store_sectors for b in buffers) // SECTOR,
            unique_load_bytes=sum(b.load_unique for b in buffers),
            unique_store_bytes=sum(b.store_unique for b in buffers),
            dot_flops=tuple(sorted(flops.items())),
            scalar_ops=sum(w.elements * w.scalar for w in work),
            special_ops=sum(w.elements * w.special for w in work),
            index_ops=sum(w.elements * w.index for w in work),
            reductions=self.reductions,
            work=work,
            buffers=buffers,
            accesses=tuple(Access(*key[:4], count, key[4]) for key, count in sorted(self._accesses.items())),
            dots=tuple(DotShape(*key, count) for key, count in sorted(self._dots.items())),
        )
