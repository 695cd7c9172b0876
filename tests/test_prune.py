"""Pruning: exact counts, the right ones, masks that hold while training, and bits by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from madl.compression import prune, size
from madl.compression.quantize import Rule, quantize_
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint
from madl.formats.presets import FORMATS


@given(st.integers(1, 200), st.floats(0, 0.999), st.sampled_from(["random", "l1"]))
def test_exactly_the_asked_share_is_removed_the_smallest_of_each_weight_by_l1(n, sparsity, method):
    weight = torch.randn(n, generator=torch.Generator().manual_seed(n))
    masks = prune.weight_masks([weight / 100, weight], sparsity=sparsity, method=method)
    for mask in masks:
        assert int((~mask).sum()) == round(sparsity * n)
        if method == "l1" and not mask.all() and mask.any():
            assert weight[mask].abs().min() >= weight[~mask].abs().max()


def test_wanda_ranks_a_row_by_weight_times_input_and_two_of_four_are_the_largest_of_each_four():
    torch.manual_seed(0)
    layer = nn.Linear(8, 3)
    scale = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    x = torch.randn(5, 8) * scale
    (mask,) = prune.prune_(
        nn.Sequential(layer), sparsity=0.25, method="wanda", calibration={"input": x}
    )
    fresh = nn.Linear(8, 3)
    torch.manual_seed(0)
    fresh.reset_parameters()
    importance = fresh.weight.abs() * x.square().sum(0).sqrt()
    assert mask.sum(1).tolist() == [6, 6, 6]
    assert all(i[m].min() >= i[~m].max() for i, m in zip(importance, mask))
    (pairs,) = prune.weight_masks([fresh.weight], sparsity=0.5, method="2:4")
    fours = fresh.weight.abs().view(-1, 4)
    assert pairs.view(-1, 4).sum(1).tolist() == [2] * 6
    assert all(w[m].min() >= w[~m].max() for w, m in zip(fours, pairs.view(-1, 4)))
    for weight, sparsity in ((torch.ones(2, 6), 0.5), (torch.ones(2, 8), 0.25)):
        with pytest.raises(MadlError, match="multiple of four"):
            prune.weight_masks([weight], sparsity=sparsity, method="2:4")


def test_a_random_mask_is_the_seed_s():
    masks = [
        prune.weight_masks([torch.ones(2, 5)], sparsity=0.5, method="random", seed=seed)[0]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))


class Masked(nn.Module):
    """A mask at every forward, as a parametrization."""

    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.mask


@pytest.mark.parametrize("quantized", [False, True])
def test_masks_hold_and_train_as_a_mask_at_every_forward_does(quantized):
    held, masked = two_layers(), two_layers()
    if quantized:
        for model in (held, masked):
            quantize_(model, [Rule.uniform(FixedPoint(width=8, frac_width=6))])
    before = held[0].weight.detach().clone()
    masks = prune.prune_(held, sparsity=0.7, method="l1")
    for layer, mask in zip((masked[0], masked[2]), masks):
        parametrize.register_parametrization(layer, "weight", Masked(mask))
    batches = torch.randn(3, 8, 10)
    for model in (held, masked):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
        for x in batches:
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for i, mask in zip((0, 2), masks):
        assert torch.equal(held[i].weight, masked[i].weight)
        assert torch.equal(held[i].weight != 0, mask)
    assert not torch.equal(held[0].weight, before * masks[0])


def test_the_norm_of_a_gradient_that_is_clipped_is_that_of_kept_weights():
    model = identity(2)
    prune.mask_(model, [torch.tensor([[True, False], [False, False]])])
    model(torch.tensor([[3.0, 4.0]])).sum().backward()
    assert model[0].weight.tolist() == [[1, 0], [0, 0]]
    assert model[0].weight.grad.tolist() == [[3, 0], [0, 0]]


def identity(features: int) -> nn.Sequential:
    """A Linear that passes on what it is given."""
    layer = nn.Linear(features, features, bias=False)
    layer.weight.data = torch.eye(features)
    return nn.Sequential(layer)


def test_l1_inputs_drop_what_is_below_a_threshold_set_on_the_calibration_batch():
    model, x = identity(4), torch.tensor([[1.0, -2.0, 3.0, -4.0], [8.0, 7.0, 6.0, -5.0]])
    handles = prune.prune_inputs_(model, sparsity=0.5, method="l1", calibration={"input": x})
    assert model(x).tolist() == [[0, 0, 0, 0], [8, 7, 6, -5]]  # four of eight, of one token
    other = torch.tensor([[4.0, 4.5, -9.0, 0.0]])
    assert model(other).tolist() == [[0, 4.5, -9, 0]]  # the threshold holds: no share is promised
    for handle in handles:
        handle.remove()
    assert torch.equal(model(x), x)
    both, x = nn.Sequential(*identity(4), *identity(4)), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    prune.prune_inputs_(both, sparsity=0.5, method="l1", calibration={"input": x})
    assert both(x).tolist() == [[0, 0, 3, 4]]  # the second finds its half of zeros there
    assert both(torch.tensor([[2.5, 0.0, 0.0, 0.0]])).tolist() == [[2.5, 0, 0, 0]]


class Tokens(nn.Sequential):
    """Takes what a classifier of sentences takes."""

    def forward(self, input, attention_mask=None):
        return super().forward(input)


@pytest.mark.parametrize("name", FORMATS)
def test_pruning_first_or_quantizing_first_gives_the_same_product(name):
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(3))
    results = []
    for order in ("prune", "quantize"), ("quantize", "prune"):
        model = two_layers().eval()
        for step in order:
            if step == "quantize":
                quantize_(model, [Rule.uniform(FORMATS[name])])
            else:
                prune.prune_(model, sparsity=0.5, method="l1")
                handles = prune.prune_inputs_(model, sparsity=0.5, method="random")
        with torch.no_grad():
            results.append(model(x))
    assert torch.equal(*results)
    assert not torch.equal(results[0], dense(name, x))
    for handle in handles:
        handle.remove()
    assert not [layer for layer in model.modules() if layer._forward_pre_hooks]


def dense(name: str, x: torch.Tensor) -> torch.Tensor:
    model = two_layers().eval()
    quantize_(model, [Rule.uniform(FORMATS[name])])
    with torch.no_grad():
        return model(x)


WITHOUT_ZERO = {"binary", "scaled-binary", "residual-sign(2)", "residual-sign(3)"}


@pytest.mark.parametrize("name", FORMATS)
def test_zero_stays_zero_in_every_format_that_has_one(name):
    x = torch.tensor([0.0, 1.0, -2.0, 0.5]).repeat(8)
    assert bool(FORMATS[name].quantize(x)[0] == 0) == (name not in WITHOUT_ZERO)


def test_zeros_products_and_shares_are_counted_as_the_product_sees_them():
    layer = nn.Linear(3, 2)
    layer.weight.data = torch.tensor([[0.0, 1.0, 0.2], [2.0, 3.0, -0.1]])
    model = Tokens(layer)
    x = torch.tensor([[0.0, 1.0, 1.0], [0.2, 0.0, 1.0]])
    # nonzero weights by column: 1, 2, 2; nonzero inputs by feature: 1, 1, 2; products: 1 + 2 + 4
    found = prune.product_zeros(model, [{"input": x}])
    assert found == {"weights": 1 / 6, "inputs": 2 / 6, "products": 7 / 12}
    padded = {"input": torch.cat([x, 9 + x[:1]])[None], "attention_mask": torch.tensor([[1, 1, 0]])}
    assert prune.product_zeros(model, [padded]) == found
    # fixed point of steps of a half: 0.2 and -0.1 become zero in the weight, 0.2 in the input
    quantize_(model, [Rule.uniform(FixedPoint(width=8, frac_width=1))])
    found = prune.product_zeros(model, [{"input": x}])
    assert found == {"weights": 3 / 6, "inputs": 3 / 6, "products": (0 + 2 + 0) / 12}
    shares = prune.magnitude_share([torch.tensor([3.0, -1.0])], [torch.tensor([True, False])])
    assert shares == {"l1": 0.75, "l2": 0.9}


BYTE = FixedPoint(width=8, frac_width=6)


def embedded() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 6), nn.LayerNorm(6))


def test_a_layer_takes_its_format_s_bits_and_pruned_a_bit_a_position_if_it_pays():
    net = embedded()
    assert size.linear_bits(net) == 32 * (24 + 6)
    quantize_(net, [Rule.uniform(BYTE)])
    assert size.linear_bits(net) == 8 * (24 + 6)
    net = embedded()
    prune.prune_(net, sparsity=0.5, method="l1")
    assert size.linear_bits(net) == 32 * 12 + 24 + 32 * 6
    quantize_(net, [Rule.uniform(BYTE)])
    assert size.linear_bits(net) == 8 * 12 + 24 + 8 * 6
    weight = torch.ones(10, 10)
    weight[0, 0] = 0
    assert size.weight_bits(weight, BYTE) == 800
    weight[:2] = 0
    assert size.weight_bits(weight, BYTE) == 80 * 8 + 100
