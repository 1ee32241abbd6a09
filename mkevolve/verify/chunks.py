"""Cuts a tensor into pieces that can be worked on in bounded memory, whatever its shape."""

import itertools
import math
from collections.abc import Iterator

CHUNK = 1 << 22  # elements of a piece at most

Index = tuple[int | slice, ...]


def chunks(shape: tuple[int, ...], most: int | None = None) -> Iterator[Index]:
    """Indices of pieces of at most `most` elements (`CHUNK` where None), in order: leading axes are cut."""
    most = CHUNK if most is None else most
    axis = 0
    while axis < len(shape) and math.prod(shape[axis + 1 :]) > most:
        axis += 1
    if axis == len(shape):
        yield ()
        return
    step = max(most // max(math.prod(shape[axis + 1 :]), 1), 1)
    for outer in itertools.product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, start + step))
