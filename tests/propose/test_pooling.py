"""Pooling templates against eager in float64, with what surrounds the pool."""

import pytest
import torch
import torch.nn.functional as F
from oracle import check, compile_errors, every_point, function
from test_pointwise import values

pytestmark = pytest.mark.interp

IMAGE, OTHER = (values(2, 3, 10, 12),), (values(1, 3, 7, 9, seed=1),)

POOLS = {
    "average": lambda x: F.avg_pool2d(x, 2),
    "average_padded": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average_uncounted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average_divisor": lambda x: F.avg_pool2d(x, (2, 3), (1, 2), divisor_override=5),
    "maximum": lambda x: F.max_pool2d(x, 3, 2, 1),
    "maximum_dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "surrounded": lambda x: F.avg_pool2d(F.silu(x), 2).flatten(1) * 0.5 + 1,
}


def problems():
    for name, call in POOLS.items():
        yield function(name, call, IMAGE, OTHER)
    last = tuple((t.to(memory_format=torch.channels_last),) for (t,) in (IMAGE, OTHER))
    yield function("average_last", lambda x: F.relu(F.avg_pool2d(x, 3, 2, 1)), *last)
    yield function("maximum_last", lambda x: F.max_pool2d(x, 3, 2, 1), *last)
    broken = IMAGE[0].clone()
    broken[0, 0, 3, 3], broken[0, 1, 4, 4], broken[1, 1] = float("nan"), float("inf"), -float("inf")
    yield function("maximum_special", lambda x: F.max_pool2d(x, 3, 2, 1), (broken,), OTHER)


def test_every_pool_and_point_equals_eager(tmp_path):
    assert check(list(problems()), tmp_path) == {}


def test_points_compile():
    chosen = {"average_uncounted", "maximum", "adaptive"}
    assert compile_errors([(p, every_point(p)) for p in problems() if p.name in chosen]) == {}
