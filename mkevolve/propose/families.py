"""The table of op families, in the order in which they are tried."""

from typing import Any

from mkevolve.propose.family import Family
from mkevolve.propose.ops.pointwise import PointwiseFamily

FAMILIES: tuple[Family[Any], ...] = (PointwiseFamily(),)
