"""Single elements against the list of their codes, ml_dtypes, and torch's own operator."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from madl.formats.fixed import FixedPoint, ScaledInteger, SignMagnitude
from madl.formats.log import Logarithmic
from madl.formats.minifloat import DenormalMinifloat, Minifloat
from tests.reference import floats, probes, quantize, same

SHAPES = [
    *((width, e) for width in range(2, 10) for e in range(1, width)),
    *((12, 5), (16, 5), (16, 6), (16, 8)),
]


def nearest_of_its_codes(number_format, positive, negative=None) -> None:
    """The values are those of the codes, and what lies at, between and beside them goes there."""
    below = positive if negative is None else negative
    values = number_format.values()
    assert values.tolist() == [*(-below[:0:-1]), *positive]
    x = probes(values)
    grid = number_format.grid
    expected = quantize(x, positive, negative=negative, signed=grid.signed_zero)
    if grid.keep_inf:
        expected = torch.where(x.isinf(), x, expected)
    assert same(number_format.quantize(x), expected)


@pytest.mark.parametrize(
    ("width", "frac_width"),
    [(1, 0), (2, 0), (3, 1), (4, 2), (7, -3), (8, 4), (8, 64), (8, -64), (12, 6), (16, 8)],
)
def test_fixed_point(width, frac_width):
    half, step = 2 ** (width - 1), 2.0**-frac_width
    made = FixedPoint(width=width, frac_width=frac_width)
    nearest_of_its_codes(made, np.arange(half) * step, np.arange(half + 1) * step)


@pytest.mark.parametrize("width", [2, 3, 8, 12, 17])
def test_sign_magnitude(width):
    magnitudes = np.arange(2 ** (width - 1)) * 2.0**-5
    nearest_of_its_codes(SignMagnitude(width=width, frac_width=5), magnitudes)


@pytest.mark.parametrize(
    ("width", "bias"), [*((w, None) for w in range(2, 9)), (4, 0), (4, 1), (4, -5), (8, 64), (8, 0)]
)
def test_logarithmic(width, bias):
    made = Logarithmic(width=width, bias=bias)
    bias = 2 ** (width - 2) - 1 if bias is None else bias
    powers = (2.0 ** (field - bias) for field in range(1, 2 ** (width - 1)))
    nearest_of_its_codes(made, np.array([0.0, *powers]))


@pytest.mark.parametrize("specials", ["none", "nan", "ieee"])
@pytest.mark.parametrize(("width", "exponent_width"), SHAPES)
def test_minifloat(width, exponent_width, specials):
    top_field = 2**exponent_width - 1 - (specials == "ieee" or (specials, width) == ("nan", 9))
    if exponent_width == 8 and top_field - 127 > 127:
        with pytest.raises(ValueError, match="leave float32's"):
            Minifloat(width=width, exponent_width=exponent_width, specials=specials)
        return
    bias = 2 ** (exponent_width - 1) - 1
    mantissa_width = width - 1 - exponent_width
    drop = {"none": 0, "nan": 1, "ieee": 2**mantissa_width}[specials]
    magnitudes = floats(exponent_width, mantissa_width, bias=bias, drop=drop)
    if len(magnitudes) < 2:
        with pytest.raises(ValueError, match="only nonzero code"):
            Minifloat(width=width, exponent_width=exponent_width, specials=specials)
        return
    number_format = Minifloat(width=width, exponent_width=exponent_width, specials=specials)
    nearest_of_its_codes(number_format, magnitudes)


@pytest.mark.parametrize(
    ("width", "exponent_width"), [(3, 1), (4, 1), (4, 2), (6, 3), (8, 4), (8, 2), (12, 5), (16, 7)]
)
def test_denormal(width, exponent_width):
    number_format = DenormalMinifloat(width=width, exponent_width=exponent_width)
    mantissa_width, bias = width - 1 - exponent_width, 2 ** (exponent_width - 1) - 1
    magnitudes = {
        mantissa / 2**mantissa_width * 2.0 ** (field - bias)
        for field in range(2**exponent_width)
        for mantissa in range(2**mantissa_width)
    }
    nearest_of_its_codes(number_format, np.array(sorted(magnitudes)))


def test_a_bias_that_leaves_float32_is_refused():
    with pytest.raises(ValueError, match="leave float32's"):
        Logarithmic(width=9, bias=127)


ML_DTYPES = {
    "float4_e2m1fn": Minifloat(width=4, exponent_width=2),
    "float6_e2m3fn": Minifloat(width=6, exponent_width=2),
    "float6_e3m2fn": Minifloat(width=6, exponent_width=3),
    "float8_e3m4": Minifloat(width=8, exponent_width=3, specials="ieee"),
    "float8_e4m3": Minifloat(width=8, exponent_width=4, specials="ieee"),
    "float8_e4m3fn": Minifloat(width=8, exponent_width=4, specials="nan"),
    "float8_e4m3fnuz": Minifloat(width=8, exponent_width=4, bias=8),
    "float8_e4m3b11fnuz": Minifloat(width=8, exponent_width=4, bias=11),
    "float8_e5m2": Minifloat(width=8, exponent_width=5, specials="ieee"),
    "float8_e5m2fnuz": Minifloat(width=8, exponent_width=5, bias=16),
    "bfloat16": Minifloat(width=16, exponent_width=8, specials="ieee"),
}
"""All but float8_e8m0fnu, which has no zero and no sign: it is a scale, not a value."""


@pytest.mark.parametrize("name", ML_DTYPES)
def test_rounding_is_that_of_ml_dtypes_inside_the_range(name):
    number_format = ML_DTYPES[name]
    values = number_format.values()
    assert values is not None
    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * values[-1].sqrt()
    x = torch.cat([probes(values), noise])
    x = x[x.abs() <= number_format.range[1]]  # beyond it ours saturates, some of theirs overflow
    expected = x.numpy().astype(getattr(ml_dtypes, name)).astype(np.float32)
    found, expected = number_format.quantize(x), torch.from_numpy(expected)
    if name.endswith("fnuz"):  # whose code of -0 is its NaN
        found, expected = found + 0.0, expected + 0.0
    assert same(found, expected)


def test_widths_that_float32_can_barely_hold_saturate_and_round_ties_to_even_codes():
    for width in (23, 24, 25, 28, 32):
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
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 4194304.5, 4194305.5])
    q = FixedPoint(width=24, frac_width=0).quantize(x)
    assert q.tolist() == [0, 2, 2, 0, -2, 4194304, 4194306]


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
