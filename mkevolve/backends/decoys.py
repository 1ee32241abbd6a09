"""Other activations in the same memory while a launch runs: what is right all the same was made elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mkevolve.backends.memory import Memory, Region, spread

_FACTOR = 0.75


@contextmanager
def swapped(memory: Memory) -> Iterator[None]:
    """Put other values into the activations (the parameters where there is none), and back afterwards."""
    inputs = [r for r in memory.regions if r.source is not None and r.size]
    chosen = [r for r in inputs if r.name.startswith("x")] or inputs
    kept = [r.data.copy() for r in chosen]
    for region in chosen:
        _mislead(region)
    try:
        yield
    finally:
        for region, content in zip(chosen, kept, strict=True):
            region.data[:] = content


def _mislead(region: Region) -> None:
    """Reverse the order of the elements, so that indices stay valid, and make floats smaller."""
    held = torch.from_numpy(region.data).view(region.like.dtype)
    once = spread(held, region.like)
    other = once.flatten().flip(0).reshape(once.shape)
    if other.is_floating_point() and other.element_size() > 1:
        other = other * _FACTOR
    once.copy_(other)
