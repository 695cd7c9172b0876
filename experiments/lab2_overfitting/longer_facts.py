"""What is counted and drawn of models that were trained for longer, beside the claims.

Units: losses in nats.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, line, linear, points
from madl.logbook.claims import Fact
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import listed, number, per_cent
from experiments.lab2_samplers.records import shape
from madl.training.width_facts import apart

NAME = "lab2_overfitting"
CUT, WHOLE = "best cut by the searches", "whole model"  # as they are shown
RIGHT = math.log(2)  # of two classes, the loss below which an answer is right


def course(r: Records) -> Fact:
    """Validation on the way: at each check of the first epoch, and after all."""
    found = _cut(r)
    per_epoch, steps = found[0].values["steps_per_epoch"], len(found[0].values["losses"])
    at = [look for step, look in _looks(found).items() if step <= per_epoch or step == steps]
    epochs = listed([number(look[0]["step"] / per_epoch) for look in at])
    losses = listed([number(fmean(one["loss"] for one in look)) for look in at])
    accuracies = listed([per_cent(fmean(one["accuracy"] for one in look)) for look in at])
    return Fact(
        text=f"After {epochs} epochs of more training, the validation loss of the best model that "
        f"the searches cut is {losses}, its validation accuracy {accuracies}",
        of=f"{models(found)}; an epoch is {per_epoch} steps over "
        f"{found[0].case.params['more_examples']} sentences",
    )


def right_and_wrong(r: Records) -> Fact:
    """Where the loss on test sentences rises: the mean is made by few of them."""
    found = _cut(r)

    def losses(one: Record, when: str) -> Sequence[float]:
        return one.values["models"][when]["test"]["losses"]

    def mean(when: str, is_right: bool) -> str:
        kept = [x for one in found for x in losses(one, when) if (x < RIGHT) is is_right]
        return number(fmean(kept)) if kept else "none"

    falls = fmean(
        fmean(after < before for before, after in zip(losses(one, "best"), losses(one, "last")))
        for one in found
    )
    right, wrong = (f"from {mean('best', one)} to {mean('last', one)}" for one in (True, False))
    return Fact(
        text=f"From the lowest validation loss to the end, the loss falls on {per_cent(falls)} of "
        f"the test sentences. Where the answer is right, its mean goes {right} nats, where it is "
        f"wrong, {wrong}",
        of=f"the best cut{f's of {len(found)} models together' if len(found) > 1 else ''}; each "
        "time of the sentences that are right or wrong then",
    )


def starts(r: Records) -> Fact:
    """What was chosen and what stands beside it, fine-tuned model by model."""
    cut, whole = _cut(r), _whole(r)

    def told(found: Sequence[Record]) -> str:
        return listed([per_cent(one.values["checks"][0]["accuracy"]) for one in found])

    shapes = [f"“{shape(_point(one))}”" for one in cut]
    by = ", fine-tuned model by model," if len(shapes) > 1 else ""
    return Fact(
        text=f"The best cut is{by} {listed(shapes)}, with {told(cut)} on validation, the highest "
        "of all trials that cut (of several, the first found); the whole model has "
        f"{told(whole)} there after its one training on the same sentences",
        of=f"{stats.number(len(cut) + len(whole))} trainings, before the further one",
    )


def beside(a: Arm, b: Arm) -> str:
    """Two accuracies and what lies between them, model by model."""
    return f"{a} and {b}, {apart(a, b)}"


EVERY_STEP = (
    "Training loss of every step, with dropout, before the step changes the model; validation "
    "loss at the checks, without. Means over the models."
)


def every_step(r: Records) -> Chart:
    """The loss of every training step, and validation's at the checks; a panel a model."""
    rows: list[Row] = []
    for title, found in ((CUT, _cut(r)), (WHOLE, _whole(r))):
        looks = _looks(found)
        steps = zip(*(one.values["losses"] for one in found), strict=True)
        training = {i: fmean(of) for i, of in enumerate(steps, start=1)}
        validation = {step: fmean(one["loss"] for one in look) for step, look in looks.items()}
        rows += [
            {
                "model": title,
                "step": step,
                "training": training.get(step),
                "validation": validation.get(step),
            }
            for step in sorted(training.keys() | validation.keys())
        ]
    return Chart(
        rows,
        x=linear("step", "steps of further training"),
        y=linear(label=f"cross-entropy, {models(_cut(r))}", unit="nats", limits=(0, None)),
        marks=[line("training", markers=False), points("validation")],
        facet="model",
    )


def _cut(r: Records) -> list[Record]:
    """The best cuts of the searches, one of each fine-tuned model."""
    return [one for one in r.of(NAME).all() if _point(one)]


def _looks(found: Sequence[Record]) -> dict[int, Sequence[Mapping[str, Any]]]:
    """What each model's checks found, by step; all models look at the same steps."""
    together = zip(*(one.values["checks"] for one in found), strict=True)
    return {look[0]["step"]: look for look in together}


def _whole(r: Records) -> list[Record]:
    return [one for one in r.of(NAME).all() if not _point(one)]


def _point(one: Record) -> dict[str, Any]:
    params = one.case.params
    return {k.removeprefix("shape_"): v for k, v in params.items() if k.startswith("shape_")}


def models(found: Records | Sequence[Record]) -> str:
    return f"means of {len(found)} models" if len(found) > 1 else "1 model"
