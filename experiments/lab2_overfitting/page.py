"""Question 2.3: more training of the best model of the searches, and of the whole model.

The best model of a seed is the choice of its studies with the highest validation accuracy. It is
cut anew and trained for five epochs over all training sentences; so is the first seed's whole
model. The model at the end is compared with the same one trained for one epoch, as the studies
train it, and with that of least validation loss on the way.

Units: losses in nats.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, product
from statistics import fmean
from typing import Any

from experiments.lab2_overfitting import design
from experiments.lab2_samplers.records import STEM as SEARCH
from experiments.lab2_samplers.records import best_choice, draw_of, full_params
from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, level, line, linear, percent, points
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CUT, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, of_all, percentage
from madl.logbook.records import Params, Record, Records, Row, Scalar
from madl.logbook.searches import mean_estimate
from madl.logbook.values import Unit, number, per_cent
from madl.training import baseline

STEM = "lab2_overfitting"
page = Experiment(needs=("baseline", SEARCH), requires=(CUT,))

CUT_MODEL, WHOLE = f"best of {SEARCH}", "whole model"
MODELS = {CUT_MODEL: "best cut", WHOLE: WHOLE}  # as they are shown
TITLES = {"best": "lowest validation loss", "last": "end"}
RIGHT = math.log(2)  # of two classes, the loss below which an answer is right


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    def training(seed: int, full: Params, draw: Scalar) -> Params:
        epochs = {"full_epochs": plan.profile.choose(smoke=2, quick=design.EPOCHS)}
        return {**baseline.drawn_params(plan, seed), **full, "trial_draw": draw, **epochs}

    for seed in plan.seeds:
        study, point = best_choice(plan.records(SEARCH), seed)
        its = study.case.params  # the draw and the rate at which it was trained for an epoch
        full = full_params(plan, float(its["full_learning_rate"] or 0))
        shape = {f"shape_{name}": size for name, size in point.items()}
        yield {"model_of": CUT_MODEL, **training(seed, full, its["trial_draw"]), **shape}
    first = plan.seeds[0]
    yield {"model_of": WHOLE, **training(first, full_params(plan), draw_of(first))}


def trainings(r: Records, model: str) -> Records:
    return r.of_experiment(STEM).all(model_of=model)


def after_one_epoch(r: Records) -> Arm:
    """The best cut of each seed after one epoch, as its study trains it."""
    label = f"{MODELS[CUT_MODEL]}, one epoch"
    return arm(r.of_experiment(STEM), label, "one_epoch", model_of=CUT_MODEL)


def tested(r: Records, model: str, when: str) -> Arm:
    """A model on the test split: where validation prefers it by its loss ("best") or its accuracy
    ("peak"), or at the end ("last")."""
    return arm(
        r.of_experiment(STEM), f"{MODELS[model]}, {when}", "models", when, "test", model_of=model
    )


def losses(training: Record, when: str) -> list[float]:
    """The loss of every test sentence at "best" or "last", in order."""
    return training.values["models"][when]["test"]["losses"]


@page.claim(primary=True)
def it_overfits(r: Records) -> Contrast:
    """Training for longer overfits: at the rate that suits one epoch, the best searched model is
    more than a point less accurate after five than after one."""
    return compare(after_one_epoch(r), tested(r, CUT_MODEL, "last")).more_than(design.FALL)


@page.claim
def falls_from_least_loss(r: Records) -> Contrast:
    """The best searched model's accuracy at its lowest validation loss less that at the end."""
    return compare(tested(r, CUT_MODEL, "best"), tested(r, CUT_MODEL, "last"))


@page.claim
def falls_from_peak(r: Records) -> Contrast:
    """The best searched model's accuracy at its highest validation accuracy less that at the
    end."""
    return compare(tested(r, CUT_MODEL, "peak"), tested(r, CUT_MODEL, "last"))


@page.claim
def loss_rises(r: Records) -> Contrast:
    """The best searched model's loss on test sentences, at the end less at its lowest validation
    loss."""
    sides = (
        [losses(record, when) for record in trainings(r, CUT_MODEL)] for when in ("last", "best")
    )
    comparison = stats.compare_values(*sides, unit=Unit.NATS, unit_name=stats.MODELS)
    return contrast(comparison, trainings(r, CUT_MODEL))


@page.claim
def cooled_loss_rises(r: Records) -> Contrast:
    """The same rise, with a temperature fitted on validation for either."""
    sides = (
        [record.values["models"][when]["cooled"] for record in trainings(r, CUT_MODEL)]
        for when in ("last", "best")
    )
    comparison = stats.compare_values(*sides, unit=Unit.NATS, unit_name=stats.MODELS)
    return contrast(comparison, trainings(r, CUT_MODEL))


def mean_loss(r: Records, model: str, when: str) -> ExactValue:
    records = trainings(r, model)
    return in_nats(fmean(fmean(losses(record, when)) for record in records), when, records)


