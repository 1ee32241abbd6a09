"""A norm in front of a product, computed by each block of rows."""

import pytest
import torch
from oracle import Problem, check, propose
from torch import nn

from mkevolve.errors import ProposalError

pytestmark = pytest.mark.interp


class Normed(nn.Module):
    def __init__(self, norm, *, gated=False):
        super().__init__()
        self.norm, self.up = norm, nn.Linear(24, 40)
        self.gate = nn.Linear(24, 40) if gated else None

    def forward(self, x):
        y = self.norm(x)
        if self.gate is None:
            return torch.relu(self.up(y))
        return torch.sigmoid(self.gate(y)) * self.up(y)


def rows(*shape, shift=0.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(1)) + shift,)


def test_norms_before_products(tmp_path):
    layer = nn.LayerNorm(24)
    with torch.no_grad():
        layer.weight.uniform_(0.5, 2.0)
        layer.bias.uniform_(-1.0, 1.0)
    problems = [
        Problem("layer", Normed(layer), (rows(2, 19, 24), rows(1, 5, 24))),
        Problem("far_from_zero", Normed(nn.LayerNorm(24)), (rows(2, 19, 24, shift=300.0),), tolerance=2e-4),
        Problem("plain", Normed(nn.LayerNorm(24, elementwise_affine=False), gated=True), (rows(70, 24),)),
        Problem("rms", Normed(nn.RMSNorm(24, eps=1e-3), gated=True), (rows(2, 19, 24), rows(3, 6, 24))),
        Problem("rms_default", Normed(nn.RMSNorm(24)), (rows(2, 19, 24),)),
    ]
    assert check(problems[:1], tmp_path) == {}
    assert check(problems[1:], tmp_path, limit=1) == {}


def test_a_norm_elsewhere_is_named():
    behind = nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24))
    with pytest.raises(ProposalError, match=r"aten\.layer_norm\.default that is not the left operand"):
        propose(Problem("behind", behind, (rows(5, 24),)))
