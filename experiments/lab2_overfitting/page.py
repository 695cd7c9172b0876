"""Question 2.3: more training of the best model of the searches, and of the whole model.

The best model of a seed is the trial with the least validation loss of all its studies. A trial
trains for one epoch on a few sentences; here the same training goes on for several, and so it does
for the whole model. The model at the end is compared with that of least validation loss.

Units: losses in nats.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, product
from statistics import fmean
from typing import Any

from experiments.lab2_overfitting import design
from experiments.lab2_samplers.records import STEM as SEARCH
from experiments.lab2_samplers.records import best_trial
from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, level, line, linear, percent, points
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CONFIRMING_SEEDS, CUT, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, percentage
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.searches import mean_estimate
from madl.logbook.values import Unit, number, per_cent
from madl.training import baseline

STEM = "lab2_overfitting"
page = Experiment(needs=("baseline", SEARCH), requires=(CUT,))

CUT_MODEL, WHOLE = f"best of {SEARCH}", "whole model"
MODELS = {CUT_MODEL: "best cut", WHOLE: WHOLE}  # as they are shown
TRIAL = ("trial_draw", "trial_examples", "trial_learning_rate", "trial_batch_size")
TITLES = {"best": "lowest validation loss", "last": "end"}
RIGHT = math.log(2)  # of two classes, the loss below which an answer is right


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in plan.seeds:
        study, point = best_trial(plan.records(SEARCH), seed)
        base = {
            **baseline.drawn_params(plan, seed),
            **{name: study.case.params[name] for name in TRIAL},
            "more_epochs": plan.profile.choose(smoke=2, quick=design.EPOCHS),
        }
        shape = {f"shape_{name}": size for name, size in point.items()}
        yield {"model_of": CUT_MODEL, **base, **shape}
        yield {"model_of": WHOLE, **base}


def trainings(r: Records, model: str) -> Records:
    return r.of_experiment(STEM).all(model_of=model)


def tested(r: Records, model: str, when: str) -> Arm:
    """A model where validation prefers it ("best") or at the end ("last"), on the test split."""
    return arm(
        r.of_experiment(STEM), f"{MODELS[model]}, {when}", "models", when, "test", model_of=model
    )


def losses(training: Record, when: str, part: str) -> list[float]:
    """The loss of every example of a `part` ("test", "trained") at "best" or "last", in order."""
    return training.values["models"][when][part]["losses"]


def loss_change(r: Records, model: str, part: str = "test") -> Contrast:
    """The mean loss at the end less that at the lowest validation loss."""
    records = trainings(r, model)
    sides = ([losses(record, when, part) for record in records] for when in ("last", "best"))
    return contrast(stats.compare_values(*sides, unit=Unit.NATS, unit_name=stats.MODELS), records)


@page.claim(primary=True)
def loss_rises(r: Records) -> Contrast:
    """From its lowest validation loss to the end, the best searched model's loss on test sentences
    rises."""
    return loss_change(r, CUT_MODEL)


@page.claim
def accuracy_holds(r: Records) -> Contrast:
    """From its lowest validation loss to the end, the best searched model loses at most two points
    of test accuracy."""
    return compare(tested(r, CUT_MODEL, "last"), tested(r, CUT_MODEL, "best")).no_worse(
        design.LOSS_MARGIN
    )


@page.claim
def whole_loss_rises(r: Records) -> Contrast:
    """The whole model, trained on the same way: the rise of its loss on test sentences."""
    return loss_change(r, WHOLE)


@page.claim
def whole_accuracy_holds(r: Records) -> Contrast:
    """The whole model's test accuracy at the end over that at its lowest validation loss."""
    return compare(tested(r, WHOLE, "last"), tested(r, WHOLE, "best"))


@page.claim
def as_good_as_the_whole_model(r: Records) -> Contrast:
    """Each at its lowest validation loss, the best cut is at most three points below the whole
    model."""
    return compare(tested(r, CUT_MODEL, "best"), tested(r, WHOLE, "best")).no_worse(
        design.SIZE_MARGIN
    )


def mean_loss(r: Records, model: str, when: str, part: str = "test") -> ExactValue:
    records = trainings(r, model)
    return in_nats(fmean(fmean(losses(record, when, part)) for record in records), when, records)


def in_nats(mean: float, when: str, records: Iterable[Record]) -> ExactValue:
    """A loss to two digits, with its unit only at "last": a sentence has that of "best" before."""
    return exact(float(f"{mean:.2g}"), records, "nats" if when == "last" else "")


def loss_where(r: Records, when: str, is_right: bool) -> ExactValue:
    """Mean loss on test sentences that the best cut gets right, or wrong, at "best" or "last"."""
    records = trainings(r, CUT_MODEL)
    every_loss = chain.from_iterable(losses(record, when, "test") for record in records)
    selected = [loss for loss in every_loss if (loss < RIGHT) is is_right]
    return in_nats(fmean(selected) if selected else 0.0, when, records)


def falls(r: Records) -> ExactValue:
    """The share of the test sentences on which the best cut's loss falls from "best" to "last"."""
    records = trainings(r, CUT_MODEL)
    ends = [[losses(record, when, "test") for when in ("best", "last")] for record in records]
    shares = [fmean(last < best for best, last in zip(*sides)) for sides in ends]
    return percentage(fmean(shares), records)


