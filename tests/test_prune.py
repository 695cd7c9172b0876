"""Pruning: exact counts, the right ones, and masks that hold while training."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from madl.compression import prune
from madl.compression.quantize import Rule, quantize_
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint

TEN = torch.tensor([[0.5, -0.1, 0.3, -0.9, 0.2], [0.7, -0.4, 0.05, 0.6, -0.8]])


def test_l1_removes_the_smallest_of_ten_weights():
    (mask,) = prune.weight_masks([TEN], sparsity=0.3, method="l1")
    assert mask.tolist() == [[True, False, True, True, False], [True, True, False, True, True]]


def test_global_ranks_all_weights_together_and_local_each_by_itself():
    small, large = torch.arange(1.0, 5.0) / 100, torch.arange(1.0, 5.0)
    everywhere = prune.weight_masks([small, large], sparsity=0.5, method="l1", scope="global")
    assert [int(mask.sum()) for mask in everywhere] == [0, 4]
    each = prune.weight_masks([small, large], sparsity=0.5, method="l1", scope="local")
    assert [int(mask.sum()) for mask in each] == [2, 2]


@given(
    st.integers(1, 200),
    st.floats(0, 0.999),
    st.sampled_from(prune.METHODS),
    st.sampled_from(prune.SCOPES),
)
def test_exactly_the_asked_share_is_removed(n, sparsity, method, scope):
    weight = torch.randn(n, generator=torch.Generator().manual_seed(n))
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method=method, scope=scope)
    assert int((~mask).sum()) == round(sparsity * n)


def test_equal_weights_are_told_apart_without_chance():
    (mask,) = prune.weight_masks([torch.ones(4)], sparsity=0.5, method="l1")
    assert mask.tolist() == [False, False, True, True]


def test_a_random_mask_is_the_seed_s():
    masks = [prune.weight_masks([TEN], sparsity=0.5, method="random", seed=s)[0] for s in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))


@pytest.mark.parametrize("quantized", [False, True])
def test_masks_hold_while_training_and_are_fused_after(quantized):
    model = two_layers()
    if quantized:
        quantize_(model, [Rule.uniform(FixedPoint(width=8, frac_width=6))])
    prune.prune_(model, sparsity=0.7, method="l1")
    zeros = [layer.weight == 0 for layer in (model[0], model[2])]
    before = model[0].weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        model(torch.randn(8, 10)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(model[0].weight, before)
    for layer, zero in zip((model[0], model[2]), zeros):
        assert torch.equal(layer.weight == 0, zero)
    x = torch.randn(4, 10)
    with torch.no_grad():
        masked = model.eval()(x)
        prune.fuse_masks_(model)
        assert torch.equal(model(x), masked)
    assert isinstance(model[0].weight, nn.Parameter)
    assert prune.weight_sparsity(model) == 0.7


def test_l1_inputs_keep_the_largest_of_each_token():
    layer = nn.Linear(4, 4, bias=False)
    layer.weight.data = torch.eye(4)
    handles = prune.prune_inputs_(nn.Sequential(layer), sparsity=0.5, method="l1")
    x = torch.tensor([[1.0, -2.0, 3.0, -4.0], [4.0, 3.0, 2.0, 1.0]])
    assert layer(x).tolist() == [[0, 0, 3, -4], [4, 3, 0, 0]]
    for handle in handles:
        handle.remove()
    assert torch.equal(layer(x), x)


def test_random_inputs_drop_the_same_features_at_every_forward():
    layer = nn.Linear(10, 10, bias=False)
    layer.weight.data = torch.eye(10)
    prune.prune_inputs_(nn.Sequential(layer), sparsity=0.3, method="random", seed=5)
    first, second = layer(torch.ones(2, 10)), layer(torch.ones(2, 10))
    assert torch.equal(first, second)
    assert int((first[0] == 0).sum()) == 3


def test_the_confounded_variant_is_another_at_every_forward():
    layer = nn.Linear(50, 50, bias=False)
    layer.weight.data = torch.eye(50)
    prune.fresh_random_inputs_(nn.Sequential(layer), sparsity=0.5)
    assert not torch.equal(layer(torch.ones(1, 50)), layer(torch.ones(1, 50)))


def test_magnitude_share_counts_what_is_kept():
    shares = prune.magnitude_share([torch.tensor([3.0, -1.0])], [torch.tensor([True, False])])
    assert shares == {"l1": 0.75, "l2": 0.9}


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 1.5])
def test_a_sparsity_outside_the_range_is_refused(sparsity):
    with pytest.raises(MadlError, match="share removed, from 0 to below 1"):
        prune.prune_(two_layers(), sparsity=sparsity, method="l1")


def test_an_unknown_method_or_scope_is_refused():
    with pytest.raises(MadlError, match="unknown pruning method 'l3'; known: random, l1"):
        prune.prune_(two_layers(), sparsity=0.5, method="l3")
    with pytest.raises(MadlError, match="unknown pruning scope 'here'; known: local, global"):
        prune.prune_(two_layers(), sparsity=0.5, method="l1", scope="here")
