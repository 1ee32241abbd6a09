"""The table of op families, in the order in which they are tried."""

from typing import Any

from mkevolve.propose.family import Family
from mkevolve.propose.ops.attention import AttentionFamily
from mkevolve.propose.ops.conv import ConvFamily
from mkevolve.propose.ops.depthwise import DepthwiseFamily
from mkevolve.propose.ops.matmul import MatmulFamily
from mkevolve.propose.ops.pointwise import PointwiseFamily
from mkevolve.propose.ops.pooling import PoolingFamily
from mkevolve.propose.ops.reduction import ReductionFamily

FAMILIES: tuple[Family[Any], ...] = (
    DepthwiseFamily(),
    ConvFamily(),
    AttentionFamily(),
    MatmulFamily(),
    ReductionFamily(),
    PoolingFamily(),
    PointwiseFamily(),
)
