"""Fixed point against the list of its codes, scaled integers against torch's own operator."""

import math

import numpy as np
import pytest
import torch

from madl.formats.fixed import FixedPoint, ScaledInteger, SignMagnitude
from tests.reference import probes, quantize, same

WIDTHS = [(1, 0), (2, 0), (3, 1), (4, 2), (7, -3), (8, 4), (8, 64), (8, -64), (12, 6), (16, 8)]


@pytest.mark.parametrize(("width", "frac_width"), WIDTHS)
def test_every_code_midpoint_and_neighbour_goes_to_the_nearest_code(width, frac_width):
    half, step = 2 ** (width - 1), 2.0**-frac_width
    positive = np.arange(half) * step
    negative = np.arange(half + 1) * step
    number_format = FixedPoint(width=width, frac_width=frac_width)
    values = number_format.values()
    assert values is not None
    assert values.tolist() == [*(-negative[:0:-1]), *positive]
    x = probes(values)
    assert same(number_format.quantize(x), quantize(x, positive, negative=negative))


@pytest.mark.parametrize("width", [2, 3, 8, 12, 17])
def test_sign_magnitude_is_symmetric_and_nearest(width):
    number_format = SignMagnitude(width=width, frac_width=5)
    magnitudes = np.arange(2 ** (width - 1)) * 2.0**-5
    values = number_format.values()
    assert values.tolist() == [*(-magnitudes[:0:-1]), *magnitudes]
    x = probes(values)
    assert same(number_format.quantize(x), quantize(x, magnitudes))


@pytest.mark.parametrize("width", [23, 24, 25, 28, 32])
def test_widths_that_float32_can_barely_hold_saturate_inside_the_range(width):
    number_format = FixedPoint(width=width, frac_width=width - 4)
    low, high = number_format.range
    x = torch.tensor([math.inf, -math.inf, 1e30, -1e30, 1.0, -0.0, math.nan])
    q = number_format.quantize(x).double()
    assert q[0] == q[2]
    assert low <= q[0] <= high
    assert q[1] == q[3] == low
    assert q[4] == 1.0
    assert math.copysign(1.0, q[5].item()) == 1.0
    assert q[6].isnan()


def test_wide_fixed_point_rounds_ties_to_even_codes():
    number_format = FixedPoint(width=24, frac_width=0)
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 4194304.5, 4194305.5])
    assert number_format.quantize(x).tolist() == [0, 2, 2, 0, -2, 4194304, 4194306]


@pytest.mark.parametrize("width", [2, 4, 8])
def test_scaled_equals_torch_bit_for_bit(width):
    x = torch.randn(64, 50, generator=torch.Generator().manual_seed(0))
    largest = 2 ** (width - 1) - 1
    scale = x.abs().amax(1) / largest
    by_tensor = scale.max().item()
    expected = torch.fake_quantize_per_tensor_affine(x, by_tensor, 0, -largest, largest)
    assert same(ScaledInteger(width=width, per="tensor").quantize(x), expected + 0.0)
    zero = torch.zeros(64, dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -largest, largest)
    assert same(ScaledInteger(width=width).quantize(x), expected + 0.0)


def test_scaled_takes_extremes_without_nan():
    x = torch.tensor([[0.0, -0.0, 0.0], [math.inf, 1.0, -math.inf], [1e-44, 0.0, -1e-44]])
    q = ScaledInteger(width=8).quantize(x)
    assert q[0].tolist() == [0.0, 0.0, 0.0]
    limit = torch.finfo(torch.float32).max
    torch.testing.assert_close(q[1], torch.tensor([limit, 0.0, -limit]))
    assert q[2].abs().max() <= 2.0**-126
    rows = ScaledInteger(width=8).quantize(torch.tensor([[math.nan, 1.0], [0.5, 1.0]]))
    assert rows[0].isnan().all()
    assert not rows[1].isnan().any()
