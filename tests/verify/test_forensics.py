import torch

from mkevolve.verify.forensics import describe


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
