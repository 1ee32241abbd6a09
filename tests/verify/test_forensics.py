import subprocess
import sys

import pytest
import torch

from mkevolve.verify.forensics import describe
from mkevolve.verify.patterns import place


def test_numbers_that_differ_are_told_apart():
    reference = torch.ones(4, 12, dtype=torch.float64)
    output = torch.ones(4, 12)
    output[1, 11] += 2.0**-22
    line = describe(output, reference, output != reference).text
    assert "first at [1, 11]: 1.0000002 instead of 1;" in line


def test_equal_and_plain_numbers_stay_short():
    reference = torch.ones(3)
    wrong = torch.tensor([True, False, False])
    assert "first at [0]: 0.25 instead of 1;" in describe(torch.full((3,), 0.25), reference, wrong).text
    assert "first at [0]: nan instead of 1;" in describe(torch.full((3,), torch.nan), reference, wrong).text


def test_a_lost_nan_is_named_with_what_loses_it():
    inf, nan = torch.inf, torch.nan
    reference = torch.tensor([nan, 1.0, nan])
    wrong = reference.isnan()
    finite = describe(torch.tensor([0.0, 1.0, 2.0]), reference, wrong).pattern
    mixed = describe(torch.tensor([0.0, 1.0, inf]), reference, wrong).pattern
    assert "finite where the reference is not (tl.maximum" in finite
    assert "a number where the reference is NaN (tl.maximum" in mixed
    assert "tl.argmax" in mixed


def marked(shape, *indices):
    wrong = torch.zeros(shape, dtype=torch.bool)
    for index in indices:
        wrong[index] = True
    return wrong


FOURS = range(8, 64, 16)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (marked((6, 9), ...), "everywhere"),
        (marked((6, 9), (2, 3)), "one element"),
        (marked((6, 9), (slice(None), 4)), "one channel (index 4 of axis 1)"),
        (marked((2, 6, 9), (..., 0)), "border (index 0 of axis 2)"),
        (marked((2, 3, 6, 9), (..., slice(5, 6), slice(None))), "border (index 5 of axis 2)"),
        (marked((6, 9), slice(4, None)), "tail (axis 0 from 4 of 6)"),
        (marked((6, 9), slice(0, 2)), "head (axis 0 up to 1 of 6)"),
        (marked((64, 9), slice(16, 32)), "one block (axis 0 from 16 to 31 of 64)"),
        (marked((64,), slice(3, None, 8)), "stripes (every 8 of axis 0, from 3)"),
        (marked((64,), *(slice(s, s + 4) for s in FOURS)), "stripes (4 of every 16 of axis 0, from 8)"),
        (marked((7, 9), *((i // 9, i % 9) for i in range(40, 63))), "tail (flat from 40 of 63)"),
        (marked((7, 9), *((i // 9, i % 9) for i in range(0, 63, 7))), "stripes (every 7 of flat, from 0)"),
        (marked((2, 6, 9), (..., 0), (..., 8), (..., 0, slice(None))), "border"),
        (marked((9, 9), (1, 2), (5, 7), (3, 3)), ""),
    ],
)  # fmt: skip
def test_places_are_named(wrong, text):
    assert place(wrong) == text


def test_only_what_was_judged_counts():
    judged = marked((64, 8), slice(0, 16), slice(48, None))
    assert place(marked((64, 8), slice(48, None)), judged) == "tail (axis 0 from 48 of 64)"
    assert place(judged, judged) == "everywhere"


def test_long_tensors_have_tails(monkeypatch):
    monkeypatch.setattr("mkevolve.verify.patterns.LONGEST", 100)
    assert place(marked((1000,), slice(900, None))) == "tail (flat from 900 of 1000)"
    assert place(marked((1000,), slice(400, 500))) == ""


@pytest.mark.slow
def test_a_large_result_needs_little_memory():
    """Of 64 MiB here; the share is the same for a GiB."""
    script = """
import resource, torch
from mkevolve.data.graph import TensorSpec
from mkevolve.verify.expected import expect
from mkevolve.verify.numeric import compare
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
torch.set_num_threads(1)
before = peak()
eager = torch.randn(1, 16, 1024, 1024)
want = expect(eager.double(), eager, TensorSpec((1, 16, 1024, 1024), "float32", eager.stride()))
found = compare((torch.where(eager > 3, 0.0, eager),), (want,))
assert found.difference.pattern == "zeros", found
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * 64
