"""Bits of a model, counted by hand."""

import torch
from torch import nn

from madl.compression import prune, size
from madl.compression.quantize import Rule, quantize_
from madl.formats.fixed import FixedPoint

BYTE = FixedPoint(width=8, frac_width=6)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 6), nn.LayerNorm(6))


def test_a_layer_takes_its_format_s_bits_and_pruned_a_bit_a_position():
    net = model()
    assert size.linear_bits(net) == 32 * (24 + 6)
    quantize_(net, [Rule.uniform(BYTE)])
    assert size.linear_bits(net) == 8 * (24 + 6)
    net = model()
    prune.prune_(net, sparsity=0.5, method="l1")
    assert size.linear_bits(net) == 32 * 12 + 24 + 32 * 6
    quantize_(net, [Rule.uniform(BYTE)])
    assert size.linear_bits(net) == 8 * 12 + 24 + 8 * 6


def test_few_zeros_are_not_worth_a_bitmap():
    weight = torch.ones(10, 10)
    weight[0, 0] = 0
    assert size.weight_bits(weight, BYTE) == 800
    weight[:2] = 0
    assert size.weight_bits(weight, BYTE) == 80 * 8 + 100
