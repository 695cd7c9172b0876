"""Question 1.1: how its study searches and counts, and that its constants are what tuning chose."""

import torch
from torch import nn

from experiments.lab1_quantization import design, study
from madl.formats.fixed import FixedPoint
from madl.logbook.records import read_published
from madl.training import baseline
from tests.synthetic import DATA, tuned_rate

TUNED = DATA / "lab1_quantization_tuning.jsonl"


def test_rows_take_their_own_step():
    torch.manual_seed(0)
    weight = torch.randn(6, 40) * torch.tensor([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])[:, None]
    made = {per: study.OwnStep(width=4, per=per).quantize(weight) for per in ("row", "layer")}
    errors = {per: (q - weight).square().sum(-1) for per, q in made.items()}
    every = [
        FixedPoint(width=4, frac_width=frac).quantize(weight) for frac in design.STEP_FRACTIONS
    ]
    each = torch.stack([(q - weight).square().sum(-1) for q in every])  # (candidates, rows)
    torch.testing.assert_close(errors["row"], each.amin(0))
    torch.testing.assert_close(errors["layer"].sum(), each.sum(-1).amin())


def test_octaves_are_counted_where_they_can_be_by_hand():
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    model[0].weight.data = torch.tensor([[0.25, -0.49, 0.5, 0.0]])

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x)

    found = study.octaves(Named(), {"x": torch.tensor([[1.0, 1.9, 2.0, 1e9]])})
    first = found["first"]
    assert [found["weights"][e - first] for e in (first, -2, -1)] == [0.25, 0.5, 0.25]
    assert [found["inputs"][e - first] for e in (0, 1, study.LAST)] == [0.5, 0.25, 0.25]


def tuned(method, **where):
    records = [r for r in read_published(TUNED) if r.case.params["method"] == method]
    records = [r for r in records if "draw" in r.case.params]  # folds: the next edition's
    return [r for r in records if where.items() <= r.case.params.items()]


def test_passes_points_and_rates_are_chosen_on_the_tuning_seed():
    fewest = min(tuned("fp32"), key=lambda r: r.values["validation_loss"])
    assert fewest.case.params["epochs"] == baseline.PASSES
    for width, chosen in design.FRACTIONS.items():
        (sweep,) = tuned("sweep", operands="both", width=width)
        assert (sweep.values["weights"], sweep.values["inputs"]) == chosen
        assert design.SHARED_FRACTIONS.get(width, sweep.values["shared"]) == sweep.values["shared"]
    for operands, chosen in design.LONE_FRACTIONS.items():
        (sweep,) = tuned("sweep", operands=operands)
        assert sweep.values[operands] == chosen
    for width, rate in design.RATES.items():
        found = tuned("control") if width is None else tuned("qat", width=width)
        assert rate == tuned_rate(found, "tune_learning_rate")
