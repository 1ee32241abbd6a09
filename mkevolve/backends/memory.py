"""Tensors that a candidate may touch, between poisoned margins, and every access checked against them."""

import bisect
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from mkevolve.backends.pages import Pages
from mkevolve.backends.poison import spoil, unfilled

Bytes = npt.NDArray[np.uint8]
Addresses = npt.NDArray[np.uint64]

MARGIN = 4096  # poisoned bytes on each side; a multiple of every alignment that kernels assume
_APART = 1 << 26  # most bytes of address space kept free on each side: strays must not land in another tensor
_ALIGNMENT = 256
_SLIDES = 7  # places that a tensor of the same size takes in turn


class OutOfBoundsError(Exception):
    """An address outside every tensor that the candidate was given or allocated.

    `tensor` is the nearest one, `index` the element of it, counted in memory from its first; `program` is
    the program instance, once known.
    """

    def __init__(self, message: str, tensor: str = "", index: int | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.index = index
        self.program: tuple[int, ...] | None = None

    def __str__(self) -> str:
        where = f" (program {self.program})" if self.program is not None else ""
        return super().__str__() + where


@dataclass(slots=True)
class Region:
    """The storage of one tensor. `source` holds the bytes that an input must keep; None for allocations.

    `written` marks the first byte of each stored element once `Memory.track` is set; `writers` holds for
    each element the stamp of the program that stored it last, `stamp` is the highest one.
    """

    name: str
    like: torch.Tensor  # of its shape, strides and dtype; on no memory
    pages: Pages
    raw: Bytes  # margin, data, margin
    size: int
    margin: Bytes
    source: Bytes | None = None
    start: int = 0
    written: npt.NDArray[np.bool_] | None = None
    partial: bool = field(default=False)  # a launch that ran only some programs stored here
    writers: npt.NDArray[np.int32] | None = None
    stamp: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def data(self) -> Bytes:
        return self.raw[MARGIN : MARGIN + self.size]

    def margins_intact(self) -> bool:
        low, high = self.raw[:MARGIN], self.raw[MARGIN + self.size :]
        return bool((low == self.margin).all() and (high == self.margin).all())

    def change(self) -> int | None:
        """The first byte of an input that differs from what was placed; None where none does."""
        if self.source is None or np.array_equal(self.data, self.source):
            return None
        return int(np.flatnonzero(self.data != self.source)[0])

    def sign(self, at: npt.NDArray[np.int64], stamp: int) -> None:
        """Note who stores at some bytes. Stamps grow from program to program of a call."""
        width = self.like.element_size()
        if self.writers is None:
            self.writers = np.zeros(self.size // width + 1, dtype=np.int32)
        self.writers[at // width] = stamp
        self.stamp = stamp

    def signed(self, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
        """The stamps at some bytes; None where nothing was stored."""
        return None if self.writers is None else self.writers[at // self.like.element_size()]

    def index(self, byte: int) -> tuple[int, ...]:
        """The index of the element that holds a byte; of the nearest before it where that is a gap."""
        left, found = byte // self.like.element_size(), [0] * self.like.dim()
        strides = self.like.stride()
        for axis in sorted(range(self.like.dim()), key=lambda a: -strides[a]):
            if strides[axis]:
                found[axis] = min(left // strides[axis], self.like.shape[axis] - 1)
                left -= found[axis] * strides[axis]
        return tuple(found)


def extent(tensor: torch.Tensor) -> int:
    """Number of elements from the first to the last one in memory."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((s - 1) * t for s, t in zip(tensor.shape, tensor.stride(), strict=True))


def flat_bytes(tensor: torch.Tensor) -> Bytes:
    """The bytes between a tensor's first and last element (a view where torch allows it)."""
    flat = tensor.detach().as_strided((extent(tensor),), (1,), tensor.storage_offset())
    array: Bytes = flat.view(torch.uint8).numpy()
    return array


def spread(flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of `flat` in which each element of `like` occurs once, those that indices share included."""
    sizes = [1 if stride == 0 else size for size, stride in zip(like.shape, like.stride(), strict=True)]
    return flat.as_strided(sizes, like.stride())


def detached_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same shape and strides, and storage of its own."""
    if tensor.numel() == 0:
        return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    flat = torch.from_numpy(flat_bytes(tensor).copy()).view(tensor.dtype)
    return flat.as_strided(tuple(tensor.shape), tensor.stride(), 0)


class Memory:
    """Every tensor of one call. `track` asks for maps of the stored elements.

    `serial` numbers the calls of a process: tensors of the same sizes lie where they lay before in every
    second call, and elsewhere in the others, so that content and address vary apart from each other.
    """

    def __init__(self, pattern: int, track: bool, serial: int = 0) -> None:
        self.pattern = pattern
        self.track = track
        self.sampled = False  # some launch ran only some of its programs
        self.regions: list[Region] = []
        self._slide = serial // 2 % _SLIDES * _ALIGNMENT
        self._starts: list[int] = []
        self._shut = False

    def shut(self) -> None:
        """Let nobody touch any tensor, those to come included, until `open`."""
        self._shut = True
        for region in self.regions:
            region.pages.shut()

    def open(self) -> None:
        self._shut = False
        for region in self.regions:
            region.pages.open()

    def place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of an input between margins; gaps between its elements hold poison.

        `changes` compares it with the original.
        """
        content = flat_bytes(tensor)
        if content.size > tensor.numel() * tensor.element_size():
            content = _with_gaps(tensor, self.pattern)
        return self._region(name, tensor, content, content)

    def allocate(self, tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        """Return a tensor like `tensor`: its values where `filled`, poison otherwise."""
        name = f"t{sum(r.source is None for r in self.regions)}"
        content = flat_bytes(tensor) if filled else None
        return self._region(name, tensor, content, None)

    def _region(
        self, name: str, like: torch.Tensor, content: Bytes | None, source: Bytes | None
    ) -> torch.Tensor:
        size = extent(like) * like.element_size()
        apart = min(size, _APART)
        pages = Pages(size + 2 * (MARGIN + apart) + _SLIDES * _ALIGNMENT)
        begin = apart - apart % _ALIGNMENT + self._slide
        raw = pages.bytes[begin : begin + size + 2 * MARGIN]
        margin = raw[:MARGIN]
        spoil(margin, like, self.pattern)
        margin = margin.copy()
        raw[MARGIN + size :] = margin
        data = raw[MARGIN : MARGIN + size]
        if content is None:
            unfilled(data, like, self.pattern)
        else:
            data[:] = content
        shadow = torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype, device="meta")
        region = Region(name, shadow, pages, raw, size, margin, source, raw.ctypes.data + MARGIN)
        if self.track:
            region.written = np.zeros(size, dtype=np.bool_)
        if self._shut:
            pages.shut()
        at = bisect.bisect(self._starts, region.start)
        self._starts.insert(at, region.start)
        self.regions.insert(at, region)
        if size == 0:
            return torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype)
        flat = torch.from_numpy(region.data).view(like.dtype)
        return flat.as_strided(tuple(like.shape), like.stride(), 0)

    def find(self, tensor: torch.Tensor) -> Region | None:
        """The region that a tensor lies in."""
        return self._at(tensor.data_ptr())

    def _at(self, address: int) -> Region | None:
        at = bisect.bisect(self._starts, address) - 1
        return self.regions[at] if at >= 0 and address < self.regions[at].end else None

    def locate(
        self, addresses: Addresses, itemsize: int, kind: str, owner: Region | None = None
    ) -> list[tuple[Region, Addresses]]:
        """Split non-empty addresses by region; raises `OutOfBoundsError` where one lies in none.

        Where `owner` is known, all must lie in it: that another tensor lies there is chance.
        """
        low, high = int(addresses.min()), int(addresses.max())
        region = owner if owner is not None else self._at(low)
        if region is not None and region.start <= low and high + itemsize <= region.end:
            return [(region, addresses)]
        if owner is not None:
            beyond = addresses[addresses > np.uint64(max(owner.end - itemsize, 0))]
            raise self._stray(low if low < owner.start else int(beyond.min()), itemsize, kind, owner)
        found: list[tuple[Region, Addresses]] = []
        left = addresses
        while left.size:
            low = int(left.min())
            region = self._at(low)
            if region is None or low + itemsize > region.end:
                raise self._stray(low, itemsize, kind)
            inside = left <= np.uint64(region.end - itemsize)
            found.append((region, left[inside]))
            left = left[~inside]
        return found

    def within(self, addresses: Addresses, itemsize: int) -> npt.NDArray[np.bool_]:
        """Which addresses of a block lie in a region; of the same shape."""
        found = np.zeros(addresses.shape, dtype=np.bool_)
        for region in self.regions:
            if region.size >= itemsize:
                first, last = np.uint64(region.start), np.uint64(region.end - itemsize)
                found |= (addresses >= first) & (addresses <= last)
        return found

    def _stray(self, address: int, itemsize: int, kind: str, owner: Region | None = None) -> OutOfBoundsError:
        if not self.regions:
            return OutOfBoundsError(f"{kind} at address {address:#x}, but there is no tensor")
        near = owner or min(self.regions, key=lambda r: max(r.start - address, address - r.end, 0))
        width = near.like.element_size()
        element, odd = divmod(address - near.start, width)
        what = f"element {element}" + (f" and {odd} bytes" if odd else "")
        much = "" if itemsize == width else f" of {itemsize} bytes"
        message = f"{kind}{much} at {what} of {near.name}, which has {near.size // width} elements"
        return OutOfBoundsError(message, near.name, element)

    def damaged(self) -> tuple[str, ...]:
        """Names of the tensors whose margins were written."""
        return tuple(r.name for r in self.regions if not r.margins_intact())

    def changes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Inputs whose bytes differ from what was placed, gaps included, with the first element that does."""
        found = ((r, r.change()) for r in self.regions)
        return tuple(sorted((r.name, r.index(byte)) for r, byte in found if byte is not None))

    def mark_partial(self) -> None:
        """Remember that a launch ran only some of its programs: allocations may be incomplete."""
        self.sampled = True
        for region in self.regions:
            if region.source is None and region.stamp:
                region.partial = True

    def written(self, tensor: torch.Tensor) -> torch.Tensor:
        """A boolean tensor of the same shape: which elements were stored."""
        region = self.find(tensor)
        if region is None or region.written is None:
            return torch.ones(tuple(tensor.shape), dtype=torch.bool)
        width = tensor.element_size()
        strides = tuple(s * width for s in tensor.stride())
        flat = torch.from_numpy(region.written)
        return flat.as_strided(tuple(tensor.shape), strides, tensor.data_ptr() - region.start).clone()


def _with_gaps(tensor: torch.Tensor, pattern: int) -> Bytes:
    """The bytes that a tensor spans, with poison where it has no element."""
    content = np.empty(extent(tensor) * tensor.element_size(), dtype=np.uint8)
    spoil(content, tensor, pattern)
    flat = torch.from_numpy(content).view(tensor.dtype)
    spread(flat, tensor).copy_(spread(tensor, tensor))
    return content
