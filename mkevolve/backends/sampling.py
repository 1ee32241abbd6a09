"""Which program instances of a launch the interpreter runs, and in which order."""

import random
from collections.abc import Sequence

from mkevolve.interfaces import Order


def choose(grid: Sequence[int], limit: int | None, rng: random.Random) -> list[int]:
    """Return at most `limit` linear instance numbers (first axis fastest), ascending; all for None.

    The first and the last instance come first, then the far ends of each axis, then random ones, each with
    its successor: neighbours show what programs share.
    """
    x, y, z = grid
    total = x * y * z
    if limit is None or limit >= total:
        return list(range(total))
    corners = [0, total - 1, x - 1, (y - 1) * x, (z - 1) * x * y]
    chosen = list(dict.fromkeys(corners))[: max(limit - limit // 2, 1)]
    while len(chosen) < limit:
        start = rng.randrange(total)
        for instance in (start, (start + 1) % total):
            if instance not in chosen and len(chosen) < limit:
                chosen.append(instance)
    return sorted(chosen)


def ordered(instances: list[int], order: Order, rng: random.Random) -> list[int]:
    """The instances in the order in which they run."""
    if order is Order.REVERSED:
        return instances[::-1]
    if order is Order.SHUFFLED:
        return rng.sample(instances, len(instances))
    return instances
