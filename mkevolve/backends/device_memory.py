"""Tensors on the device that a candidate may touch, each between poisoned margins that are looked at after
the call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from mkevolve.backends.memory import OutOfBoundsError, extent, spread
from mkevolve.backends.poison import spoil, unfilled

_LEAST, _MOST = 4096, 1 << 20  # bytes of a margin: as many as the tensor has, between these
_ALIGNED = 512  # what the device's allocator gives: a multiple of every alignment that kernels assume
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TILE = 1 << 14  # bytes of what fills an allocation over and over
_SMALLER = 0.75


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor's storage: `raw` is margin, data, margin, the data `size` bytes from byte `start`.

    `tensor` is what the candidate got, `source` the bytes that an input must keep, None for allocations.
    `word` is the poison of the margins, `width` its number of bytes.
    """

    name: str
    raw: torch.Tensor
    start: int
    size: int
    word: int
    width: int
    tensor: torch.Tensor
    source: torch.Tensor | None = None

    @property
    def address(self) -> int:
        return self.raw.data_ptr() + self.start

    @property
    def data(self) -> torch.Tensor:
        return self.raw[self.start : self.start + self.size]

    def damage(self) -> torch.Tensor:
        """Per word of both margins, low then high, whether it is no poison any more."""
        words = self.raw.view(_WORDS[self.width])
        low, high = self.start // self.width, (self.start + self.size) // self.width
        return torch.cat((words[:low], words[high:])) != self.word

    def first_damaged(self) -> int:
        """The damaged element nearest to the tensor, counted in memory from its first one."""
        found = self.damage().nonzero().flatten().cpu().numpy()
        low, words = self.start // self.width, self.size // self.width
        past = np.where(found < low, found - low, found - low + words)
        beyond = np.where(found < low, -past, past - words + 1)
        return int(past[beyond.argmin()]) * self.width // self.tensor.element_size()

    def changed(self) -> torch.Tensor:
        """Whether any byte of an input is another, those between its elements included."""
        return self.raw.new_zeros(()).bool() if self.source is None else (self.data != self.source).any()

    def first_changed(self) -> tuple[int, ...]:
        """Index of the first element whose bytes are others; empty where only gaps between elements are."""
        assert self.source is not None
        tensor = self.tensor
        before = self.source.view(tensor.dtype).as_strided(tuple(tensor.shape), tensor.stride())
        return first_difference(tensor, before) or ()