def own_loss(r: Records, model: str, when: str) -> ExactValue:
    """The mean loss on the sentences that are trained on."""
    own = [record.values["models"][when]["trained"]["loss"] for record in trainings(r, model)]
    return in_nats(fmean(own), when, trainings(r, model))


def cooled_loss(r: Records, model: str, when: str) -> ExactValue:
    """The mean loss on test sentences under the fitted temperature."""
    cooled = [record.values["models"][when]["cooled"] for record in trainings(r, model)]
    return in_nats(fmean(map(fmean, cooled)), when, trainings(r, model))


def temperature(r: Records, when: str) -> ExactValue:
    fitted = [record.values["models"][when]["temperature"] for record in trainings(r, CUT_MODEL)]
    return exact(float(f"{fmean(fitted):.2g}"), trainings(r, CUT_MODEL))


def in_nats(mean: float, when: str, records: Iterable[Record]) -> ExactValue:
    """A loss to two digits, with its unit only at "last": a sentence has that of "best" before."""
    return exact(float(f"{mean:.2g}"), records, "nats" if when == "last" else "")


def loss_where(r: Records, when: str, is_right: bool) -> ExactValue:
    """Mean loss on test sentences that the best cut gets right, or wrong, at "best" or "last"."""
    records = trainings(r, CUT_MODEL)
    every_loss = chain.from_iterable(losses(record, when) for record in records)
    selected = [loss for loss in every_loss if (loss < RIGHT) is is_right]
    return in_nats(fmean(selected) if selected else 0.0, when, records)


def falls(r: Records) -> ExactValue:
    """The share of the test sentences on which the best cut's loss falls from "best" to "last"."""
    records = trainings(r, CUT_MODEL)
    ends = [[losses(record, when) for when in ("best", "last")] for record in records]
    shares = [fmean(last < best for best, last in zip(*sides)) for sides in ends]
    return percentage(fmean(shares), records)


def best_epoch(r: Records, select: Callable[[Iterable[float]], float]) -> ExactValue:
    """The epoch of the best cut's lowest validation loss, in the model that `select` picks."""
    records = trainings(r, CUT_MODEL)
    epochs = (record.values["best_step"] / record.values["steps_per_epoch"] for record in records)
    return exact(round(select(epochs), 2), records)


def accuracy_change(r: Records, select: Callable[[Iterable[float]], float]) -> ExactValue:
    """The best cut's change of test accuracy from one epoch to five, in points, in the model that
    `select` picks."""
    change = compare(tested(r, CUT_MODEL, "last"), after_one_epoch(r))
    points = round(100 * select(change.comparison.by_unit), 1)
    return exact(points, trainings(r, CUT_MODEL), "points")


page.numbers(
    rise=loss_rises,
    from_least_loss=falls_from_least_loss,
    from_peak=falls_from_peak,
    one_epoch=of_all(after_one_epoch),
    five_epochs=of_all(tested, model=CUT_MODEL, when="last"),
    cooled_rise=cooled_loss_rises,
    least_change=of_all(accuracy_change, select=min),
    most_change=of_all(accuracy_change, select=max),
    test_best=of_all(mean_loss, model=CUT_MODEL, when="best"),
    test_last=of_all(mean_loss, model=CUT_MODEL, when="last"),
    cooled_best=of_all(cooled_loss, model=CUT_MODEL, when="best"),
    cooled_last=of_all(cooled_loss, model=CUT_MODEL, when="last"),
    temperature_best=of_all(temperature, when="best"),
    temperature_last=of_all(temperature, when="last"),
    own_last=of_all(own_loss, model=CUT_MODEL, when="last"),
    wrong_best=of_all(loss_where, when="best", is_right=False),
    wrong_last=of_all(loss_where, when="last", is_right=False),
    right_best=of_all(loss_where, when="best", is_right=True),
    right_last=of_all(loss_where, when="last", is_right=True),
    falls=of_all(falls),
    best_first=of_all(best_epoch, select=min),
    best_latest=of_all(best_epoch, select=max),
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
    r = r.and_further
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
        list(check_rows(r.and_further, "accuracy", Unit.PERCENT).values()),
        x=linear("epoch", TRAINED),
        y=percent("accuracy"),
        marks=[line("validation"), points("test"), level(baseline.fp32(r))],
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Each model at "best" and "last": on test and on its own sentences, means over the seeds."""
    r = r.and_further
    short = after_one_epoch(r)
    rows: list[Row] = [
        {"model": short.label, "test accuracy": short, "test loss": short.loss},
    ]
    for (model, title), (when, at) in product(MODELS.items(), TITLES.items()):
        judged = tested(r, model, when)
        own = [record.values["models"][when]["trained"] for record in trainings(r, model)]
        rows.append(
            {
                "model": f"{title}, {at}",
                "test accuracy": judged,
                "test loss": judged.loss,
                "with a temperature": f"{number(cooled_loss(r, model, when).value)} nats",
                "accuracy, own sentences": per_cent(fmean(part["accuracy"] for part in own)),
                "loss, own sentences": f"{number(own_loss(r, model, when).value)} nats",
            }
        )
    return rows


page.power(design.TRUTHS)
