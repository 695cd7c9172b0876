"""Pruning: exact counts, the right ones, and masks that hold while training."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from experiments.lab1_pruning import pruned_layer, sparsities, sparsity_rows
from madl.compression import prune
from madl.compression.quantize import Rule, quantize_
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint
from madl.logbook.records import Case, Record, Records
from tests.conftest import a_record
from tests.synthetic import judgement, read

TEN = torch.tensor([[0.5, -0.1, 0.3, -0.9, 0.2], [0.7, -0.4, 0.05, 0.6, -0.8]])


def test_l1_removes_the_smallest_of_ten_weights():
    (mask,) = prune.weight_masks([TEN], sparsity=0.3, method="l1")
    assert mask.tolist() == [[True, False, True, True, False], [True, True, False, True, True]]


def test_each_weight_is_ranked_by_itself():
    small, large = torch.arange(1.0, 5.0) / 100, torch.arange(1.0, 5.0)
    masks = prune.weight_masks([small, large], sparsity=0.5, method="l1")
    assert [mask.tolist() for mask in masks] == [[False, False, True, True]] * 2


@given(
    st.integers(1, 200),
    st.floats(0, 0.999),
    st.sampled_from(prune.METHODS),
)
def test_exactly_the_asked_share_is_removed(n, sparsity, method):
    weight = torch.randn(n, generator=torch.Generator().manual_seed(n))
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method=method)
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


def test_a_layer_s_threshold_is_set_behind_the_layers_pruned_already():
    model, x = nn.Sequential(*identity(4), *identity(4)), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    prune.prune_inputs_(model, sparsity=0.5, method="l1", calibration={"input": x})
    assert model(x).tolist() == [[0, 0, 3, 4]]  # the second finds its half of zeros there
    assert model(torch.tensor([[2.5, 0.0, 0.0, 0.0]])).tolist() == [[2.5, 0, 0, 0]]


def test_l1_features_are_those_of_the_least_norm_over_the_calibration_batch():
    model, x = identity(3), torch.tensor([[9.0, -1.0, 1.0], [0.0, -2.0, 9.0]])
    prune.prune_inputs_(model, sparsity=1 / 3, method="l1 features", calibration={"input": x})
    assert model(x).tolist() == [[9, 0, 1], [0, 0, 9]]


def test_pruning_inputs_by_magnitude_needs_a_calibration_batch():
    with pytest.raises(MadlError, match="'l1' needs a calibration batch"):
        prune.prune_inputs_(identity(2), sparsity=0.5, method="l1")


def test_gradients_of_pruned_inputs_are_zero():
    model, x = identity(4), torch.tensor([[1.0, -2.0, 3.0, -4.0]], requires_grad=True)
    prune.prune_inputs_(model, sparsity=0.5, method="l1", calibration={"input": x})
    model(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0, 1, 1]]


def test_random_inputs_drop_the_same_features_at_every_forward():
    model = identity(10)
    prune.prune_inputs_(model, sparsity=0.3, method="random", seed=5)
    first, second = model(torch.ones(2, 10)), model(torch.ones(2, 10))
    assert torch.equal(first, second)
    assert int((first[0] == 0).sum()) == 3


def test_the_confounded_variant_is_another_at_every_forward():
    model = identity(50)
    prune.prune_inputs_(model, sparsity=0.5, method="fresh random")
    assert not torch.equal(model(torch.ones(1, 50)), model(torch.ones(1, 50)))


def test_magnitude_share_counts_what_is_kept():
    shares = prune.magnitude_share([torch.tensor([3.0, -1.0])], [torch.tensor([True, False])])
    assert shares == {"l1": 0.75, "l2": 0.9}


def test_zeros_and_products_are_counted_as_the_product_sees_them():
    layer = nn.Linear(3, 2)
    layer.weight.data = torch.tensor([[0.0, 1.0, 0.2], [2.0, 3.0, -0.1]])
    model = nn.Sequential(layer)
    x = torch.tensor([[0.0, 1.0, 1.0], [0.2, 0.0, 1.0]])
    # nonzero weights by column: 1, 2, 2; nonzero inputs by feature: 1, 1, 2; products: 1 + 2 + 4
    found = prune.product_zeros(model, [{"input": x}])
    assert found == {"weights": 1 / 6, "inputs": 2 / 6, "products": 7 / 12}
    # fixed point of steps of a half: 0.2 and -0.1 become zero in the weight, 0.2 in the input
    quantize_(model, [Rule.uniform(FixedPoint(width=8, frac_width=1))])
    found = prune.product_zeros(model, [{"input": x}])
    assert found == {"weights": 3 / 6, "inputs": 3 / 6, "products": (0 + 2 + 0) / 12}


def test_what_masks_remove_is_counted_batch_after_batch():
    model = identity(4)
    model[0].weight.data = torch.ones(4, 4)
    prune.prune_(model, sparsity=0.25, method="random")
    prune.prune_inputs_(model, sparsity=0.5, method="random")
    found = prune.product_zeros(model, [{"input": torch.ones(n, 4)} for n in (1, 3)])
    assert found["weights"] == 0.25
    assert found["inputs"] == 0.5


class Tokens(nn.Sequential):
    """Takes what a classifier of sentences takes."""

    def forward(self, input, attention_mask):
        del attention_mask
        return super().forward(input)


def test_padding_is_not_counted():
    model = Tokens(identity(2))
    x = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [5.0, 5.0]]])  # (B, T, features)
    shown = torch.tensor([[1, 1], [1, 0]])
    found = prune.product_zeros(model, [{"input": x, "attention_mask": shown}])
    assert found == {"weights": 2 / 4, "inputs": 3 / 6, "products": 3 / 12}


def test_the_histogram_counts_what_the_mask_keeps():
    weights = [torch.linspace(-1, 1, 101).view(1, -1)] * (pruned_layer.LAYER + 1)
    masks = prune.weight_masks(weights, sparsity=0.5, method="l1")
    found = pruned_layer.histogram(weights, masks)
    assert sum(found["all"]) == 101
    assert sum(found["kept"]) == 101 - round(0.5 * 101)
    assert not any(found["kept"][: pruned_layer.BINS // 2 - 1])  # the small ones


def study(trained: list[float], untrained: list[float], nothing: float) -> Records:
    """L1-pruned weights at a tenth, two tenths, … with these validation accuracies."""

    def record(experiment: str, params: dict[str, Any], **values: float) -> Record:
        judged = {when: judgement(1600, validation=value) for when, value in values.items()}
        case = Case(experiment=experiment, params={"seed": 0, **params})
        return a_record(case=case, values=judged.pop("start", judged))

    points = [
        record(
            "lab1_pruning",
            {"part": part, "pruning": "l1", "sparsity": (i + 1) / 10},
            **{"before": before, "after": after},
        )
        for part in ("weights", "both")
        for i, (before, after) in enumerate(zip(untrained, trained, strict=True))
    ]
    start = record("lab1_quantization", {"operands": "both", "width": 8}, start=nothing)
    control = record("lab1_pruning", {"part": "nothing", "sparsity": 0.0}, after=nothing - 0.01)
    return read(start, control, *points)


def test_free_is_the_highest_sparsity_that_validation_finds_as_good_trained_or_not():
    r = study([0.79, 0.80, 0.79], [0.81, 0.78, 0.70], nothing=0.80)
    found = sparsities.free(r, "weights")
    assert found is not None
    assert (found.param("sparsity"), sparsities.how(found)) == (0.2, "trained on")
    assert sparsities.how(sparsities.whole(r)) == "untrained"
    assert sparsities.free(study([0.70, 0.75], [0.60, 0.50], nothing=0.80), "weights") is None


def known(**values: float) -> Record:
    """What the starting point's record knows of the splits."""
    case = Case(experiment="baseline", params={"method": "fp32", "seed": 0})
    return a_record(case=case, values=judgement(1700) | values)


