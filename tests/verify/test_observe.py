import warnings

import pytest
import torch

from mkevolve.verify.observe import observation


def test_complex_values_are_described_by_their_magnitude_without_a_warning():
    values = torch.tensor([3 + 4j, 0j, complex(0, float("inf"))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = observation("sg", (("check_1", (values,)),), ()).statistics
    assert (found.low, found.high, found.mean, found.special) == (0.0, 5.0, 2.5, True)
    assert found.zeros == pytest.approx(0.5)
