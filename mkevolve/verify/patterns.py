"""Where the wrong elements of a result lie: a tail, the border, one channel, a block, stripes.

Only elements that were judged count: where some program instances ran, the others say nothing. Memory is
bounded by the masks themselves and one index an element of the longest axis.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

LONGEST = 1 << 22  # positions of an axis that are looked at one by one
_DENSE = 0.3  # share of what a pattern covers that must be wrong: some elements are right by chance


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: its size, the indices where something is wrong, and how many indices were judged.

    `at` numbers the judged indices; `first` is the first wrong index of the tensor itself.
    """

    name: str
    size: int
    at: torch.Tensor
    judged: torch.Tensor

    @property
    def first(self) -> int:
        return int(self.judged[self.at[0]])

    @property
    def last(self) -> int:
        return int(self.judged[self.at[-1]])


def place(wrong: torch.Tensor, judged: torch.Tensor | None = None) -> str:
    """Name where the `wrong` elements lie (at least one); empty where nothing stands out."""
    count = int(wrong.count_nonzero())
    total = wrong.numel() if judged is None else int(judged.count_nonzero())
    if count == total:
        return "everywhere"
    if count == 1:
        return "one element"
    axes = list(_axes(wrong, judged))
    channel = _channels(wrong.dim(), axes)
    if channel:
        return channel
    if wrong.dim() > 1 and wrong.numel() <= LONGEST:
        axes.append(_axis("flat", wrong.reshape(-1), None if judged is None else judged.reshape(-1)))
    found = _runs(axes, count, total) or ("border" if _on_border(wrong) else "")
    return found or (_long_tail(wrong, count) if judged is None and wrong.numel() > LONGEST else "")


def _long_tail(wrong: torch.Tensor, count: int) -> str:
    """A tail of a tensor that is too long to be looked at one by one."""
    flat = wrong.reshape(-1)
    first = int(flat.view(torch.uint8).argmax())
    last = flat.numel() - 1 - int(flat[-LONGEST:].flip(0).view(torch.uint8).argmax())
    dense = count > _DENSE * (flat.numel() - first)
    return f"tail (flat from {first} of {flat.numel()})" if first and dense and bool(flat[last]) else ""


def _axes(wrong: torch.Tensor, judged: torch.Tensor | None) -> Iterator[_Axis]:
    for axis, size in enumerate(wrong.shape):
        if 1 < size <= LONGEST:
            others = [a for a in range(wrong.dim()) if a != axis]
            hit = wrong.any(dim=others) if others else wrong
            seen = None if judged is None else judged.any(dim=others) if others else judged
            yield _axis(f"axis {axis}", hit, seen)


def _axis(name: str, hit: torch.Tensor, seen: torch.Tensor | None) -> _Axis:
    judged = torch.arange(hit.numel()) if seen is None else seen.nonzero().flatten()
    at = hit[judged].nonzero().flatten()
    return _Axis(name, hit.numel(), at, judged)


def _channels(dims: int, axes: list[_Axis]) -> str:
    for axis in axes:
        if axis.at.numel() == 1 < axis.judged.numel():
            edge = axis.first in (0, axis.size - 1) and dims > 2 and axis.name >= f"axis {dims - 2}"
            return f"{'border' if edge else 'one channel'} (index {axis.first} of {axis.name})"
    return ""


def _runs(axes: list[_Axis], count: int, total: int) -> str:
    """A tail, a head, a block or stripes along an axis, where it is wrong nearly as a whole; the tightest."""
    described = []
    for rank, describe in enumerate((_tail, _block, _stripes)):
        for axis in axes:
            covered = total * axis.at.numel() / axis.judged.numel()
            text = describe(axis) if axis.at.numel() < axis.judged.numel() else ""
            if text and count > _DENSE * covered:
                described.append((covered - count, rank, text))
    return min(described)[2] if described else ""


def _tail(axis: _Axis) -> str:
    low = int(axis.at[0])
    if low > 0 and axis.at.numel() == axis.judged.numel() - low:
        return f"tail ({axis.name} from {axis.first} of {axis.size})"
    return ""


def _block(axis: _Axis) -> str:
    low, high = int(axis.at[0]), int(axis.at[-1])
    if axis.at.numel() != high - low + 1:
        return ""
    if low == 0:
        return f"head ({axis.name} up to {axis.last} of {axis.size})"
    return f"one block ({axis.name} from {axis.first} to {axis.last} of {axis.size})"


def _stripes(axis: _Axis) -> str:
    """Equal runs at equal distances: every BLOCK-th element, or some of every BLOCK elements."""
    steps = axis.at.diff()
    starts = axis.at[torch.cat((torch.ones(1, dtype=torch.bool), steps > 1))]
    periods = starts.diff()
    if starts.numel() < 3 or bool((periods != periods[0]).any()):
        return ""
    width = math.ceil(axis.at.numel() / starts.numel())
    lengths = torch.searchsorted(axis.at, starts + width) - torch.searchsorted(axis.at, starts)
    if bool((lengths[:-1] != width).any()):
        return ""
    what = "" if width == 1 else f"{width} of "
    return f"stripes ({what}every {int(periods[0])} of {axis.name}, from {axis.first})"


def _on_border(wrong: torch.Tensor) -> bool:
    if wrong.dim() < 2 or min(wrong.shape[-2:]) < 3:
        return False
    return not bool(wrong[..., 1:-1, 1:-1].any())