def test_where_no_sparsity_is_free_it_is_said_by_how_many_answers(monkeypatch):
    monkeypatch.setattr(sparsity_rows, "ALONE", ("weights",))
    base = Records(read(known(num_validation=500)), ())
    none = study([0.70, 0.75], [0.60, 0.50], nothing=0.80)
    said = sparsity_rows.free_by_validation(Records([*base, *none], ())).text
    assert "none of 2 sparsities is free: the best, 20 % (trained on), misses by 25 of 500" in said
    some = study([0.79, 0.80, 0.79], [0.81, 0.78, 0.70], nothing=0.80)
    said = sparsity_rows.free_by_validation(Records([*base, *some], ())).text
    assert "of the weights 20 % is the highest free one (trained on); on test it has" in said


def a_point(seed: int = 0, *, kept: float = 1.0, **params: Any) -> Any:
    """Makes the record of a point with so many right answers before and after training on."""

    def made(before: int, after: int) -> Record:
        case = Case(experiment="lab1_pruning", params={"seed": seed, **params})
        judged = {"before": judgement(before), "after": judgement(after)}
        return a_record(case=case, values=judged | {"kept": {"l2": kept}})

    return made


def test_what_training_on_raises_and_lowers_is_counted_over_all_points(monkeypatch):
    monkeypatch.setattr(sparsity_rows, "PARTS", ("weights",))
    right = {("l1", 0.1): (1500, 1600), ("l1", 0.2): (1400, 1390), ("random", 0.1): (1000, 1000)}
    found = [
        a_point(part=part, pruning=method, sparsity=at)(*counts)
        for (method, at), counts in right.items()
        for part in ("weights", "both")
    ]
    r = Records([*study([], [], nothing=0.8), *read(*found)], ())
    said = sparsity_rows.training_on(r).text
    assert "Of all 3 points, training on raises test accuracy at 1 and lowers it at 1;" in said
    assert "most with 20 % of the weights removed by L1-norm: 70.0 % before, 69.5 % after" in said