def best_epoch(r: Records, select: Callable[[Iterable[float]], float]) -> ExactValue:
    """The epoch of the best cut's lowest validation loss, in the model that `select` picks."""
    records = trainings(r, CUT_MODEL)
    epochs = (record.values["best_step"] / record.values["steps_per_epoch"] for record in records)
    return exact(select(epochs), records)


def accuracy_change(r: Records, select: Callable[[Iterable[float]], float]) -> ExactValue:
    """The best cut's change of test accuracy, in points, in the model that `select` picks."""
    points = round(100 * select(accuracy_holds(r).comparison.by_unit), 1)
    return exact(points, trainings(r, CUT_MODEL), "points")


def validation_loss(r: Records, model: str, epochs: int) -> ExactValue:
    """The validation loss after so many epochs of training on: the mean over all models."""
    losses: list[float] = []
    for record in trainings(r, model):
        end = epochs * record.values["steps_per_epoch"]
        checks = [check for check in record.values["checks"] if check["step"] <= end]
        losses.append(checks[-1]["loss"])
    return in_nats(fmean(losses), "last" if epochs else "", trainings(r, model))


page.numbers(
    cut_start=partial(validation_loss, model=CUT_MODEL, epochs=0),
    cut_first=partial(validation_loss, model=CUT_MODEL, epochs=1),
    whole_start=partial(validation_loss, model=WHOLE, epochs=0),
    whole_first=partial(validation_loss, model=WHOLE, epochs=1),
    least_change=partial(accuracy_change, select=min),
    most_change=partial(accuracy_change, select=max),
    test_best=partial(mean_loss, model=CUT_MODEL, when="best"),
    test_last=partial(mean_loss, model=CUT_MODEL, when="last"),
    own_last=partial(mean_loss, model=CUT_MODEL, when="last", part="trained"),
    wrong_best=partial(loss_where, when="best", is_right=False),
    wrong_last=partial(loss_where, when="last", is_right=False),
    right_best=partial(loss_where, when="best", is_right=True),
    right_last=partial(loss_where, when="last", is_right=True),
    falls=falls,
    best_first=partial(best_epoch, select=min),
    best_latest=partial(best_epoch, select=max),
    cut=partial(tested, model=CUT_MODEL, when="best"),
    whole=partial(tested, model=WHOLE, when="best"),
    cut_last=partial(tested, model=CUT_MODEL, when="last"),
    whole_last=partial(tested, model=WHOLE, when="last"),
)


TRAINED = "epochs of training"


def check_rows(r: Records, score: str, unit: Unit) -> dict[int, dict[str, Any]]:
    """Step → row of each check of the best cut: a validation score, the mean over the seeds, and
    the test split where every seed was tested."""
    records = trainings(r, CUT_MODEL)
    rows: dict[int, dict[str, Any]] = {}
    for i, checks in enumerate(zip(*(record.values["checks"] for record in records), strict=True)):
        step, test = checks[0]["step"], None
        if all("test" in check for check in checks):
            test = arm(r.of_experiment(STEM), CUT_MODEL, "checks", i, "test", model_of=CUT_MODEL)
        rows[step] = {
            "epoch": step / records[0].values["steps_per_epoch"],
            "validation": mean_estimate([check[score] for check in checks], unit),
            "test": test,
        }
    return rows


@page.chart
def loss(r: Records) -> Chart:
    """Losses of the best cut at every training step and at the checks, means over the seeds."""
    values = [record.values for record in trainings(r, CUT_MODEL)]
    rows: dict[int, dict[str, Any]] = {}
    for step, row in check_rows(r, "loss", Unit.NATS).items():
        of_check = {"validation": row["validation"], "test": row["test"] and row["test"].loss}
        rows[step] = {"epoch": row["epoch"], "training": None, **of_check}
    by_step = zip(*(training["losses"] for training in values), strict=True)
    for step, of_seeds in enumerate(by_step, start=1):
        row = rows.setdefault(step, {"epoch": step / values[0]["steps_per_epoch"]})
        row["training"] = fmean(of_seeds)
    return Chart(
        [rows[step] for step in sorted(rows)],
        x=linear("epoch", TRAINED),
        y=linear(label="loss (cross-entropy)", unit="nats", limits=(0, None)),
        marks=[line("training", markers=False), line("validation"), points("test")],
    )


@page.chart
def accuracy(r: Records) -> Chart:
    return Chart(
        list(check_rows(r, "accuracy", Unit.PERCENT).values()),
        x=linear("epoch", TRAINED),
        y=percent("accuracy"),
        marks=[line("validation"), points("test"), level(baseline.fp32(r))],
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Each model at "best" and "last": on test and on its own sentences, means over the seeds."""
    rows: list[Row] = []
    for (model, title), (when, at) in product(MODELS.items(), TITLES.items()):
        judged = tested(r, model, when)
        own = [record.values["models"][when]["trained"] for record in trainings(r, model)]
        rows.append(
            {
                "model": title,
                "at": at,
                "test accuracy": judged,
                "test loss": judged.loss,
                "accuracy, own sentences": per_cent(fmean(part["accuracy"] for part in own)),
                "loss, own sentences": f"{number(mean_loss(r, model, when, 'trained').value)} nats",
            }
        )
    return rows


page.power(design.TRUTHS, unit=Unit.NATS, units=len(CONFIRMING_SEEDS))
