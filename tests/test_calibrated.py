"""Clipping, GPTQ and changes of basis: against slow references, and what they must not change."""

from itertools import product

import pytest
import torch
from torch import nn

from madl.compression import calibrated
from madl.formats.blocked import MXFloat, MXInt, RealScale

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


@names
def test_a_clipped_block_has_the_least_squared_error_of_all_shares(weight, number_format):
    clipped = calibrated.clipped(weight, number_format)
    for row, start in product(range(len(weight)), range(0, 80, number_format.block)):
        block = weight[:, start : start + number_format.block]
        errors = []
        for share in calibrated.SHARES:
            limits = weight.clone()
            for first in range(0, 80, number_format.block):
                part = limits[:, first : first + number_format.block]
                most = part.abs().amax(-1, keepdim=True) * share
                limits[:, first : first + number_format.block] = part.clamp(-most, most)
            values = number_format.quantize(limits)[:, start : start + number_format.block]
            errors.append(float((values - block)[row].square().sum()))
        own = (clipped[:, start : start + number_format.block] - block)[row].square().sum()
        assert float(own) == pytest.approx(min(errors), rel=1e-4)


def slow_gptq(weight, hessian, number_format, damping):
    """Optimal brain quantization in order, the inverse Hessian updated a column at a time."""
    weight = weight.double().clone()
    hessian = hessian.double().clone()
    hessian += damping * hessian.diagonal().mean() * torch.eye(len(hessian))
    inverse = torch.linalg.inv(hessian)
    values, peak = torch.zeros_like(weight), weight.abs().amax().float()
    for i in range(weight.shape[1]):
        if i % number_format.block == 0:
            largest = weight[:, i : i + number_format.block].abs().amax(-1).float()
        x = weight[:, i].float()
        values[:, i] = calibrated._under_scale_of(largest, x, peak, number_format).double()
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
