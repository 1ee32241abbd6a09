"""The role that an op family plays for the template proposer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from mkevolve.data.candidate import Setting
from mkevolve.data.chip import Chip
from mkevolve.data.decomposition import Subgraph
from mkevolve.data.model import Precision

M = TypeVar("M")
Point = Mapping[str, Setting]
"""One option for each named choice of a family."""


class Family(ABC, Generic[M]):
    """Kernels for one kind of main op, with what surrounds it. Stateless; `M` is what `match` found."""

    @abstractmethod
    def match(self, subgraph: Subgraph) -> M | None:
        """Read the subgraph; None where the family's main op does not occur.

        Raises `ProposalError` naming the op where it occurs and cannot be covered.
        """

    @abstractmethod
    def choices(self, match: M, chip: Chip, precision: Precision) -> dict[str, tuple[Setting, ...]]:
        """Named structural choices and their options, best guess first."""

    @abstractmethod
    def render(self, match: M, point: Point) -> str | None:
        """The source at one point; None where its choices exclude each other.

        May raise `ProposalError` naming the op where the surroundings cannot be written.
        """
