"""What watches the accesses and the work of a launch while the interpreter runs it."""

import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mkevolve.backends.memory import Memory, OutOfBoundsError, Region
from mkevolve.backends.traffic import LaunchCounter

Data = npt.NDArray[Any]
Places = npt.NDArray[np.int64]

OWNER = "owner"  # attribute of a pointer: the region of the tensor that it was made from


@dataclass(frozen=True, slots=True)
class Race:
    """A program read what another one of its launch had stored, or stored another value there; by stamps."""

    kind: str
    region: Region
    byte: int
    second: int
    first: int
    frames: tuple[traceback.FrameSummary, ...]

    def line(self, path: str) -> int | None:
        """The line of the candidate's file."""
        return next((f.lineno for f in reversed(self.frames) if f.filename == path), None)


class AbandonedError(Exception):
    """This program depends on one that was not sampled, and cannot go on."""


class Observer:
    """What watches a launch: the memory it may touch, and a counter while its programs are sampled.

    Without `enforce` a stray load gets poison and a stray store goes nowhere.
    """

    def __init__(self, memory: Memory | None, enforce: bool = True) -> None:
        self.memory = memory
        self.enforce = enforce
        self.counter: LaunchCounter | None = None
        self.counting = False
        self.sampled = False  # only some programs of this launch run
        self.tainted = False  # this program read what an unsampled program should have written
        self.before = 0  # stamps up to here are of earlier launches
        self.stamp = 0  # of this program
        self.acquired = 0  # the last program with an atomic operation: it may have waited for others
        self.released: set[int] = set()  # programs with an atomic operation after their last store
        self.race: Race | None = None  # the first access to what another program of this launch stored
        self._overlaps: list[tuple[Region, Places, Data, Data]] = []  # of a store that is about to happen

    def touch(self, kind: str, handle: Any, mask: Data | None, itemsize: int) -> Data | None:
        """Check one block access through pointers; raises `OutOfBoundsError`.

        Returns which lanes may be accessed at all where strays are let go; None otherwise.
        """
        if self.memory is None:  # a launch that is none of ours
            return None
        within = None
        if not self.enforce:
            within = self.memory.within(handle.data, itemsize)
            mask = within if mask is None else within & (mask != 0)
        self._checked(kind, handle, mask, itemsize, self.memory)
        return within

    def _checked(self, kind: str, handle: Any, mask: Data | None, itemsize: int, memory: Memory) -> None:
        pointers: Data = handle.data
        if mask is not None and mask.dtype != np.bool_:
            mask = mask.astype(np.bool_)  # `a & (row < m)` of a block and a scalar comes as integers
        whole = mask is None or bool(mask.all())
        lanes_mask = None if whole or mask is None else np.broadcast_to(mask, pointers.shape)
        if self.counting and self.counter is not None:
            lanes = self.counter.access(kind, pointers, lanes_mask, itemsize)
        else:
            lanes = pointers.reshape(-1) if lanes_mask is None else pointers[lanes_mask]
        if lanes.size == 0:
            return
        try:
            owner = handle.attr.get(OWNER) if self.enforce else None
            found = memory.locate(lanes, itemsize, kind, owner)
        except OutOfBoundsError as error:
            if self.tainted:  # the address itself may come from a program that did not run
                raise AbandonedError from error
            raise
        for region, addresses in found:
            if self.counting and self.counter is not None:
                self.counter.move(kind, region, addresses, itemsize)
            at = addresses.astype(np.int64) - region.start
            self._order(kind, region, at, itemsize)
            if region.written is not None:
                self._mark(kind, region.written, at, region.partial)

    def _order(self, kind: str, region: Region, at: Places, itemsize: int) -> None:
        """Note stores, and accesses to what another program stored: which of them comes first is chance."""
        if kind == "atomic":
            self.acquired = region.stamp = self.stamp
            self.released.add(self.stamp)
            return
        writers = region.signed(at) if region.stamp > self.before and self.race is None else None
        if writers is not None:
            others = np.flatnonzero((writers > self.before) & (writers != self.stamp))
            if others.size and self.acquired == self.stamp:
                others = others[~np.isin(writers[others], list(self.released))]
            if others.size and kind == "load":
                self._race(kind, region, int(at[others[0]]), int(writers[others[0]]))
            elif others.size:
                held = at[others][:, None] + np.arange(itemsize)
                self._overlaps.append((region, held, region.data[held], writers[others]))
        if kind == "store":
            region.sign(at, self.stamp)
            self.released.discard(self.stamp)

    def stored(self) -> None:
        """A store happened: one that changes what another program stored is a race, the same value none."""
        for region, held, before, writers in self._overlaps:
            changed = np.flatnonzero((region.data[held] != before).any(axis=1))
            if changed.size and self.race is None:
                self._race("store", region, int(held[changed[0], 0]), int(writers[changed[0]]))
        self._overlaps.clear()

    def _race(self, kind: str, region: Region, byte: int, writer: int) -> None:
        self.race = Race(kind, region, byte, self.stamp, writer, tuple(traceback.extract_stack()))

    def _mark(self, kind: str, written: Data, at: Data, partial: bool) -> None:
        """Note what was stored, and whether this program reads what another should have stored."""
        if kind != "store" and partial and not bool(written[at].all()):
            self.tainted = True
        if kind != "load":
            written[at] = not self.tainted and not (kind == "atomic" and self.sampled)

    def work(self, kind: tuple[int, int], elements: int) -> None:
        if self.counting and self.counter is not None:
            self.counter.work(elements, *kind)

    def indexing(self, elements: int, instructions: int) -> None:
        if self.counting and self.counter is not None:
            self.counter.work(elements, index=instructions)

    def reduction(self, elements: int, steps: int) -> None:
        if self.counting and self.counter is not None:
            self.counter.reductions += 1
            self.counter.work(elements, steps)
