"""Four-bit formats taken apart: which formats there are, and how many answers they change."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from experiments.four_bits import design, page, study
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import PROFILES
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import workloads
from tests.synthetic import EXAMPLES, judgement, kept_of, read


@pytest.mark.parametrize("name", design.NAMED)
def test_a_named_format_has_the_bits_that_it_is_known_by(name):
    bits = {"MXFP4": 4.25, "NVFP4": 4.5, "INT4": 4.5}
    assert study.number_format(*design.NAMED[name]).bits == bits[name]


def test_every_case_names_a_format_that_exists_and_all_that_claims_read():
    workload = workloads.resolve("snippets", model=None, dataset=None).params()
    cases = [*page.cases(RunPlan(Project(), PROFILES["full"], workload))]
    rounded = [case for case in cases if "element" in case]
    made = {
        study.number_format(*(case[part] for part in ("element", "block", "scale"))).name
        for case in rounded
    }
    assert len(made) == len([*product(design.ELEMENTS, design.BLOCKS, design.SCALES)]) + 3
    assert len({tuple(sorted(case.items(), key=str)) for case in cases}) == len(cases) - 15
    with pytest.raises(ValueError, match="rounded down"):
        study.number_format("int4", 32, "even")


@pytest.mark.parametrize(("method", "outliers"), [*product(design.METHODS, (1, 32))])
def test_only_rounding_changes_what_a_layer_computes(monkeypatch, method, outliers):
    class Exact:
        def quantize(self, x):
            return x

    exact = Exact()
    monkeypatch.setattr(study, "number_format", lambda *_: exact)
    monkeypatch.setattr(study.calibrated, "clipped", lambda weight, _: weight)
    monkeypatch.setattr(study.calibrated, "gptq", lambda weight, hessian, _: weight)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8)), torch.randn(5, 64)
    expected = model(x)

    def seen(of: nn.Module, _: object) -> dict[nn.Linear, study.Hessian]:
        hessians = {layer: study.Hessian(layer.in_features) for layer in linear_layers(of)}
        for layer, hessian in hessians.items():
            hessian.add(torch.randn(9, layer.in_features))
        return hessians

    monkeypatch.setattr(study, "seen", seen)
    params = page.rounding("e2m1", 32, "floor", method=method, outliers=outliers)
    study.round_(model, {**params, "operands": design.OPERANDS[0], "seed": 3})
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
    if outliers > 1 and method == "rounding":
        largest = model[0].into(torch.ones(64)).sort().values
        assert largest.tolist() == [1.0] * 60 + [32.0] * 4


def test_fewer_answers_changed_is_better():
    def records(fp32: range, even: range, floor: range):
        ways = {"even": even, "floor": floor}
        for seed in (10, 11):
            for scale, wrong in (("", fp32), *ways.items()):
                correct = ~np.isin(np.arange(EXAMPLES), wrong)
                kept = judgement(correct, examples=f"fold {seed}")
                how = page.rounding("e2m1", 32, scale) if scale else {"method": "fp32"}
                yield kept_of("four_bits", kept, **how, seed=seed)

    r = read(*records(range(100), range(50, 100), range(300)))
    found = page.rounding_of_the_scale(r).comparison
    assert found.effect == pytest.approx((200 - 50) / EXAMPLES)
    assert format(page.share_changed(r, page.named(r, "MXFP4")), "") == "10.0 %"