class DeviceMemory:
    """Every tensor of one call, poisoned by `pattern`."""

    def __init__(self, pattern: int, device: str = "cuda") -> None:
        self._pattern = pattern
        self._device = device
        self._regions: list[Region] = []

    def place(self, name: str, tensor: torch.Tensor, skew: int = 0) -> torch.Tensor:
        """Return a copy of an input on the device, at an address that is `skew` modulo 16; gaps between its
        elements hold poison.
        """
        region = self._region(name, tensor, skew)
        into = spread(region.data.view(tensor.dtype), tensor)
        into.copy_(spread(tensor, tensor))
        self._regions.append(replace(region, source=region.data.clone()))
        return region.tensor

    def allocate(self, tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        """Return a tensor like `tensor`: its values where `filled`; otherwise poison, or, in every second
        pattern, numbers like any other.
        """
        region = self._region(f"t{sum(r.source is None for r in self._regions)}", tensor, 0)
        if filled:
            region.data.copy_(flat_bytes(tensor))
        else:
            _tile(region.data, tensor, self._pattern)
        self._regions.append(region)
        return region.tensor

    def find(self, tensor: torch.Tensor) -> Region | None:
        """The region in which a tensor begins."""
        at = tensor.data_ptr()
        return next((r for r in self._regions if r.address <= at < r.address + max(r.size, 1)), None)

    def check_margins(self) -> None:
        """Raise `OutOfBoundsError` naming the tensors that were written around, and where."""
        damaged = _flagged(self._regions, [r.damage().any() for r in self._regions])
        if not damaged:
            return
        found = [(r.name, r.first_damaged(), r.size // r.tensor.element_size()) for r in damaged]
        places = ", ".join(f"{name} (element {at} of {count})" for name, at, count in found)
        raise OutOfBoundsError(f"stores outside of {places}", found[0][0], found[0][1])

    def changes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Inputs whose bytes differ from what was placed, gaps included, with the first element that does."""
        changed = _flagged(self._regions, [r.changed() for r in self._regions])
        return tuple(sorted((r.name, r.first_changed()) for r in changed))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Put other values into the activations (the parameters where there is none), and back afterwards.

        Elements in reverse, so that indices stay valid, and smaller where they are floats. On the stream of
        the launch in between, which therefore sees them.
        """
        inputs = [r for r in self._regions if r.source is not None and r.size]
        chosen = [r for r in inputs if r.name.startswith("x")] or inputs
        kept = [r.data.clone() for r in chosen]
        for region in chosen:
            once = spread(region.data.view(region.tensor.dtype), region.tensor)
            other = once.flatten().flip(0).reshape(once.shape)
            floats = other.is_floating_point() and other.element_size() > 1
            once.copy_(other * _SMALLER if floats else other)
        try:
            yield
        finally:
            for region, content in zip(chosen, kept, strict=True):
                region.data.copy_(content)

    def _region(self, name: str, like: torch.Tensor, skew: int) -> Region:
        """Memory for a tensor: poison, margins and all."""
        size = extent(like) * like.element_size()
        margin = -(-min(max(size, _LEAST), _MOST) // _ALIGNED) * _ALIGNED
        raw = torch.empty(margin + skew + size + margin, dtype=torch.uint8, device=self._device)
        word, width = poison_word(like, self._pattern)
        raw.view(_WORDS[width]).fill_(word)
        data = raw[margin + skew : margin + skew + size]
        tensor = data.view(like.dtype).as_strided(tuple(like.shape), like.stride())
        return Region(name, raw, margin + skew, size, word, width, tensor)


def _flagged(regions: list[Region], flags: list[torch.Tensor]) -> list[Region]:
    """The regions whose flag is set; waits for the device once."""
    known = torch.stack(flags).tolist() if flags else []
    return [region for region, flag in zip(regions, known, strict=True) if flag]


def poison_word(like: torch.Tensor, pattern: int) -> tuple[int, int]:
    """What stands out in the dtype of a tensor, as an integer (signed but for one byte), and its bytes."""
    width = like.element_size() // (2 if like.dtype.is_complex else 1)
    word = np.empty(width, dtype=np.uint8)
    spoil(word, like, pattern)
    return int.from_bytes(word.tobytes(), "little", signed=width > 1), width


def _tile(target: torch.Tensor, like: torch.Tensor, pattern: int) -> None:
    """Fill a new allocation as `poison.unfilled` does."""
    tile = np.empty(_TILE, dtype=np.uint8)
    unfilled(tile, like, pattern)
    content = torch.from_numpy(tile).to(target.device)
    whole = target.numel() - target.numel() % _TILE
    target[:whole].view(-1, _TILE).copy_(content)
    target[whole:].copy_(content[: target.numel() - whole])


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes between a tensor's first and last element, where it lies."""
    flat = tensor.detach().as_strided((extent(tensor),), (1,), tensor.storage_offset())
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU with the same shape and strides, and storage of its own."""
    if tensor.numel() == 0:
        return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    flat = flat_bytes(tensor).to("cpu", copy=True).view(tensor.dtype)
    return flat.as_strided(tuple(tensor.shape), tensor.stride())


def first_difference(one: torch.Tensor, other: torch.Tensor) -> tuple[int, ...] | None:
    """Index of the first element whose bits differ between tensors of one layout; None where none does."""
    if one.numel() == 0:
        return None
    width = one.element_size() // (2 if one.dtype.is_complex else 1)
    left, right = (_bits(t, width) for t in (one, other))
    where = (left != right).reshape(*one.shape, -1).any(-1).nonzero()
    return tuple(int(i) for i in where[0].tolist()) if len(where) else None


def _bits(tensor: torch.Tensor, width: int) -> torch.Tensor:
    plain = torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor
    return plain.view(_WORDS[width])
