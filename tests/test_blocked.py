"""Block formats against a block-by-block search."""

import math

import numpy as np
import pytest
import torch

from madl.formats.blocked import BlockFloat, BlockLog, BlockMinifloat, MXFloat, MXInt, RealScale
from madl.formats.grid import ROW
from tests.reference import floats, nearest, quantize_rows, same


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
        how = {
            "nearest_power": isinstance(made, BlockLog),
            "signed": isinstance(made, BlockMinifloat | MXFloat) and made.grid.mantissa_bits > 0,
        }
        expected = quantize_rows(x, magnitudes, block=block, scale_exponents=scales, **how)
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


def exponent_by(rule: str, largest: float, top: int, mantissa: int, highest: float) -> int:
    """The exponent of a block's scale as the rule's definition has it, in float64."""
    match rule:
        case "floor":
            return math.floor(math.log2(largest)) - top
        case "ceil":
            return math.ceil(math.log2(largest)) - top
        case "rceil":
            return math.ceil(math.log2(largest / highest))
        case _:  # rounded to the element's mantissa first, half away from zero
            fraction, exponent = math.frexp(largest)  # 0.5 … 1
            steps = math.floor(fraction * 2 ** (mantissa + 1) + 0.5)
            return math.floor(math.log2(steps * 2.0 ** (exponent - mantissa - 1))) - top


@pytest.mark.parametrize("rule", ["floor", "ceil", "rceil", "even"])
@pytest.mark.parametrize(("exponent", "mantissa", "bias", "drop"), MX_ELEMENTS)
def test_a_scale_s_exponent_is_rounded_as_its_rule_says(rule, exponent, mantissa, bias, drop):
    made = MXFloat(exponent_width=exponent, mantissa_width=mantissa, rule=rule)
    magnitudes = floats(exponent, mantissa, bias=bias, drop=drop)
    x = samples(64)
    x[2:] += torch.where(x[2:] == 0, 1.0, 0.0)  # no block of zeros
    top = math.floor(math.log2(magnitudes[-1]))
    for row, q in zip(x[2:], made.quantize(x)[2:], strict=True):
        for part, found in zip(row.view(2, 32), q.view(2, 32), strict=True):
            largest = float(part.abs().amax())
            scale = 2.0 ** exponent_by(rule, largest, top, mantissa, magnitudes[-1])
            expected = nearest(part.double().numpy() / scale, magnitudes, signed=True) * scale
            assert same(found.clone(), torch.from_numpy(expected).float())


FP4, INT4 = floats(2, 1, bias=1), np.arange(8.0)
E4M3 = floats(4, 3, bias=7, drop=1)


@pytest.mark.parametrize(("element", "magnitudes"), [("e2m1", FP4), ("int4", INT4)])
@pytest.mark.parametrize("scale", ["e4m3", "fp16"])
@pytest.mark.parametrize("block", [16, 32, ROW])
def test_a_real_scale_is_the_largest_over_the_largest_element_rounded(
    element, magnitudes, scale, block
):
    made, x = RealScale(element_name=element, scale=scale, block=block), samples(75)
    high = np.float32(magnitudes[-1])
    tensor = np.float32(x.abs().amax().item()) / np.float32(448 * high)
    q = made.quantize(x)
    for row, found in zip(x, q, strict=True):
        for start in range(0, len(row), min(block, len(row))):
            part = row[start : start + block].numpy()
            over = np.abs(part).max() / high  # float32 throughout, in torchao's order
            if scale == "e4m3":
                own = np.float32(nearest(np.array([max(over / tensor, 2.0**-6)]), E4M3)[0])
                inverse, scaled = (np.float32(1) / tensor) / own, own * tensor
            else:
                own = scaled = np.float32(np.float16(min(over, 65504)))
                inverse = np.float32(1) / own if own > 0 else np.float32(0)
            signed = element == "e2m1"
            expected = nearest(np.float64(part * inverse), magnitudes, signed=signed)
            expected = torch.from_numpy(expected.astype(np.float32) * scaled)
            assert same(found[start : start + block].clone(), expected), (made.name, start)


def test_a_real_scale_counts_its_bits_and_a_nan_takes_its_block():
    nvfp4 = RealScale(element_name="e2m1", scale="e4m3", block=16)
    assert (nvfp4.name, nvfp4.bits) == ("nvfp4", 4.5)
    by_row = RealScale(element_name="int4", scale="fp16", block=ROW)
    assert (by_row.name, by_row.bits) == ("int4(fp16,block=row)", 4.0)
    x = torch.ones(2, 70)
    x[0, 5], x[1, 3] = math.nan, math.inf
    q = nvfp4.quantize(x)
    assert (q[0, :16].isnan().all(), int(q.isnan().sum())) == (True, 16)
    assert q[1].isfinite().all()
    assert torch.equal(nvfp4.quantize(torch.zeros(3, 20)), torch.zeros(3, 20))
    with pytest.raises(ValueError, match="elements e2m1, int4 under scales"):
        RealScale(element_name="e3m0", scale="e4m3", block=16)
