"""Packing: the same function as the simulation, in a quarter of the bytes, and as a state dict."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from kernels import mxint8
from madl.compression.pack import MXINT8, MXInt8Linear, pack_, packed_layers
from madl.compression.quantize import Rule, quantize_
from madl.formats.blocked import MXInt


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 50), nn.GELU(), nn.Linear(50, 3, bias=False)).eval()


@pytest.fixture
def bert(tiny_model):
    return AutoModelForSequenceClassification.from_pretrained(tiny_model).eval()


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(24).view(2, 12)}


def test_one_line_packs_every_linear_of_a_hugging_face_model(bert):
    simulated = copy.deepcopy(bert)
    taken = pack_(bert, [MXINT8])
    quantize_(simulated, [MXINT8])
    assert len(taken) == len(packed_layers(bert)) == 6 * 2 + 2
    assert not [m for m in bert.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad():
        ours, theirs = bert(**tokens()).logits, simulated(**tokens()).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rules_choose_layers_and_blocks():
    model = small()
    pack_(model, [Rule(pattern="0", weight=MXInt(block=8), input=MXInt(block=8))])
    assert isinstance(model[0], MXInt8Linear)
    assert model[0].block == 8
    assert isinstance(model[2], nn.Linear)
    x = torch.randn(4, 40)
    f = MXInt(block=8)
    linear = small()[0]
    expected = nn.functional.linear(f.quantize(x), f.quantize(linear.weight), linear.bias)
    torch.testing.assert_close(model[0](x), expected, rtol=1e-5, atol=1e-5)


def test_a_state_dict_is_the_model(bert):
    torch.manual_seed(7)
    fresh = AutoModelForSequenceClassification.from_config(bert.config).eval()
    for model in (bert, fresh):
        pack_(model, [Rule(pattern=".*dense", weight=MXInt(), input=MXInt())])
    stored = bert.state_dict()
    name = "bert.encoder.layer.0.output.dense"
    assert stored[f"{name}.packed"].dtype is torch.uint8
    assert stored[f"{name}.packed_scales"].numel() == 32 * 2
    assert f"{name}.weight" not in stored
    fresh.load_state_dict(stored)
    with torch.no_grad():
        assert torch.equal(fresh(**tokens()).logits, bert(**tokens()).logits)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_packed_model_compiles_and_exports_whole():
    model = small()
    pack_(model, [MXINT8])
    x = torch.randn(5, 40)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), expected)
        exported = torch.export.export(model, (x,))
    targets = [node.target for node in exported.graph.nodes]
    assert targets.count(torch.ops.madl.linear_mxint8.default) == 2
    assert torch.equal(exported.module()(x), expected)


def test_moving_rearranges_the_weight(monkeypatch):
    """On other devices the codes lie row by row; the meta device stands for them."""
    layer = MXInt8Linear.from_linear(small()[0])
    assert layer.packed.shape == (2, 10, mxint8.PANEL, mxint8.QUAD)
    moved = copy.deepcopy(layer).to("meta")
    assert moved.packed.shape == (50, 40)
    assert moved.packed_scales.shape == (50, 2)
    assert layer.to(torch.float64).packed.dtype is torch.uint8


def test_a_packed_model_can_be_converted_to_bfloat16(bert):
    pack_(bert, [MXINT8])
    with torch.no_grad():
        expected = bert(**tokens()).logits
        result = bert.bfloat16()(**tokens()).logits
    assert result.dtype is torch.bfloat16
    torch.testing.assert_close(result.float(), expected, rtol=0.05, atol=0.02)
