"""Attention written out as two products around a softmax becomes one kernel."""

import math

import pytest
import torch
import torch.nn.functional as F
from oracle import every_point, function, propose, run

from mkevolve.errors import ProposalError

pytestmark = pytest.mark.interp


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def causal(q, k, v, mask):
    """The attention of minGPT: scale, a mask from a buffer, softmax, and the merge of the heads."""
    b, h, t, d = q.shape
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(d))
    att = att.masked_fill(mask[:, :, :t, :t] == 0, float("-inf"))
    return (F.softmax(att, dim=-1) @ v).transpose(1, 2).reshape(b, t, h * d)


def biased(q, k, v, bias):
    return torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / 4 + bias, -1) @ v


def batched(q, k, v):
    return torch.relu(torch.bmm(torch.softmax(torch.baddbmm(q[:, :, :1], q, k.transpose(1, 2)), 2), v))


def hidden(q, k, v):
    """Whole rows without a key: eager gives NaN there."""
    scores = (q @ k.transpose(-1, -2)).masked_fill(q[..., :1] > 0.5, -float("inf"))
    return scores.softmax(-1) @ v


def problems():
    heads = tuple(values(2, 2, 37, 12, seed=s) for s in range(3))
    small = tuple(values(1, 2, 9, 12, seed=s) for s in range(3))
    mask = torch.tril(torch.ones(40, 40)).view(1, 1, 40, 40)
    yield function("causal", causal, (*heads, mask), (*small, mask))
    q, k, v = values(2, 20, 3, 16), values(2, 33, 3, 16, seed=1), values(2, 3, 33, 24, seed=2)
    yield function("biased", biased, (q, k, v, values(3, 20, 33)))
    yield function("batched", batched, tuple(values(3, 35, 16, seed=s) for s in range(3)))
    yield function("hidden", hidden, heads)


def test_values(tmp_path):
    table = list(problems())
    offers = [(table[0], every_point(table[0])), *((p, propose(p, 1)) for p in table[1:])]
    assert all(dict(found[0].choices)["family"] == "AttentionFamily" for _, found in offers)
    assert run(offers, tmp_path) == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -2) @ v,
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1).transpose(-1, -2) @ v,
        lambda q, k, v: (torch.softmax(q @ k.transpose(-1, -2), -1) * 2) @ v,
    ],
)
def test_a_softmax_elsewhere_is_no_attention(call):
    with pytest.raises(ProposalError, match="not attention"):
        propose(function("refused", call, tuple(values(2, 20, 20, seed=s) for s in range(3))))
