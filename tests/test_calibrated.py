"""Clipping, GPTQ and changes of basis: against slow references, and what they must not change."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from madl.compression import calibrated
from madl.formats.blocked import MXFloat, MXInt, RealScale
from madl.formats.scales import block_scales, round_under

FORMATS = [
    MXFloat(exponent_width=2, mantissa_width=1),
    MXInt(width=4, block=16),
    RealScale(element_name="e2m1", scale="e4m3", block=16),
    RealScale(element_name="int4", scale="fp16", block=32),
]
names = pytest.mark.parametrize("number_format", FORMATS, ids=lambda f: f.name)


@pytest.fixture
def weight() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(12, 80) * torch.logspace(-2, 0, 12)[:, None]


@pytest.fixture
def inputs() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(200, 80) @ torch.randn(80, 80) + 0.1


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def slow_scale(largest: float, number_format, peak: float) -> tuple[float, list[float]]:
    """A block's scale and the magnitudes of its elements, from what the formats are defined as."""
    is_float = "e2m1" in number_format.name or number_format.name == "nvfp4"
    magnitudes = E2M1 if is_float else [float(i) for i in range(8)]
    if number_format.name == "mxint4(block=16)":
        magnitudes = [i / 4 for i in range(8)]
    if not isinstance(number_format, RealScale):
        top = math.floor(math.log2(magnitudes[-1]))
        return 2.0 ** (math.floor(math.log2(largest)) - top), magnitudes
    if number_format.scale == "fp16":
        return float(np.float16(np.float32(largest) / np.float32(7))), magnitudes
    tensor = np.float32(peak) / np.float32(448 * 6)
    over = np.float32(largest) / np.float32(6) / tensor
    return float(np.float32(ml_dtypes.float8_e4m3fn(max(over, 2.0**-6))) * tensor), magnitudes


def slow_nearest(x: float, scale: float, magnitudes: list[float]) -> float:
    best = min(magnitudes, key=lambda m: (abs(abs(x) / scale - m), magnitudes.index(m) % 2))
    return math.copysign(best * scale, x)


@names
def test_a_clipped_block_has_the_least_squared_error_of_all_shares(weight, number_format):
    clipped, peak = calibrated.clipped(weight, number_format), float(weight.abs().max())
    for row, start in product(range(len(weight)), range(0, 80, number_format.block)):
        block = weight[row, start : start + number_format.block].tolist()
        errors = []
        for share in calibrated.SHARES:
            most = float(np.float32(max(map(abs, block))) * np.float32(share))
            scale, magnitudes = slow_scale(most, number_format, peak)
            values = [slow_nearest(x, scale, magnitudes) for x in block]
            errors.append(sum((a - b) ** 2 for a, b in zip(values, block, strict=True)))
        own = clipped[row, start : start + number_format.block]
        error = sum((a - b) ** 2 for a, b in zip(own.tolist(), block, strict=True))
        assert error == pytest.approx(min(errors), rel=1e-4)


@names
def test_a_scale_apart_from_its_values_is_that_of_the_format(weight, number_format):
    blocks = torch.nn.functional.pad(weight, (0, -80 % number_format.block))
    blocks = blocks.unflatten(-1, (-1, number_format.block))
    largest, peak = blocks.abs().amax(-1, keepdim=True), weight.abs().amax()
    scales = block_scales(largest, number_format, peak)
    found = round_under(blocks, scales, number_format).flatten(-2)[:, :80]
    assert torch.equal(found, number_format.quantize(weight))


def slow_gptq(weight, hessian, number_format, damping):
    """Optimal brain quantization in order, the inverse Hessian updated a column at a time."""
    weight = weight.double().clone()
    hessian = hessian.double().clone()
    hessian += damping * hessian.diagonal().mean() * torch.eye(len(hessian))
    inverse = torch.linalg.inv(hessian)
    values, peak = torch.zeros_like(weight), float(weight.abs().amax())
    for i in range(weight.shape[1]):
        if i % number_format.block == 0:
            largest = weight[:, i : i + number_format.block].abs().amax(-1).tolist()
            scales = [slow_scale(most, number_format, peak) for most in largest]
        for row, (x, under) in enumerate(zip(weight[:, i].tolist(), scales, strict=True)):
            values[row, i] = slow_nearest(x, *under)
        error = (weight[:, i] - values[:, i]) / inverse[i, i]
        weight -= error[:, None] * inverse[i]
        inverse -= torch.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    return values


@names
def test_gptq_spreads_errors_as_the_update_one_by_one_does_and_lowers_them(
    weight, inputs, number_format
):
    hessian = calibrated.Hessian(80)
    for part in inputs.split(64):
        hessian.add(part[None])
    found = calibrated.gptq(weight, hessian.sum, number_format)
    expected = slow_gptq(weight, inputs.T @ inputs, number_format, calibrated.DAMPING).float()
    assert (found != expected).float().mean() < 0.02  # ties that float32 decides otherwise
    error, plain = (
        ((q - weight) @ inputs.T).norm() for q in (found, number_format.quantize(weight))
    )
    assert error < 0.8 * plain
    for row, start in product(range(len(weight)), range(0, 80, number_format.block)):
        block = found[row, start : start + number_format.block]
        assert len(block.abs().unique()) <= 8  # codes of four bits under one scale


def test_gptq_of_inputs_alike_is_rounding_and_what_was_never_met_becomes_zero(weight):
    number_format = FORMATS[0]
    torch.testing.assert_close(
        calibrated.gptq(weight, torch.eye(80), number_format), number_format.quantize(weight)
    )
    hessian = torch.eye(80)
    hessian[5, 5] = 0
    assert not calibrated.gptq(weight, hessian, number_format)[:, 5].any()


@pytest.mark.parametrize("block", [16, 80])
def test_another_basis_changes_no_output(weight, inputs, block):
    def linear() -> nn.Linear:
        layer = nn.Linear(80, 12)
        layer.weight = nn.Parameter(weight.clone())
        nn.init.zeros_(layer.bias)
        return layer

    expected = inputs @ weight.T
    factors = torch.ones(80)
    factors[:4] = 32
    bases = [calibrated.scaled(linear(), factors)]
    if block == 16:
        bases.append(calibrated.rotated(linear(), block))
        bases.append(calibrated.rotated(calibrated.scaled(linear(), factors), block))
    for basis in bases:
        torch.testing.assert_close(basis(inputs), expected, rtol=1e-4, atol=1e-4)
        seen, mapped = calibrated.Hessian(80), calibrated.Hessian(80)
        seen.add(inputs)
        mapped.add(basis.into(inputs))
        torch.testing.assert_close(seen.mapped(basis.into), mapped.sum, rtol=1e-3, atol=1.0)
    with pytest.raises(ValueError, match="power of two"):
        calibrated.hadamard(12)
    with pytest.raises(ValueError, match="do not divide"):
        calibrated.rotated(linear(), 32)


def test_smoothing_makes_inputs_and_weights_meet_half_way(weight, inputs):
    largest = inputs.abs().amax(0)
    factors = calibrated.smoothing(weight, largest)
    torch.testing.assert_close(largest * factors, (weight / factors).abs().amax(0))


def test_a_rotation_spreads_an_outlier_over_its_block(inputs):
    inputs[:, 3] *= 100
    turned = (inputs.unflatten(-1, (-1, 16)) @ calibrated.hadamard(16)).flatten(-2)
    torch.testing.assert_close(turned.norm(dim=-1), inputs.norm(dim=-1))
    assert turned[:, :16].abs().amax(-1).mean() < 0.5 * inputs[:, :16].abs().amax(-1).mean()
