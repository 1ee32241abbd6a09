"""Tensors on the device that a candidate may touch, each between poisoned margins that are looked at after
the call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from mkevolve.backends.memory import OutOfBoundsError, extent, spread
from mkevolve.backends.numerics import poison

_LEAST, _MOST = 4096, 1 << 20  # bytes of a margin: as many as the tensor has, between these
_ALIGNED = 512  # what the device's allocator gives: a multiple of every alignment that kernels assume
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SMALLER = 0.75


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor's storage: `raw` is margin, data, margin, the data `size` bytes from byte `start`.

    `tensor` is what the candidate got, `source` what an input must keep (on the CPU or on the device), None
    for allocations. `word` is the poison, `width` its number of bytes.
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

    def first_changed(self, kept: torch.Tensor) -> tuple[int, ...]:
        """Index of the first element whose bytes are not as in `kept`; empty where only gaps differ."""
        tensor = self.tensor
        before = kept.view(tensor.dtype).as_strided(tuple(tensor.shape), tensor.stride())
        return first_difference(tensor, before) or ()


class DeviceMemory:
    """Every tensor of one call, poisoned by `pattern`."""

    def __init__(self, pattern: int, device: str = "cuda") -> None:
        self._pattern = pattern
        self._device = device
        self._regions: list[Region] = []

    def place(self, name: str, tensor: torch.Tensor, skew: int = 0) -> torch.Tensor:
        """Return a copy of an input on the device, at an address that is `skew` modulo 16."""
        return self._region(name, tensor, flat_bytes(tensor), tensor, skew)

    def allocate(self, tensor: torch.Tensor, filled: bool) -> torch.Tensor:
        """Return a tensor like `tensor`: its values where `filled`, poison otherwise."""
        name = f"t{sum(r.source is None for r in self._regions)}"
        return self._region(name, tensor, flat_bytes(tensor) if filled else None, None, 0)

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
        inputs = [(r, flat_bytes(r.source).to(self._device)) for r in self._regions if r.source is not None]
        different = [(r.data != kept).any() for r, kept in inputs]
        changed = {r.name for r in _flagged([r for r, _ in inputs], different)}
        return tuple(sorted((r.name, r.first_changed(kept)) for r, kept in inputs if r.name in changed))

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

    def _region(
        self,
        name: str,
        like: torch.Tensor,
        content: torch.Tensor | None,
        source: torch.Tensor | None,
        skew: int,
    ) -> torch.Tensor:
        size = extent(like) * like.element_size()
        margin = -(-min(max(size, _LEAST), _MOST) // _ALIGNED) * _ALIGNED
        raw = torch.empty(margin + skew + size + margin, dtype=torch.uint8, device=self._device)
        word, width = poison_word(like.dtype, self._pattern)
        raw.view(_WORDS[width]).fill_(word)
        data = raw[margin + skew : margin + skew + size]
        if content is not None:
            data.copy_(content)
        shape, strides = tuple(like.shape), like.stride()
        tensor = data.view(like.dtype).as_strided(shape, strides)
        self._regions.append(Region(name, raw, margin + skew, size, word, width, tensor, source))
        return tensor


def _flagged(regions: list[Region], flags: list[torch.Tensor]) -> list[Region]:
    """The regions whose flag is set; waits for the device once."""
    known = torch.stack(flags).tolist() if flags else []
    return [region for region, flag in zip(regions, known, strict=True) if flag]


def poison_word(dtype: torch.dtype, pattern: int) -> tuple[int, int]:
    """The poison of a dtype as an integer (signed, but for one byte), and its width in bytes."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if dtype == torch.bool:
        kind = "?"
    elif dtype == torch.bfloat16:
        kind = "b"
    else:
        kind = "f" if dtype.is_floating_point or dtype.is_complex else "i"
    return int.from_bytes(poison(kind, width, pattern), "little", signed=width > 1), width


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
