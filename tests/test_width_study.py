"""Question 1.1: how its study searches and counts, and that its constants are what tuning chose."""

import pytest
import torch
from torch import nn

from experiments.lab1_quantization import design, scales, study
from madl.logbook.records import Records, read_published
from tests.synthetic import DATA, tuned_rate

TUNED = DATA / "lab1_quantization_tuning.jsonl"


@pytest.mark.parametrize("per", ["row", "tensor"])
def test_a_clipped_scale_is_the_tried_one_of_least_squared_error(per):
    torch.manual_seed(0)
    weight = torch.randn(6, 40) * torch.tensor([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])[:, None]
    largest = weight.abs().amax(-1, keepdim=True) if per == "row" else weight.abs().amax()
    each = []
    for share in scales.SHARES:
        scale = largest * share / 7
        error = ((weight / scale).round().clamp(-7, 7) * scale - weight).square().sum(-1)
        each.append(error if per == "row" else error.sum())
    q = scales.Clipped(width=4, per=per).quantize(weight)
    error = (q - weight).square().sum(-1)
    torch.testing.assert_close(error if per == "row" else error.sum(), torch.stack(each).amin(0))


def test_a_learned_step_has_the_gradient_of_its_paper():
    torch.manual_seed(0)
    w = torch.randn(20, 30, requires_grad=True)
    rounded = scales.LearnedStep(4, w.detach())
    step, out = rounded.step.item(), torch.randn(20, 30)
    assert step == pytest.approx(2 * w.abs().mean().item() / 7**0.5)
    (rounded(w) * out).sum().backward()
    v = w.detach() / step
    inside = (v > -8) & (v < 7)
    slope = torch.where(inside, v.round() - v, v.clamp(-8, 7))
    expected = (out * slope).sum() / (600 * 7) ** 0.5
    torch.testing.assert_close(rounded.step.grad, expected.reshape(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(w.grad, out * inside)


def test_octaves_are_counted_where_they_can_be_by_hand():
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    model[0].weight.data = torch.tensor([[0.25, -0.49, 0.5, 0.0]])
    found = study.octaves(model, {"input": torch.tensor([[1.0, 1.9, 2.0, 1e9]])})
    first = found["first"]
    assert [found["weights"][e - first] for e in (first, -2, -1)] == [0.25, 0.5, 0.25]
    assert [found["inputs"][e - first] for e in (0, 1, study.LAST)] == [0.5, 0.25, 0.25]


def tuned(method, **where):
    records = Records(read_published(TUNED)).all(method=method, **where)
    return [r for r in records if "draw" not in r.case.params]


def test_points_and_rates_are_chosen_on_the_tuning_seed():
    for width, chosen in design.FRACTIONS.items():
        (sweep,) = tuned("sweep", operands="both", width=width)
        assert (sweep.values["weights"], sweep.values["inputs"]) == chosen
        assert design.SHARED_FRACTIONS.get(width, sweep.values["shared"]) == sweep.values["shared"]
    for operands, chosen in design.LONE_FRACTIONS.items():
        (sweep,) = tuned("sweep", operands=operands)
        assert sweep.values[operands] == chosen
    trainings = {None: {"method": "control"}, "learned": {"method": "learned"}}
    for of, rate in design.RATES.items():
        where = trainings.get(of, {"method": "qat", "width": of})
        assert rate == tuned_rate(tuned(**where), "tune_learning_rate")
