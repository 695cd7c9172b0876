"""Question 2.3: what more training does to the best model of the searches, and to the whole model.

The best model of a seed is the trial with the least validation loss of all its studies. A trial
trains for one epoch on a few sentences; here the same training goes on for several, and so it does
for the whole model. The end is held against the check that validation loss prefers.

Units: losses in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from experiments.lab2_samplers.records import STEM as SEARCH
from experiments.lab2_samplers.records import best_trial
from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, level, line, linear, percent, points
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CONFIRMING_SEEDS, CUT, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.searches import mean_estimate
from madl.logbook.stats import Unit, number, per_cent
from madl.training import baseline

STEM = "lab2_overfitting"
page = Experiment(
    title="Training the best model for longer", needs=("baseline", SEARCH), requires=(CUT,)
)

FOUND, WHOLE = f"best of {SEARCH}", "whole model"
MODELS = {FOUND: "best cut", WHOLE: WHOLE}  # as they are shown
TRIAL = ("trial_draw", "trial_examples", "trial_learning_rate", "trial_batch_size")
TITLES = {"best": "lowest validation loss", "last": "end"}
EPOCHS = 6  # a trial has one
ENOUGH = 0.02  # of accuracy: what more training may cost
MARGIN = 0.03  # what a user who wants the smaller model would give away
RIGHT = math.log(2)  # of two classes, the loss below which an answer is right


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in plan.seeds:
        study, point = best_trial(plan.records(SEARCH), seed)
        base = {
            **baseline.drawn_params(plan, seed),
            **{name: study.case.params[name] for name in TRIAL},
            "more_epochs": plan.profile.choose(smoke=2, quick=EPOCHS),
        }
        yield {"model_of": FOUND, **base, **{f"shape_{name}": size for name, size in point.items()}}
        yield {"model_of": WHOLE, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_overfitting import study

    return study.trained_on(params, ctx, shape_of(params))


def shape_of(params: Params) -> dict[str, Any]:
    return {k.removeprefix("shape_"): v for k, v in params.items() if k.startswith("shape_")}


# ---- the models ---------------------------------------------------------------------------------


def every(r: Records, model: str) -> Records:
    return r.of(STEM).all(model_of=model)


def tested(r: Records, model: str, when: str) -> Arm:
    """A model where validation prefers it ("best") or at the end ("last"), on the test split."""
    return arm(r.of(STEM), f"{MODELS[model]}, {when}", "models", when, "test", model_of=model)


def losses(one: Record, when: str, part: str) -> list[float]:
    """Of every example, in the same order at all times."""
    return one.values["models"][when][part]["losses"]


def loss_change(r: Records, model: str, part: str = "test") -> Contrast:
    """The mean loss at the end less that at the lowest validation loss."""
    found = every(r, model)
    sides = ([losses(one, when, part) for one in found] for when in ("last", "best"))
    return contrast(stats.compare_values(*sides, unit=Unit.NATS, of=stats.MODELS), found)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def loss_rises(r: Records) -> Contrast:
    """From its lowest validation loss to the end, the best searched model's loss on test sentences
    rises."""
    return loss_change(r, FOUND)


@page.claim
def accuracy_holds(r: Records) -> Contrast:
    """From its lowest validation loss to the end, the best searched model loses at most two points
    of test accuracy."""
    return compare(tested(r, FOUND, "last"), tested(r, FOUND, "best")).no_worse(ENOUGH)


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
    return compare(tested(r, FOUND, "best"), tested(r, WHOLE, "best")).no_worse(MARGIN)


# ---- numbers ------------------------------------------------------------------------------------


def mean_loss(r: Records, model: str, when: str, part: str) -> Counted:
    found = every(r, model)
    return in_nats(fmean(fmean(losses(one, when, part)) for one in found), when, found)


def in_nats(mean: float, when: str, found: Iterable[Record]) -> Counted:
    """In two digits; the unit stands behind the last of two."""
    return counted(float(f"{mean:.2g}"), "nats" if when == "last" else "", of=found)


def where_answer_is(r: Records, when: str, right: bool) -> Counted:
    """Mean loss on the test sentences that the best cut gets right, or wrong, at that time."""
    found = every(r, FOUND)
    kept = [x for one in found for x in losses(one, when, "test") if (x < RIGHT) is right]
    return in_nats(fmean(kept) if kept else 0.0, when, found)


def falls(r: Records) -> Counted:
    """Share of the test sentences on which the best cut's loss falls all the same."""
    found = every(r, FOUND)
    shares = [
        fmean(b < a for a, b in zip(losses(one, "best", "test"), losses(one, "last", "test")))
        for one in found
    ]
    return counted(round(100 * fmean(shares)), "%", of=found)


def best_epoch(r: Records, last: bool) -> Counted:
    """When the best cut's validation loss was lowest: of the models the earliest, or the latest."""
    found = every(r, FOUND)
    at = sorted(one.values["best_step"] / one.values["steps_per_epoch"] for one in found)
    return counted(at[-1 if last else 0], of=found)


