import math

import pytest
import torch

from mkevolve.data.graph import TensorSpec
from mkevolve.data.verdict import Status
from mkevolve.verify.expected import expect, tolerance
from mkevolve.verify.numeric import compare, shape_fault


def spec(*shape, dtype="float32"):
    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorSpec(shape, dtype, stride)


def expected(wide, dtype="float32"):
    eager = wide.to(getattr(torch, dtype))
    return expect(wide, eager, spec(*wide.shape, dtype=dtype))


@pytest.fixture
def wide():
    torch.manual_seed(0)
    return torch.randn(6, 8, 10, dtype=torch.float64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_rounded_reference_passes_in_its_dtype(wide, dtype):
    given = wide.to(getattr(torch, dtype))
    found = compare((given,), (expected(wide, dtype),))
    assert found.status is Status.PASSED
    assert found.compared == wide.numel()
    assert found.error <= found.allowed


@pytest.mark.parametrize(("dtype", "narrow"), [("float32", "float16"), ("float16", "bfloat16")])
def test_a_narrower_result_does_not(wide, dtype, narrow):
    given = wide.to(getattr(torch, narrow)).to(getattr(torch, dtype))
    assert compare((given,), (expected(wide, dtype),)).status is Status.WRONG_VALUE


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1 + 1e-4), ("bfloat16", 1.02)])
def test_a_small_error_everywhere_is_found(wide, dtype, scale):
    given = (wide * scale).to(getattr(torch, dtype))
    found = compare((given,), (expected(wide, dtype),))
    assert found.status is Status.WRONG_VALUE
    assert found.error > found.allowed


def test_one_wrong_element_is_found_and_named(wide):
    given = wide.float()
    given[2, 3, 4] += 1e-3
    found = compare((given,), (expected(wide),))
    assert found.status is Status.WRONG_VALUE
    assert "1 of 480 elements" in found.message
    assert "[2, 3, 4]" in found.message


def test_only_written_elements_are_compared(wide):
    given = wide.float()
    given[3:] = float("nan")
    written = torch.zeros(wide.shape, dtype=torch.bool)
    written[:3] = True
    found = compare((given,), (expected(wide),), (written,))
    assert found.status is Status.PASSED
    assert found.compared == 240
    assert compare((given,), (expected(wide),)).status is Status.WRONG_VALUE


@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
def test_special_values_must_be_where_the_reference_has_them(wide, special):
    wide[1, 2, 3] = special
    right = wide.float()
    assert compare((right,), (expected(wide),)).status is Status.PASSED
    for other in (0.0, float("nan"), float("inf"), float("-inf")):
        wrong = right.clone()
        wrong[1, 2, 3] = other
        same = torch.equal(wrong.nan_to_num(7.0), right.nan_to_num(7.0))
        assert (compare((wrong,), (expected(wide),)).status is Status.PASSED) == same


def test_a_special_value_too_many_is_wrong(wide):
    given = wide.float()
    given[0, 0, 0] = float("nan")
    assert compare((given,), (expected(wide),)).status is Status.WRONG_VALUE


def test_what_overflows_the_dtype_is_not_judged():
    wide = torch.tensor([1.0, 2.0, 1e6], dtype=torch.float64)
    want = expected(wide, "float16")
    found = compare((torch.tensor([1.0, 2.0, 5.0], dtype=torch.float16),), (want,))
    assert found.status is Status.PASSED
    assert found.compared == 2


def test_integers_and_booleans_are_exact():
    numbers = torch.arange(12).reshape(3, 4)
    want = expect(numbers, numbers, spec(3, 4, dtype="int64"))
    assert compare((numbers.clone(),), (want,)).status is Status.PASSED
    assert compare((numbers + (numbers == 5),), (want,)).status is Status.WRONG_VALUE
    flags = numbers > 4
    want = expect(flags, flags, spec(3, 4, dtype="bool"))
    assert compare((~flags,), (want,)).status is Status.WRONG_VALUE


def test_an_ill_conditioned_case_allows_what_the_last_bit_does(wide):
    off = wide + 1e-4 * torch.sign(wide)
    assert compare((off.float(),), (expected(wide),)).status is Status.WRONG_VALUE
    want = expect(wide, wide.float(), spec(*wide.shape), near=wide + 5e-5)
    assert compare((off.float(),), (want,)).status is Status.PASSED


def test_a_tiny_output_has_a_tiny_bound(wide):
    small = wide * 1e-12
    assert compare((torch.zeros(wide.shape),), (expected(small),)).status is Status.WRONG_VALUE
    assert compare((small.float(),), (expected(small),)).status is Status.PASSED


def test_a_float32_reference_has_a_wider_bound(wide):
    small = expected(wide)
    want = tolerance(wide.float(), spec(*wide.shape), small)
    assert want.allowed == pytest.approx(4 * small.allowed)
    assert compare((wide.float(),), (want,)).status is Status.PASSED
    assert compare((wide.float() * 1.001,), (want,)).status is Status.WRONG_VALUE


def test_empty_outputs_compare_nothing():
    empty = torch.zeros(0, 4, dtype=torch.float64)
    found = compare((empty.float(),), (expected(empty),))
    assert found.status is Status.PASSED
    assert found.compared == 0


def test_large_tensors_are_compared_in_pieces(wide, monkeypatch):
    monkeypatch.setattr("mkevolve.verify.chunks.CHUNK", 100)
    given = wide.float()
    assert compare((given,), (expected(wide),)).compared == wide.numel()
    given[5, 7, 9] = 3.0
    assert "[5, 7, 9]" in compare((given,), (expected(wide),)).message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: (t, t), "2 results"),
        (lambda t: (t[:2],), "shape"),
        (lambda t: (t.half(),), "float16"),
        (lambda t: (t.transpose(0, 1).contiguous().transpose(0, 1),), "strides"),
    ],
)
def test_shape_faults_are_named(wide, change, text):
    assert text in shape_fault(change(wide.float()), (spec(6, 8, 10),))


def test_strides_of_axes_of_one_element_do_not_matter():
    tensor = torch.zeros(1, 4).as_strided((1, 4), (99, 1))
    assert shape_fault((tensor,), (spec(1, 4),)) == ""


PATTERNS = {
    "scale": lambda r: r * 1.5,
    "shift": lambda r: r + 0.3,
    "zeros": lambda r: r * 0,
    "one constant": lambda r: r * 0 + 2.0,
    "NaN": lambda r: r * float("nan"),
    "one channel (index 3 of axis 1)": lambda r: _set(r, (slice(None), 3)),
    "border": lambda r: _frame(r),
    "tail (axis 0 from 4 of 6)": lambda r: _set(r, (slice(4, None),)),
    "noise": lambda r: r + torch.randn(r.shape, dtype=r.dtype),
}


def _set(r, index):
    r = r.clone()
    r[index] += torch.randn(r[index].shape, dtype=r.dtype)
    return r


def _frame(r):
    r = r.clone()
    inner = r[..., 1:-1, 1:-1].clone()
    r += torch.randn(r.shape, dtype=r.dtype)
    r[..., 1:-1, 1:-1] = inner
    return r


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_is_named(wide, name):
    found = compare((PATTERNS[name](wide).float(),), (expected(wide),))
    assert name in found.message


def test_transposed_is_named():
    torch.manual_seed(0)
    wide = torch.randn(4, 7, 7, dtype=torch.float64)
    found = compare((wide.transpose(1, 2).float().contiguous(),), (expected(wide),))
    assert "transposed (axes 1 and 2)" in found.message
