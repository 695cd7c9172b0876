"""Adapters: counts by hand, what stands still, merging, errors; the ways of training of 0.2."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from experiments.lab0_lora import design, page, study
from experiments.lab0_lora.adapters import LoraLinear, adapt_, merge_, nested_sum
from madl.compression.size import num_parameters
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Records, read_published
from madl.training import baseline, workloads
from tests.synthetic import DATA, tuned_rate

TUNED = DATA / "lab0_lora_tuning.jsonl"


class Two(nn.Module):
    """Two layers: 6 → 4 with bias (28 parameters), 4 → 2 without (8)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
        self.head = nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.fixture
def two():
    torch.manual_seed(0)
    return Two()


@pytest.fixture
def x():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def test_the_number_that_reports_quote_for_bert_tiny_is_the_nested_sum():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    with torch.device("meta"):
        model = BertForSequenceClassification(config)
    assert nested_sum(model) == 14_480_258
    assert num_parameters(model) == 4_386_178


def test_an_adapted_model_starts_as_it_was_and_training_moves_nothing_but_adapters(two, x):
    before = two(x)
    adapt_(two, rank=2, alpha=4)
    assert torch.equal(two(x), before)
    still = {n: p.clone() for n, p in two.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.SGD([p for p in two.parameters() if p.requires_grad], lr=0.1)
    two(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(two(x), before)
    assert sorted(still) == ["body.0.bias", "body.0.weight", "head.weight"]
    assert all(torch.equal(two.get_parameter(name), value) for name, value in still.items())


def test_a_layer_plus_its_scaled_product_is_merged_into_a_plain_one_that_computes_the_same(two, x):
    adapt_(two, rank=2, alpha=6)
    for module in two.modules():
        if isinstance(module, LoraLinear):
            nn.init.normal_(module.lora_b)  # which is zero before a training
    layer, unmerged = two.body[0], two(x)
    expected = x @ (layer.weight + 3.0 * layer.lora_b @ layer.lora_a).T + layer.bias
    torch.testing.assert_close(layer(x), expected)
    assert merge_(two) == ["body.0", "head"]
    assert merge_(two) == []
    assert type(two.body[0]) is nn.Linear
    assert num_parameters(two) == 36
    assert two.head.bias is None
    torch.testing.assert_close(two(x), unmerged, rtol=1e-5, atol=1e-5)


@pytest.fixture
def params(tiny_model, tiny_dataset):
    workload = workloads.resolve("snippets", model=str(tiny_model), dataset=str(tiny_dataset))
    plan = SimpleNamespace(profile=PROFILES["smoke"], workload=workload.params())
    return lambda way, rate=1e-2: page.one_pass(plan, 10, way, rate)


def test_a_seed_gives_every_way_the_same_start_and_frozen_embeddings_stand_still(params):
    ways = {way: params(way) for way in design.WAYS}
    batch = baseline.load_splits(ways[design.FULL]).test.batch(range(4))
    start = [study.untrained(way, way["method"]) for way in ways.values()]
    logits = [model.eval()(**batch).logits for model in start]
    assert all(torch.equal(one, logits[0]) for one in logits)
    before = study.untrained(ways[design.FROZEN], "frozen").state_dict()
    after = study.trained(ways[design.FROZEN], "cpu").state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in before if "embeddings" in name.split(".")}.isdisjoint(moved)
    assert any("query" in name for name in moved)


@pytest.mark.parametrize("way", design.WAYS)
def test_the_rates_are_those_that_the_tuning_seed_prefers(way):
    on_folds = Records(read_published(TUNED)).without("draw")  # of evidence older than folds
    tuned = on_folds.where(**design.WAYS[way])
    assert tuned_rate(tuned, "learning_rate") == design.RATES[way]