def change_of_a_model(r: Records, pick: Callable[[Iterable[float]], float]) -> Counted:
    """Of the best cuts' changes of test accuracy, one model's."""
    made = accuracy_holds(r)
    points = round(100 * pick(made.comparison.by_unit), 1)
    return counted(points, "points", of=every(r, FOUND))


def validation_loss(r: Records, model: str, epochs: int) -> Counted:
    """After so many epochs of training on: the mean over all models."""
    found = every(r, model)
    looks = [{look["step"]: look["loss"] for look in one.values["checks"]} for one in found]
    steps = [epochs * one.values["steps_per_epoch"] for one in found]
    mean = fmean(at[max(step for step in at if step <= end)] for at, end in zip(looks, steps))
    return in_nats(mean, "last" if epochs else "", found)


page.numbers(
    cut_start=partial(validation_loss, model=FOUND, epochs=0),
    cut_first=partial(validation_loss, model=FOUND, epochs=1),
    whole_start=partial(validation_loss, model=WHOLE, epochs=0),
    whole_first=partial(validation_loss, model=WHOLE, epochs=1),
    least_change=partial(change_of_a_model, pick=min),
    most_change=partial(change_of_a_model, pick=max),
    test_best=partial(mean_loss, model=FOUND, when="best", part="test"),
    test_last=partial(mean_loss, model=FOUND, when="last", part="test"),
    own_last=partial(mean_loss, model=FOUND, when="last", part="trained"),
    wrong_best=partial(where_answer_is, when="best", right=False),
    wrong_last=partial(where_answer_is, when="last", right=False),
    right_best=partial(where_answer_is, when="best", right=True),
    right_last=partial(where_answer_is, when="last", right=True),
    falls=falls,
    best_first=partial(best_epoch, last=False),
    best_latest=partial(best_epoch, last=True),
    cut=lambda r: tested(r, FOUND, "best"),
    whole=lambda r: tested(r, WHOLE, "best"),
    cut_last=lambda r: tested(r, FOUND, "last"),
    whole_last=lambda r: tested(r, WHOLE, "last"),
)


# ---- charts and tables --------------------------------------------------------------------------

TRAINED = "epochs of training"
Looks = Sequence[Mapping[str, Any]]  # what each seed's model was at one check


def checks(r: Records) -> list[tuple[int, Looks, Arm | None]]:
    """Every look at the best cut: the step, each seed's, and test where all of them looked."""
    found: list[tuple[int, Looks, Arm | None]] = []
    together = zip(*(one.values["checks"] for one in every(r, FOUND)), strict=True)
    for i, seen in enumerate(together):
        tested_too = all("test" in one for one in seen)
        test = arm(r.of(STEM), FOUND, "checks", i, "test", model_of=FOUND) if tested_too else None
        found.append((seen[0]["step"], seen, test))
    return found


@page.chart
def loss(r: Records) -> Chart:
    """Of every training step, and of the checks; means over the seeds."""
    values = [one.values for one in every(r, FOUND)]
    per_epoch = values[0]["steps_per_epoch"]
    rows: dict[int, dict[str, Any]] = {
        step: {"epoch": step / per_epoch, "training": fmean(of)}
        for step, of in enumerate(zip(*(one["losses"] for one in values), strict=True), start=1)
    }
    for step, seen, test in checks(r):
        row = rows.setdefault(step, {"epoch": step / per_epoch, "training": None})
        row["validation"] = mean_estimate([one["loss"] for one in seen], Unit.NATS)
        row["test"] = test and test.loss
    return Chart(
        [rows[step] for step in sorted(rows)],
        x=linear("epoch", TRAINED),
        y=linear(label="loss (cross-entropy)", unit="nats", limits=(0, None)),
        marks=[line("training", markers=False), line("validation"), points("test")],
    )


@page.chart
def accuracy(r: Records) -> Chart:
    per_epoch = every(r, FOUND)[0].values["steps_per_epoch"]
    rows: list[Row] = [
        {
            "epoch": step / per_epoch,
            "validation": mean_estimate([one["accuracy"] for one in seen]),
            "test": test,
        }
        for step, seen, test in checks(r)
    ]
    return Chart(
        rows,
        x=linear("epoch", TRAINED),
        y=percent("accuracy"),
        marks=[line("validation"), points("test"), level(baseline.fp32(r))],
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Each training at both checks: on test, and on what was trained on; means over the seeds."""
    rows: list[Row] = []
    for model, title in MODELS.items():
        for when, at in TITLES.items():
            judged = tested(r, model, when)
            own = [one.values["models"][when]["trained"]["accuracy"] for one in every(r, model)]
            seen = mean_loss(r, model, when, "trained")
            rows.append(
                {
                    "model": title,
                    "at": at,
                    "test accuracy": judged,
                    "test loss": judged.loss,
                    "accuracy, own sentences": per_cent(fmean(own)),
                    "loss, own sentences": f"{number(seen.value)} nats",
                }
            )
    return rows


# Of an earlier run with a shorter training: how the change of the loss differs from model to model,
# and from sentence to sentence in the mean over them.
SPREADS = {"the loss rises by 0.2 nats": (0.2, 0.051, 1.0)}

page.power(SPREADS, units=len(CONFIRMING_SEEDS))
