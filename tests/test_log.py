"""Logarithmic numbers against the list of their codes."""

import numpy as np
import pytest

from madl.formats.log import Logarithmic
from tests.reference import probes, quantize, same


@pytest.mark.parametrize(
    ("width", "bias"),
    [*((w, None) for w in range(2, 9)), (4, 0), (4, 1), (4, -5), (8, 64), (9, 128 - 1), (8, 0)],
)
def test_every_code_midpoint_and_neighbour_goes_to_the_nearest_code(width, bias):
    if width == 9:
        with pytest.raises(ValueError, match="leave float32's"):
            Logarithmic(width=width, bias=bias)
        return
    number_format = Logarithmic(width=width, bias=bias)
    bias = 2 ** (width - 2) - 1 if bias is None else bias
    magnitudes = np.array([0.0, *(2.0 ** (field - bias) for field in range(1, 2 ** (width - 1)))])
    values = number_format.values()
    assert values.tolist() == [*(-magnitudes[:0:-1]), *magnitudes]
    x = probes(values)
    assert same(number_format.quantize(x), quantize(x, magnitudes))
