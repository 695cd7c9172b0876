"""Minifloats bit for bit against ml_dtypes, and against the list of their codes."""

import ml_dtypes
import numpy as np
import pytest
import torch

from madl.formats.minifloat import DenormalMinifloat, Minifloat
from tests.reference import probes, quantize, same

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

SHAPES = [
    *((width, e) for width in range(2, 10) for e in range(1, width)),
    *((12, 5), (16, 5), (16, 6), (16, 8)),
]


@pytest.mark.parametrize("name", ML_DTYPES)
def test_rounding_is_that_of_ml_dtypes_inside_the_range(name):
    number_format = ML_DTYPES[name]
    values = number_format.values()
    assert values is not None
    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * values[-1].sqrt()
    x = torch.cat([probes(values), noise])
    x = x[x.abs() <= number_format.range[1]]  # beyond it ours saturates, some of theirs overflow
    expected = x.numpy().astype(getattr(ml_dtypes, name)).astype(np.float32)
    assert same(number_format.quantize(x), torch.from_numpy(expected) + 0.0)


def magnitudes_of(width: int, exponent_width: int, *, bias: int, specials: str) -> np.ndarray:
    mantissa_width = width - 1 - exponent_width
    found = []
    for field in range(2**exponent_width):
        for mantissa in range(2**mantissa_width):
            if specials == "ieee" and field == 2**exponent_width - 1:
                continue
            fraction = mantissa / 2**mantissa_width
            significand = 1 + fraction if field > 0 else fraction
            found.append(significand * 2.0 ** (max(field, 1) - bias))
    return np.array(found[:-1] if specials == "nan" else found)


@pytest.mark.parametrize("specials", ["none", "nan", "ieee"])
@pytest.mark.parametrize(("width", "exponent_width"), SHAPES)
def test_every_code_midpoint_and_neighbour_goes_to_the_nearest_code(
    width, exponent_width, specials
):
    top_field = 2**exponent_width - 1 - (specials == "ieee" or (specials, width) == ("nan", 9))
    if exponent_width == 8 and top_field - 127 > 127:
        with pytest.raises(ValueError, match="leave float32's"):
            Minifloat(width=width, exponent_width=exponent_width, specials=specials)
        return
    bias = 2 ** (exponent_width - 1) - 1
    magnitudes = magnitudes_of(width, exponent_width, bias=bias, specials=specials)
    if len(magnitudes) < 2:
        with pytest.raises(ValueError, match="only nonzero code"):
            Minifloat(width=width, exponent_width=exponent_width, specials=specials)
        return
    number_format = Minifloat(width=width, exponent_width=exponent_width, specials=specials)
    values = number_format.values()
    assert values.tolist() == [*(-magnitudes[:0:-1]), *magnitudes]
    x = probes(values)
    expected = quantize(x, magnitudes)
    if specials == "ieee":
        expected = torch.where(x.isinf(), x, expected)
    assert same(number_format.quantize(x), expected)


@pytest.mark.parametrize(
    ("width", "exponent_width"), [(3, 1), (4, 1), (4, 2), (6, 3), (8, 4), (8, 2), (12, 5), (16, 7)]
)
def test_denormal_goes_to_the_nearest_of_its_codes(width, exponent_width):
    number_format = DenormalMinifloat(width=width, exponent_width=exponent_width)
    mantissa_width, bias = width - 1 - exponent_width, 2 ** (exponent_width - 1) - 1
    magnitudes = {
        mantissa / 2**mantissa_width * 2.0 ** (field - bias)
        for field in range(2**exponent_width)
        for mantissa in range(2**mantissa_width)
    }
    values = number_format.values()
    assert values is not None
    assert values[values >= 0].tolist() == sorted(magnitudes)
    x = probes(values)
    assert same(number_format.quantize(x), quantize(x, np.array(sorted(magnitudes))))
