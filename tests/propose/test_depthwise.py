"""Depthwise convolutions against eager in float64, over layouts, windows and every structural choice."""

import pytest
import torch
import torch.nn.functional as F
from oracle import check, every_point
from test_conv import layer, pair, values
from torch import nn

pytestmark = pytest.mark.interp

SMALL = ((2, 4, 5), (1, 5, 3))


def depthwise(channels, *window, several=1, **more):
    return nn.Conv2d(channels, channels * several, *window, groups=channels, **more)


def test_structural_choices(tmp_path):
    planar = layer("planar", depthwise(5, 3, padding=1, bias=False), *pair(5, *SMALL), norm=True)
    last = layer("last", depthwise(9, (3, 2), 2, 1), *pair(9, *SMALL, last=True), norm=True)
    names = {choice for c in every_point(last) for choice, _ in c.choices}
    assert {"across", "taps", "tile"} <= names
    assert check([planar, last], tmp_path) == {}


def test_windows_and_surroundings(tmp_path):
    x, other = values(2, 6, 4, 5), values(2, 12, 4, 5, seed=3)
    gate = values(2, 6, 1, 1, seed=4).to(memory_format=torch.channels_last)
    line = ((values(2, 5, 11),), (values(1, 5, 6),))
    problems = [
        layer("same_even", depthwise(5, (2, 4), 1, "same"), *pair(5, *SMALL), norm=True, tail=F.relu6),
        layer("dilated", depthwise(5, 3, (1, 2), (2, 1), 2), *pair(5, *SMALL, last=True)),
        layer(
            "many_taps", depthwise(4, 7, padding=3), *pair(4, *SMALL), tail=lambda y: y.permute(0, 2, 3, 1)
        ),
        layer("several", depthwise(6, 3, padding=1, several=2), (x, other), tail=lambda y, r: F.silu(y) * r),
        layer("shifted_before", depthwise(6, 3, padding=1), (x,), head=lambda x: torch.sigmoid(x) + 1.0),
        layer("gated", depthwise(6, 3, padding=1), (x, gate), tail=lambda y, g: y * torch.sigmoid(g)),
        layer("conv1d", nn.Conv1d(5, 5, 4, 2, 1, groups=5), *line),
    ]
    assert check(problems, tmp_path, limit=1) == {}


def test_a_tile_of_a_single_pixel_is_stored_whole(tmp_path):
    assert check([layer("one_pixel", depthwise(3, 3), (values(1, 3, 3, 3),))], tmp_path) == {}
