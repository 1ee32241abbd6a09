"""Tensors that a candidate may touch, between poisoned margins, and every access checked against them."""

import bisect
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from mkevolve.backends.numerics import poison

Bytes = npt.NDArray[np.uint8]
Addresses = npt.NDArray[np.uint64]

MARGIN = 4096  # poisoned bytes on each side; a multiple of every alignment that kernels assume
_APART = 1 << 26  # most bytes of address space kept free on each side: strays must not land in another tensor


class OutOfBoundsError(Exception):
    """An address outside every tensor that the candidate was given or allocated."""


@dataclass(slots=True)
class Region:
    """The storage of one tensor. `source` holds the bytes an input must keep; None for allocations.

    `written` marks the first byte of each stored element once `Memory.track` is set.
    """

    name: str
    raw: Bytes  # margin, data, margin
    size: int
    margin: Bytes
    source: torch.Tensor | None = None
    start: int = 0
    written: npt.NDArray[np.bool_] | None = None
    partial: bool = field(default=False)  # a launch that ran only some programs stored here

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def data(self) -> Bytes:
        return self.raw[MARGIN : MARGIN + self.size]

    def margins_intact(self) -> bool:
        low, high = self.raw[:MARGIN], self.raw[MARGIN + self.size :]
        return bool((low == self.margin).all() and (high == self.margin).all())

    def changed(self) -> bool:
        """Whether an input's bytes differ from what was placed."""
        return self.source is not None and not np.array_equal(self.data, flat_bytes(self.source))


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


def detached_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same shape and strides, and storage of its own."""
    if tensor.numel() == 0:
        return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    flat = torch.from_numpy(flat_bytes(tensor).copy()).view(tensor.dtype)
    return flat.as_strided(tuple(tensor.shape), tensor.stride(), 0)


def _spoil(target: Bytes, tensor: torch.Tensor, pattern: int) -> None:
    """Fill bytes with the poison of a tensor's dtype."""
    if tensor.dtype == torch.bool:
        kind = "?"
    elif tensor.dtype == torch.bfloat16:
        kind = "b"
    else:
        kind = "f" if tensor.dtype.is_floating_point or tensor.dtype.is_complex else "i"
    width = tensor.element_size() // (2 if tensor.dtype.is_complex else 1)
    word = np.frombuffer(poison(kind, width, pattern), dtype=f"u{width}")
    target.view(word.dtype)[:] = word


class Memory:
    """Every tensor of one call. `track` asks for maps of the stored elements."""

    def __init__(self, pattern: int, track: bool) -> None:
        self.pattern = pattern
        self.track = track
        self.sampled = False  # some launch ran only some of its programs
        self.regions: list[Region] = []
        self._starts: list[int] = []

    def place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of an input between margins; `inputs_changed` compares it with the original."""
        return self._region(name, tensor, flat_bytes(tensor), tensor)

    def allocate(self, tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        """Return a tensor like `tensor`: its values where `filled`, poison otherwise."""
        name = f"t{sum(r.source is None for r in self.regions)}"
        content = flat_bytes(tensor) if filled else None
        return self._region(name, tensor, content, None)

    def _region(
        self, name: str, like: torch.Tensor, content: Bytes | None, source: torch.Tensor | None
    ) -> torch.Tensor:
        size = extent(like) * like.element_size()
        apart = min(size, _APART)
        raw = np.empty(size + 2 * (MARGIN + apart) + 256, dtype=np.uint8)[apart:]
        raw = raw[-raw.ctypes.data % 256 :][: size + 2 * MARGIN]
        margin = raw[:MARGIN]
        _spoil(margin, like, self.pattern)
        margin = margin.copy()
        raw[MARGIN + size :] = margin
        data = raw[MARGIN : MARGIN + size]
        if content is None:
            _spoil(data, like, self.pattern)
        else:
            data[:] = content
        region = Region(name, raw, size, margin, source, raw.ctypes.data + MARGIN)
        if self.track:
            region.written = np.zeros(size, dtype=np.bool_)
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

    def locate(self, addresses: Addresses, itemsize: int, kind: str) -> list[tuple[Region, Addresses]]:
        """Split non-empty addresses by region; raises `OutOfBoundsError` where one lies in none."""
        low, high = int(addresses.min()), int(addresses.max())
        region = self._at(low)
        if region is not None and high + itemsize <= region.end:
            return [(region, addresses)]
        found: list[tuple[Region, Addresses]] = []
        left = addresses
        while left.size:
            low = int(left.min())
            region = self._at(low)
            if region is None or low + itemsize > region.end:
                raise OutOfBoundsError(self._explain(low, kind))
            inside = left <= np.uint64(region.end - itemsize)
            found.append((region, left[inside]))
            left = left[~inside]
        return found

    def _explain(self, address: int, kind: str) -> str:
        if not self.regions:
            return f"{kind} at address {address:#x}, but there is no tensor"
        near = min(self.regions, key=lambda r: max(r.start - address, address - r.end, 0))
        return f"{kind} at byte {address - near.start} of {near.name}, which has {near.size} bytes"

    def damaged(self) -> tuple[str, ...]:
        """Names of the tensors whose margins were written."""
        return tuple(r.name for r in self.regions if not r.margins_intact())

    def inputs_changed(self) -> tuple[str, ...]:
        """Names of the inputs whose bytes differ from what was placed."""
        return tuple(sorted(r.name for r in self.regions if r.changed()))

    def mark_partial(self) -> None:
        """Remember that a launch ran only some of its programs: allocations may be incomplete."""
        self.sampled = True
        for region in self.regions:
            if region.source is None and region.written is not None and region.written.any():
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
