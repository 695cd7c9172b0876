"""Block formats against a block-by-block search."""

import math

import numpy as np
import pytest
import torch

from madl.formats.blocked import BlockFloat, BlockLog, BlockMinifloat, MXFloat, MXInt
from tests.reference import quantize_rows, same


def samples(columns: int = 75, *, spread: float = 6.0) -> torch.Tensor:
    """Rows of very different size, with exact zeros, powers of two and ties among them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, columns, generator=generator)
    x *= torch.exp2(spread * torch.randn(40, 1, generator=generator)).round(decimals=0) + 0.01
    x[:, ::7] = torch.exp2(torch.randint(-6, 6, x[:, ::7].shape, generator=generator).float())
    x[:, ::11] = (x[:, ::11] * 4).round() / 4 + 0.125
    x[0] = 0.0
    x[1, :20] = -0.0
    return x


def integers(mantissa_width: int) -> np.ndarray:
    return np.arange(2**mantissa_width) / 2.0 ** (mantissa_width - 1)


def floats(exponent_width: int, mantissa_width: int, *, bias: int, drop: int = 0) -> np.ndarray:
    codes = [
        (m + 2**mantissa_width * (e > 0)) * 2.0 ** (max(e, 1) - bias - mantissa_width)
        for e in range(2**exponent_width)
        for m in range(2**mantissa_width)
    ]
    return np.array(codes[: len(codes) - drop])


MX_ELEMENTS = [(4, 3, 7, 1), (5, 2, 15, 4), (3, 2, 3, 0), (2, 3, 1, 0), (2, 1, 1, 0)]


def families(block: int):
    """Each format with its magnitudes under scale one, and the range of scales."""
    for mantissa, exponent in ((1, 8), (3, 8), (7, 8), (3, 3)):
        half = 2 ** (exponent - 1)
        made = BlockFloat(mantissa_width=mantissa, exponent_width=exponent, block=block)
        yield made, integers(mantissa), (1 - half, min(half, 127))
    for width, exponent, bias in ((4, 2, 8), (8, 4, 8), (8, 3, 4), (6, 5, 8), (4, 3, 8)):
        made = BlockMinifloat(width=width, exponent_width=exponent, bias_width=bias, block=block)
        half = 2 ** (bias - 1)
        top = min(half, 128 - 2**exponent)
        yield made, floats(exponent, width - 1 - exponent, bias=0), (1 - half, top)
    for width, bias in ((2, 8), (4, 8), (6, 5), (8, 8)):
        powers = np.array([0.0, *(2.0**field for field in range(1, 2 ** (width - 1)))])
        half = 2 ** (bias - 1)
        top = min(half, 128 - 2 ** (width - 1))
        yield BlockLog(width=width, bias_width=bias, block=block), powers, (1 - half, top)
    for width in (2, 4, 8, 12):
        yield MXInt(width=width, block=block), integers(width - 1), (-127, 127)
    for exponent, mantissa, bias, drop in MX_ELEMENTS:
        made = MXFloat(exponent_width=exponent, mantissa_width=mantissa, block=block)
        yield made, floats(exponent, mantissa, bias=bias, drop=drop), (-127, 127)


@pytest.mark.parametrize("block", [1, 3, 16, 32, 75, 100])
def test_each_block_goes_to_the_nearest_under_its_scale(block):
    x = samples()
    for made, magnitudes, scales in families(block):
        power = isinstance(made, BlockLog)
        expected = quantize_rows(
            x, magnitudes, block=block, scale_exponents=scales, nearest_power=power
        )
        assert same(made.quantize(x), expected), made.name


ALL = [
    BlockFloat(mantissa_width=7),
    BlockMinifloat(width=8, exponent_width=4),
    BlockLog(width=8),
    BlockLog(width=4),
    MXInt(),
    MXFloat(exponent_width=4, mantissa_width=3),
    MXFloat(exponent_width=5, mantissa_width=2),
]


@pytest.mark.parametrize("number_format", ALL, ids=lambda f: f.name)
def test_a_nan_takes_its_block_and_infinity_saturates_to_a_value_that_is_kept(number_format):
    x = torch.ones(2, 70)
    x[0, 5] = math.nan
    q = number_format.quantize(x)
    assert q[0, : number_format.block].isnan().all()
    assert q.isnan().sum() == number_format.block
    x = torch.full((1, 40), 3e38)
    x[0, 3], x[0, 4] = math.inf, -math.inf
    q = number_format.quantize(x)
    assert q.isfinite().all()
    assert q[0, 3] == -q[0, 4] == q.max() >= 2.0**127
    assert same(number_format.quantize(q), q)


@pytest.mark.parametrize("number_format", ALL, ids=lambda f: f.name)
@pytest.mark.parametrize("exponent", [-149, -140, -130, -127, -126, -120, 100, 120, 126])
def test_the_ends_of_float32_stay_finite_idempotent_and_near(number_format, exponent):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(8, 64, generator=generator).clamp(-1.9, 1.9) * 2.0**exponent
    q = number_format.quantize(x)
    assert q.isfinite().all()
    assert same(number_format.quantize(q), q)
    assert ((q - x).abs() <= x.abs().amax() / 2 + 2.0**-126).all()
