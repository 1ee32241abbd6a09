"""Attention templates against eager in float64: masks, causal, shared heads, layouts, odd sizes."""

import pytest
import torch
import torch.nn.functional as F
from oracle import check, every_point, function, propose, run

from mkevolve.errors import ProposalError

pytestmark = pytest.mark.interp


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def qkv(batch, heads, rows, columns=None, depth=16, width=None):
    columns, width = columns or rows, width or depth
    q = values(batch, heads, rows, depth)
    return q, values(batch, heads, columns, depth, seed=1), values(batch, heads, columns, width, seed=2)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def plain(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def merged(q, k, v):
    """The heads of a projection, and their merge behind it: all views lie inside the region."""
    b, t, c = q.shape
    heads = [x.view(b, t, 3, c // 3).transpose(1, 2) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*heads, is_causal=True)
    return y.transpose(1, 2).reshape(b, t, c)


def packed(x):
    """Query, key and value as parts of one buffer, as a vision transformer has them."""
    b, t, c = x.shape
    q, k, v = x.reshape(b, t, 3, 2, c // 6).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c // 3)


def shared(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True)


def scaled(q, k, v, bias, gate):
    """Pointwise work on both sides, and a mask that is computed in the region."""
    mask = bias.clamp(max=0) * 1e3
    return F.scaled_dot_product_attention(q * 0.5, k, v, attn_mask=mask) * torch.sigmoid(gate)


def keep(*shape):
    """A boolean mask that hides every key of the last sample."""
    found = values(*shape, seed=7) > -0.3
    found[-1] = False
    return found


def additive(*shape):
    return torch.where(keep(*shape), values(*shape, seed=8), -float("inf"))


def problems():
    yield function("causal", causal, qkv(2, 2, 37), qkv(1, 2, 9))
    yield function("causal_wide", causal, qkv(1, 1, 20, 41), qkv(1, 1, 41, 20))
    yield function(
        "odd_head", plain, qkv(1, 2, 35, 50, depth=12, width=20), qkv(2, 2, 5, 7, depth=12, width=20)
    )
    yield function("merged", merged, (values(2, 37, 48),) * 3, (values(1, 6, 48),) * 3)
    yield function("packed", packed, (values(2, 37, 96),), (values(1, 6, 96),))
    q, k, v = qkv(2, 6, 35), values(2, 2, 40, 16, seed=1), values(2, 2, 40, 16, seed=2)
    yield function("shared_heads", shared, (q[0], k, v))
    yield function("boolean", masked, (*qkv(3, 2, 35), keep(3, 1, 1, 35)), (*qkv(3, 2, 6), keep(3, 1, 1, 6)))
    yield function("additive", masked, (*qkv(3, 2, 20, 33), additive(3, 2, 20, 33)))
    yield function(
        "lowest", masked, (*qkv(1, 1, 20, 33), torch.full((20, 33), torch.finfo(torch.float32).min))
    )
    yield function("scaled", scaled, (*qkv(2, 2, 20, 33), values(20, 33), values(2, 2, 20, 16)))
    yield function("three_dimensions", causal, tuple(t[0] for t in qkv(1, 3, 35)))


def test_every_kind_at_its_best_guess(tmp_path):
    assert check(list(problems()), tmp_path, limit=1) == {}


def test_every_structural_choice(tmp_path):
    table = [next(problems()), function("masked", masked, (*qkv(2, 1, 35), keep(2, 1, 1, 35)))]
    offers = [(p, every_point(p)) for p in table]
    moves = {m.split(":")[0] for _, found in offers for m in (c.move for c in found) if m}
    assert moves == {"dot", "loop", "exponent", "order"}
    assert run(offers, tmp_path) == {}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), "dropout"),
        (lambda q, k, v: F.scaled_dot_product_attention(plain(q, k, v), k, v), "twice"),
        (lambda q, k, v: torch.softmax(plain(q, k, v), -1), r"aten\.softmax\.int beside"),
    ],
)
def test_what_is_not_covered_is_named(call, reason):
    with pytest.raises(ProposalError, match=reason):
        propose(function("refused", call, qkv(1, 2, 8)))


def test_a_single_query_is_stored_whole(tmp_path):
    """A step of decoding: the rows of a tile have no part in the result's offset."""

    def step(columns):
        return values(2, 2, 1, 16), values(2, 2, columns, 16, seed=1), values(2, 2, columns, 16, seed=2)

    assert check([function("one_query", plain, step(9), step(5))], tmp_path, limit=2) == {}
