"""A cache key that is the object itself: hashing a graph of a thousand nodes costs more than a look-up."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Identity(Generic[T]):
    """Equal only to another key of the same object, which it keeps alive."""

    __slots__ = ("item",)

    def __init__(self, item: T) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.item is self.item
