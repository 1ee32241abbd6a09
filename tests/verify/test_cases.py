import pytest
import torch
from verify_subjects import graph, spec

from mkevolve.data.graph import Ref, TensorSpec
from mkevolve.verify.cases import Distribution, draw
from mkevolve.verify.observe import lay_out, observation

DRAWN = [d for d in Distribution if d not in (Distribution.CAPTURED, Distribution.EMPHASIS)]


def _subject(*activations, params=()):
    ops = (("aten.add.Tensor", (Ref("x0"), Ref("x0"))),)
    made = graph(activations, params, ops)
    return made, observation("sg", (("check_0", activations),), params)


@pytest.mark.parametrize("distribution", [Distribution.CAPTURED, *DRAWN])
def test_same_arguments_give_the_same_tensors(distribution):
    torch.manual_seed(0)
    made, seen = _subject(torch.randn(4, 6), params=(torch.randn(6),))
    one = draw(made, seen, "check_0", distribution, 3)
    two = draw(made, seen, "check_0", distribution, 3)
    assert one is not None
    assert two is not None
    for a, b in zip(one[0] + one[1], two[0] + two[1], strict=True):
        assert torch.equal(a.nan_to_num(9.0), b.nan_to_num(9.0))
    if distribution is Distribution.REDRAW:
        other = draw(made, seen, "check_0", distribution, 4)
        assert other is not None
        assert not torch.equal(one[0][0], other[0][0])
        assert not torch.equal(one[1][0], other[1][0])


@pytest.mark.parametrize("distribution", DRAWN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_strides_and_dtypes_are_those_of_the_graph(distribution, dtype):
    x = torch.randn(2, 8, 5, 6).to(dtype).to(memory_format=torch.channels_last)
    made, seen = _subject(x)
    drawn = draw(made, seen, "check_0", distribution, 0)
    assert drawn is not None
    assert spec(drawn[0][0]) == spec(x)


def test_captured_is_what_was_seen_and_missing_sizes_are_none():
    x, w = torch.randn(4, 6), torch.randn(6)
    made, seen = _subject(x, params=(w,))
    drawn = draw(made, seen, "check_0", Distribution.CAPTURED, 0)
    assert drawn is not None
    assert torch.equal(drawn[0][0], x)
    assert torch.equal(drawn[1][0], w)
    other, _ = _subject(torch.randn(5, 6), params=(w,))
    assert draw(other, seen, "check_9", Distribution.CAPTURED, 0) is None


def test_what_was_not_negative_stays_so():
    x = torch.rand(40, 50) + 0.5
    made, seen = _subject(x, params=(torch.rand(50) + 1.0,))
    for distribution in (Distribution.REDRAW, Distribution.LARGE, Distribution.TINY, Distribution.OFFSET):
        drawn = draw(made, seen, "check_0", distribution, 1)
        assert drawn is not None
        assert bool((drawn[0][0] >= 0).all())
        assert bool((drawn[1][0] >= 0.5).all())  # a variance stays away from zero


def test_constant_parameters_are_drawn_apart():
    made, seen = _subject(torch.randn(4, 50), params=(torch.ones(50), torch.zeros(50)))
    drawn = draw(made, seen, "check_0", Distribution.REDRAW, 0)
    assert drawn is not None
    ones, zeros = drawn[1]
    assert float(ones.std()) > 0.1
    assert bool((ones > 0).all())
    assert float(zeros.std()) > 0.1


def test_integers_booleans_and_masks_stay_valid():
    index = torch.randint(3, 17, (30, 4))
    flags = torch.rand(30, 4) < 0.2
    mask = torch.zeros(30, 4).masked_fill(flags, float("-inf"))
    made, seen = _subject(index, flags, mask)
    for distribution in DRAWN:
        drawn = draw(made, seen, "check_0", distribution, 5)
        assert drawn is not None
        assert int(drawn[0][0].min()) >= 3
        assert int(drawn[0][0].max()) <= 16
        assert drawn[0][1].dtype == torch.bool
        assert set(drawn[0][2].nan_to_num(1.0, 1.0, -1.0).unique().tolist()) <= {0.0, -1.0, 1.0}


def test_sizes_of_the_special_draws():
    made, seen = _subject(torch.randn(20, 30))

    def drawn(distribution, attempt=0):
        found = draw(made, seen, "check_0", distribution, 0, attempt)
        assert found is not None
        return found[0][0]

    assert float(drawn(Distribution.LARGE).abs().max()) > 150
    assert float(drawn(Distribution.LARGE, 1).abs().max()) < 80
    assert float(drawn(Distribution.TINY).abs().max()) < 1e-3
    assert not bool(drawn(Distribution.ZEROS).any())
    assert 0 < int((drawn(Distribution.ZEROS, 1) == 0).all(1).sum()) < 20
    rows = drawn(Distribution.CONSTANT_ROWS)
    assert bool((rows == rows[:, :1]).all())
    offset = drawn(Distribution.OFFSET)
    assert float(offset.mean() / offset.std()) > 500
    special = drawn(Distribution.NONFINITE)
    assert int(special.isnan().sum()) == 1
    assert int(special.isinf().sum()) == 2


def test_zeros_of_a_sparse_input_stay():
    x = torch.randn(50, 60).relu()
    made, seen = _subject(x)
    drawn = draw(made, seen, "check_0", Distribution.REDRAW, 0)
    assert drawn is not None
    assert float((drawn[0][0] == 0).float().mean()) == pytest.approx(0.5, abs=0.05)


def test_lay_out_with_a_stride_of_zero():
    made = lay_out(torch.arange(4.0).reshape(4, 1).expand(4, 3), TensorSpec((4, 3), "float32", (1, 0)))
    assert made.stride() == (1, 0)
    assert made[:, 2].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert lay_out(torch.zeros(0, 3), TensorSpec((0, 3), "float32", (3, 1))).numel() == 0