def test_the_highest_sparsity_told_from_guessing_is_by_method(monkeypatch):
    monkeypatch.setattr(sparsity_rows, "PARTS", ("weights",))
    right = {("l1", 0.1): 1600, ("l1", 0.2): 1400, ("random", 0.1): 1010, ("random", 0.2): 1000}
    found = [
        a_point(part="weights", pruning=method, sparsity=at)(1000, count)
        for (method, at), count in right.items()
    ]
    base = [*read(known(positive_share=0.5)), *study([], [], nothing=0.8)]
    said = sparsity_rows.told_from_guessing(Records([*base, *read(*found)], ())).text
    assert said.endswith(": of the weights 20 % by L1-norm (70.0 %) and none at random")


def test_pairs_of_masks_that_keep_as_much_are_found():
    kept = {("l1", 0.1): 0.99, ("l1", 0.2): 0.9, ("random", 0.1): 0.91, ("random", 0.2): 0.8}
    found = [
        a_point(part=part, pruning=method, sparsity=at, kept=share)(1500, 1500)
        for (method, at), share in kept.items()
        for part in ("weights", "both")
    ]
    ((a, b),) = sparsities.pairs_alike(read(*found))
    assert (a.param("sparsity"), b.param("sparsity")) == (0.2, 0.1)


def test_models_judged_again_are_told_one_by_one():
    def judged_twice(seed: int, changed: int) -> Record:
        params = {"seed": seed, "part": "inputs", "pruning": "fresh random", "sparsity": 0.5}
        values = {"changed": changed, "of": 500}
        return a_record(case=Case(experiment="lab1_pruning", params=params), values=values)

    found = [judged_twice(seed, changed) for seed, changed in enumerate((104, 59, 45))]
    said = sparsity_rows.fresh_masks_answer_anew(read(*found)).text
    assert "3 models judged again answer 104, 59 and 45 of the same 500 sentences" in said
    said = sparsity_rows.fresh_masks_answer_anew(read(found[0])).text
    assert "a model judged again answers 104 of the same 500 sentences" in said


def test_a_sparsity_that_one_method_has_alone_is_a_row_and_a_point():
    def record(**params: Any) -> Record:
        values = {"before": judgement(1500), "after": judgement(1600), "zeros_after": zeros}
        case = Case(experiment="lab1_pruning", params={"seed": 0, "pruning": "random", **params})
        return a_record(case=case, values=values)

    zeros = {"products": 0.2}
    points = [record(part=part, sparsity=0.5) for part in ("weights", "both")]
    alone = record(part="weights", sparsity=sparsities.QUARTER_LEFT, pruning="l1")
    r = Records([*study([0.8] * 5, [0.7] * 5, nothing=0.8), *read(*points, alone)], ())
    (row,) = (one for one in sparsity_rows.points(r) if one["removed"] == "75 %")
    assert row["pruned"] == "weights"
    assert "L1-norm, untrained" in row
    assert "Random" not in row
    assert sparsities.QUARTER_LEFT not in sparsities.asked(r)


def test_ways_that_leave_what_guessing_gets_are_named():
    def record(experiment: str, values: Any, **params: Any) -> Record:
        return a_record(
            case=Case(experiment=experiment, params={"seed": 0, **params}), values=values
        )

    right = {"l1": 1700, "l1 features": 1010, "random": 995, "fresh random": 1100}
    halved = {"part": "inputs", "sparsity": sparsities.HALF}
    known = judgement(1700) | {"positive_share": 0.5}
    found = [
        record("lab1_pruning", {"before": judgement(n)}, pruning=how, **halved)
        for how, n in right.items()
    ]
    said = sparsity_rows.at_the_floor(read(record("baseline", known, method="fp32"), *found)).text
    assert "50.0 % of the test sentences, and 2 of these 4 ways" in said
    assert "features of the least L1 norm and random features." in said


def test_of_equally_good_widths_pruning_starts_from_the_narrowest():
    """On validation, whatever their losses."""
    found = [
        a_record(
            case=Case(experiment="lab1_quantization", params={"operands": "both", "width": width}),
            values=judgement(1600, validation=validation, loss=loss),
        )
        for width, validation, loss in ((4, 0.7, 0.1), (12, 0.8, 0.3), (8, 0.8, 0.4))
    ]
    assert sparsities.starting_point(read(*found)) == {"operands": "both", "width": 8}


def test_training_is_judged_where_validation_gains_most_by_it():
    after, before = sparsities.gains_most(study([0.79, 0.75, 0.6], [0.78, 0.6, 0.5], nothing=0.8))
    assert after.param("sparsity") == before.param("sparsity") == 0.2


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 1.5])
def test_a_sparsity_outside_the_range_is_refused(sparsity):
    with pytest.raises(MadlError, match="share removed, from 0 to below 1"):
        prune.prune_(two_layers(), sparsity=sparsity, method="l1")


def test_an_unknown_method_is_refused():
    with pytest.raises(MadlError, match="unknown pruning method 'l3'; known: random, l1"):
        prune.prune_(two_layers(), sparsity=0.5, method="l3")
    known = "known: random, l1, l1 features, fresh random"
    with pytest.raises(MadlError, match=f"unknown pruning method 'l3'; {known}"):
        prune.prune_inputs_(two_layers(), sparsity=0.5, method="l3")
