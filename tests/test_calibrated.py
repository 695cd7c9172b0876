"""Scale search, GPTQ, changes of basis: against slow references, and what they must not change."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from madl.compression import calibrated
from madl.compression.calibrated import Basis
from madl.formats.blocked import MXFloat, MXInt, RealScale
from madl.formats.scales import block_scales, round_under
from madl.training import models

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
    over = min(np.float32(largest) / np.float32(6) / tensor, np.float32(448))
    return float(np.float32(ml_dtypes.float8_e4m3fn(max(over, 2.0**-6))) * tensor), magnitudes


def slow_nearest(x: float, scale: float, magnitudes: list[float]) -> float:
    best = min(magnitudes, key=lambda m: (abs(abs(x) / scale - m), magnitudes.index(m) % 2))
    return math.copysign(best * scale, x)


def squared_errors(values, weight, number_format) -> torch.Tensor:
    """The sum of squared errors of each block: (rows, blocks)."""
    errors = torch.nn.functional.pad(
        (values - weight).square(), (0, -weight.shape[1] % number_format.block)
    )
    return errors.unflatten(-1, (-1, number_format.block)).sum(-1)


@names
def test_a_scale_searched_has_the_least_squared_error_of_all_shares(weight, number_format):
    searched, peak = calibrated.scale_searched(weight, number_format), float(weight.abs().max())
    own = squared_errors(searched, weight, number_format)
    for row, start in product(range(len(weight)), range(0, 80, number_format.block)):
        block = weight[row, start : start + number_format.block].tolist()
        errors = []
        for share in calibrated.SHARES:
            most = float(np.float32(max(map(abs, block))) * np.float32(share))
            scale, magnitudes = slow_scale(most, number_format, peak)
            values = [slow_nearest(x, scale, magnitudes) for x in block]
            errors.append(sum((a - b) ** 2 for a, b in zip(values, block, strict=True)))
        assert float(own[row, start // number_format.block]) == pytest.approx(min(errors), rel=1e-4)


@names
def test_a_scale_searched_is_never_worse_than_the_format_s_own_and_often_better(
    weight, number_format
):
    assert (calibrated.SHARES[0], calibrated.SHARES[-1]) == (0.5, 2.0)
    assert {1.0, 1.5} <= {*calibrated.SHARES}
    searched, plain, two = (
        squared_errors(values, weight, number_format)
        for values in (
            calibrated.scale_searched(weight, number_format),
            number_format.quantize(weight),
            calibrated.scale_searched(weight, number_format, (1.0, 1.5)),
        )
    )
    assert (searched <= plain * (1 + 1e-6)).all()
    assert (two <= plain * (1 + 1e-6)).all()
    assert (searched <= two * (1 + 1e-6)).all()
    assert (searched < plain).float().mean() > 0.1


def test_four_over_six_puts_the_largest_value_of_a_block_at_four():
    """With 8 at six, 6 becomes 5.3; with 8 at four, all of 8, 6, 4 and 2 are codes."""
    nvfp4, block = FORMATS[2], torch.tensor([[8.0, 6.0, 4.0, 2.0] * 4, [24.0, 0.0, 0.0, 0.0] * 4])
    searched = calibrated.scale_searched(block, nvfp4, (1.0, 1.5))
    assert squared_errors(nvfp4.quantize(block), block, nvfp4)[0] > 0.1
    torch.testing.assert_close(searched[0], block[0], rtol=0.04, atol=0)


@names
def test_what_lies_beyond_the_largest_of_its_block_is_counted(weight, number_format):
    peak, beyond = float(weight.abs().max()), 0
    for row, start in product(range(len(weight)), range(0, 80, number_format.block)):
        block = weight[row, start : start + number_format.block].abs().tolist()
        scale, magnitudes = slow_scale(max(block), number_format, peak)
        beyond += sum(x > magnitudes[-1] * scale * (1 + 1e-6) for x in block)
    assert calibrated.saturated(weight, number_format) == pytest.approx(beyond / weight.numel())
    if number_format is FORMATS[0]:  # powers of two, rounded down, do not reach their largest
        assert beyond > 0


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
    found = calibrated.gptq(weight, inputs.T @ inputs, number_format)
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


def linear(weight: torch.Tensor, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(2)
    layer = nn.Linear(*reversed(weight.shape), bias=bias)
    layer.weight = nn.Parameter(weight.clone())
    return layer


FACTORS, OFFSETS = torch.ones(80), torch.zeros(80)
FACTORS[:4], OFFSETS[10:14] = 32, torch.tensor([300.0, -300, 300, -300])
BASES = {
    "as it is": Basis,
    "scaled": lambda layer: calibrated.scaled(layer, FACTORS),
    "shifted": lambda layer: calibrated.shifted(layer, OFFSETS),
    "rotated": lambda layer: calibrated.rotated(layer, 16),
    "scaled, rotated": lambda layer: calibrated.rotated(calibrated.scaled(layer, FACTORS), 16),
    "shifted, rotated, scaled": lambda layer: calibrated.scaled(
        calibrated.rotated(calibrated.shifted(layer, OFFSETS), 16), FACTORS
    ),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", BASES)
def test_another_basis_changes_no_output_and_leaves_the_layer_as_it_was(weight, inputs, name, bias):
    layer = linear(weight, bias=bias)
    expected = layer(inputs)
    basis = BASES[name](layer)
    torch.testing.assert_close(basis(inputs), expected, rtol=1e-4, atol=3e-3)
    torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=0)
    assert torch.equal(layer.weight, weight)
    mapped = inputs
    if "shifted" in name:
        mapped = mapped + OFFSETS
    if name.startswith("scaled"):
        mapped = mapped * FACTORS
    if "rotated" in name:
        mapped = (mapped.unflatten(-1, (-1, 16)) @ calibrated.hadamard(16)).flatten(-2)
    if name.endswith("scaled") and not name.startswith("scaled"):
        mapped = mapped * FACTORS
    torch.testing.assert_close(basis.into(inputs), mapped)
    changed = not torch.equal(basis.linear.weight, weight)
    assert changed == (name not in ("as it is", "shifted"))  # an offset leaves the weight alone


@pytest.mark.parametrize("name", BASES)
def test_what_a_basis_holds_moves_with_it(weight, name):
    basis = BASES[name](linear(weight)).to("meta")
    assert {tensor.device.type for tensor in basis.state_dict().values()} == {"meta"}
    assert basis(torch.empty(5, 80, device="meta")).shape == (5, 12)
    wide = BASES[name](linear(weight)).double()
    assert wide(torch.ones(5, 80, dtype=torch.float64)).dtype is torch.float64


def test_a_rotation_of_other_blocks_is_refused(weight):
    with pytest.raises(ValueError, match="power of two"):
        calibrated.hadamard(12)
    with pytest.raises(ValueError, match="do not divide"):
        calibrated.rotated(linear(weight), 32)


def test_smoothing_makes_inputs_and_weights_meet_half_way(weight, inputs):
    largest = inputs.abs().amax(0)
    factors = calibrated.smoothing(weight, largest)
    torch.testing.assert_close(largest * factors, (weight / factors).abs().amax(0))


def test_a_rotation_spreads_an_outlier_over_its_block(inputs):
    inputs[:, 3] *= 100
    turned = (inputs.unflatten(-1, (-1, 16)) @ calibrated.hadamard(16)).flatten(-2)
    torch.testing.assert_close(turned.norm(dim=-1), inputs.norm(dim=-1))
    assert turned[:, :16].abs().amax(-1).mean() < 0.5 * inputs[:, :16].abs().amax(-1).mean()


# ---- the inputs of an encoder's layers ----------------------------------------------------------

SENTENCES = [[2, 7, 8, 9, 3], [2, 7, 3], [2, 9, 9, 8, 7, 8, 3], [2, 8, 3]]


def batch_of(sentences) -> dict[str, torch.Tensor]:
    longest = max(map(len, sentences))
    ids = [sentence + [0] * (longest - len(sentence)) for sentence in sentences]
    words = [[1] * len(sentence) + [0] * (longest - len(sentence)) for sentence in sentences]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(words)}


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return models.load_pretrained(str(tiny_model), seed=0).eval()


def test_the_encoder_s_layers_are_those_of_its_blocks_and_query_key_value_share_an_input(encoder):
    names = [*calibrated.encoder_linears(encoder)]
    assert len(names) == 2 * 6
    assert not [name for name in names if "pooler" in name or "classifier" in name]
    assert [calibrated.input_of(name) for name in names[:6]] == [
        *["0 x"] * 3,
        *("0 output", "0 up", "0 down"),
    ]
    assert len({calibrated.input_of(name) for name in names}) == 2 * 4


def test_inputs_are_seen_as_layers_map_them_and_without_padding(encoder):
    layers = {
        name: calibrated.shifted(layer, torch.arange(float(layer.in_features)))
        for name, layer in calibrated.encoder_linears(encoder).items()
    }
    batches = [batch_of(SENTENCES[:3]), batch_of(SENTENCES[3:])]
    sums = calibrated.hessians(encoder, layers, batches)
    largest = calibrated.largest_inputs(encoder, layers, batches)
    alone = {name: [] for name in layers}  # each sentence by itself: nothing is padded
    calibrated.see_inputs(
        encoder, [batch_of([s]) for s in SENTENCES], lambda name, x: alone[name].extend(x.tolist())
    )
    for name, layer in layers.items():
        rows = np.array(alone[name]) + np.arange(layer.linear.in_features)
        assert len(rows) == sum(map(len, SENTENCES))
        np.testing.assert_allclose(sums[name].numpy(), rows.T @ rows, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(largest[name].numpy(), np.abs(rows).max(0), rtol=1e-4, atol=1e-5)
