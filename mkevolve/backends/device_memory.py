"""Tensors on the device that a candidate may touch, each between poisoned margins that are looked at after
the call.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mkevolve.backends.memory import extent
from mkevolve.backends.numerics import poison

_LEAST, _MOST = 4096, 1 << 20  # bytes of a margin: as many as the tensor has, between these
_ALIGNED = 512  # what the device's allocator gives: a multiple of every alignment that kernels assume
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Region:
    """One tensor's storage: `raw` is margin, data, margin, the data `size` bytes from byte `start`.

    `source` is what an input must keep (on the CPU or on the device); None for allocations. `width` is the
    number of bytes of one word of poison.
    """

    name: str
    raw: torch.Tensor
    start: int
    size: int
    word: int
    width: int
    itemsize: int
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
        """The damaged element nearest to the tensor, counted from its first one."""
        found = self.damage().nonzero().flatten().cpu().numpy()
        low = self.start // self.width
        past = np.where(found < low, found - low, found - low + self.size // self.width)
        beyond = np.where(found < low, -past, past - self.size // self.width + 1)
        return int(past[beyond.argmin()]) * self.width // self.itemsize


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

    def damaged(self) -> tuple[str, ...]:
        """Which tensors were written around, with the element index of the nearest such store."""
        return tuple(
            f"{r.name} (element {r.first_damaged()} of {r.size // r.itemsize})"
            for r in _flagged(self._regions, [r.damage().any() for r in self._regions])
        )

    def inputs_changed(self) -> tuple[str, ...]:
        """Names of the inputs whose bytes differ from what was placed."""
        inputs = [(r, flat_bytes(r.source)) for r in self._regions if r.source is not None]
        different = [(r.data != kept.to(r.raw.device)).any() for r, kept in inputs]
        return tuple(sorted(r.name for r in _flagged([r for r, _ in inputs], different)))

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
        region = Region(name, raw, margin + skew, size, word, width, like.element_size(), source)
        if content is not None:
            region.data.copy_(content)
        self._regions.append(region)
        if size == 0:
            return raw[:0].view(like.dtype).as_strided(tuple(like.shape), like.stride())
        return region.data.view(like.dtype).as_strided(tuple(like.shape), like.stride())


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
