"""Question 2.3: what more training does to the best model of the searches, and to the baseline.

The best model of the architecture searches is the trial with the highest validation accuracy of all
their studies. It is trained on for several epochs on a small part of the training split, and so is
the whole model after the same trial's training, which is the baseline of those searches. "It
overfits" has two halves, each a paired test: the loss on test sentences rises, and the loss on the
sentences that were trained on falls, from the check that validation prefers to the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.lab2_overfitting import longer_facts
from experiments.lab2_overfitting.longer_facts import beside
from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, level, line, linear, percent, points
from madl.logbook.claims import Contrast, Judged, all_of, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Scalar, Values
from madl.logbook.searches import mean_estimate
from madl.logbook.stats import Unit, number, per_cent
from madl.training import baseline

NAME, SEARCH = "lab2_overfitting", "lab2_samplers"
page = Experiment(title="Training the best model for longer", needs=("baseline", SEARCH))

FOUND, WHOLE = f"best of {SEARCH}", "whole model"
MODELS = {FOUND: longer_facts.CUT, WHOLE: longer_facts.WHOLE}  # as they are shown
TRIAL = ("trial_examples", "trial_learning_rate", "trial_batch_size", "draw")
TITLES = {"start": "start", "best": "lowest validation loss", "last": "end"}
MARGIN = 0.03  # three points: what a user who wants the smaller model would give away


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        study, point = best_trial(plan.records(SEARCH), seed)
        base = {
            **baseline.recipe_params(plan, seed),
            **{name: study.case.params.get(name) for name in TRIAL},
            "more_epochs": choose(smoke=2, quick=6),
            "more_examples": choose(smoke=32, quick=384),
            "more_learning_rate": 5e-5,
            "more_batch_size": 16,
        }
        yield {"model_of": FOUND, **base, **{f"shape_{name}": size for name, size in point.items()}}
        yield {"model_of": WHOLE, **base}


def best_trial(r: Records, seed: int) -> tuple[Record, Mapping[str, Scalar]]:
    """Of all trials but those of the whole model, the one that validation prefers.

    Its study and its point; of equal ones the first.
    """
    trials = [
        (value, study, dict(zip(study.values["names"], point, strict=True)))
        for study in r.of(SEARCH).all(part="study", seed=seed)
        for value, point in zip(study.values["values"], study.values["points"], strict=True)
    ]
    whole = largest(point for _, _, point in trials)
    _, study, point = max((t for t in trials if t[2] != whole), key=lambda trial: trial[0])
    return study, point


def largest(points: Iterable[Mapping[str, Scalar]]) -> Mapping[str, Scalar]:
    """The greatest of every size, and no identity: "linear" is the greater word."""
    seen = list(points)
    return {name: max(point[name] for point in seen) for name in seen[0]}  # type: ignore[type-var]


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_overfitting import longer

    shape = {k.removeprefix("shape_"): v for k, v in params.items() if k.startswith("shape_")}
    return longer.trained_on(params, ctx, shape)


# ---- what the seeds have in common --------------------------------------------------------------


def every(r: Records, model: str) -> Records:
    return r.of(NAME).all(model_of=model)


def tested(r: Records, model: str, when: str) -> Arm:
    """A model where validation prefers it ("best") or at the end ("last"), on the test split."""
    return arm(r.of(NAME), f"{model}, {when}", "models", when, "test", model_of=model)


def started(r: Records, model: str) -> Arm:
    """The same before its further training, as the search's page has judged it."""
    found = [best_trial(r, seed)[0] for seed in r.of(NAME).each("seed")]
    if model == WHOLE:
        draws = ({name: one.case.params[name] for name in ("seed", "draw")} for one in found)
        found = [r.of(SEARCH).one(part="whole", **draw) for draw in draws]
    return Arm(label=f"{model}, start", records=tuple(found), within=("judged",))


def losses(r: Records, model: str, when: str, part: str) -> list[float]:
    """Of one trained model the loss of every example; of several, each one's mean."""
    found = [one.values["models"][when][part]["losses"] for one in every(r, model)]
    return found[0] if len(found) == 1 else [fmean(one) for one in found]


def mean_loss(r: Records, model: str, when: str, part: str) -> str:
    return number(fmean(losses(r, model, when, part)))


def loss_change(r: Records, model: str, part: str, *, rises: bool) -> Contrast:
    """Whether the loss at the end is above (below) that of the best check, paired by example."""
    sides = [losses(r, model, when, part) for when in ("last", "best")]
    a, b = sides if rises else reversed(sides)
    what = "test examples" if part == "test" else "training examples"
    drawn = f"{what} of 1 model" if len(every(r, model)) == 1 else "trained models"
    return contrast(stats.paired_mean(a, b, unit=Unit.NATS, drawn=drawn), every(r, model))


def epochs_at(r: Records, model: str) -> str:
    """After how many epochs validation loss was lowest."""
    found = {one.values["best_step"] / one.values["steps_per_epoch"] for one in every(r, model)}
    return " or ".join(number(float(one)) for one in sorted(found))


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def the_best_model_overfits(r: Records) -> Judged:
    """Trained on, the searches' best model gets worse on test sentences as it learns its own."""
    return _overfits(r, FOUND, "the best model that the searches cut")


@page.claim
def the_whole_model_overfits(r: Records) -> Judged:
    """Trained on, the whole model gets worse on test sentences as it learns its own."""
    return _overfits(r, WHOLE, "the whole model, the searches' baseline,")


def _overfits(r: Records, model: str, name: str) -> Judged:
    worse = loss_change(r, model, "test", rises=True)
    learned = loss_change(r, model, "trained", rises=False)
    test, own = (
        " to ".join(mean_loss(r, model, when, part) for when in ("best", "last"))
        for part in ("test", "trained")
    )
    both = f"test loss goes from {test} nats, the loss on its training sentences from {own}"
    since = f"between its lowest validation loss, after {epochs_at(r, model)} epochs, and the end"
    given = every(r, model)[0].case.params
    more = f"Trained for {given['more_epochs']} epochs on {given['more_examples']} seen sentences"
    return all_of(
        {"the rise of test loss": worse, "the fall of the loss on its training sentences": learned},
        supported=f"{more}, {name} overfits {since}: {both}",
        refuted=f"{more}, {name} does not overfit {since}: {both}",
        undecided=f"{more}, {name} goes from a loss of {test} nats on test sentences (rise: "
        f"{worse.comparison.estimate():+i}) and from {own} on its training sentences (fall: "
        f"{learned.comparison.estimate():+i}), {since}; whether it overfits is not decided",
    )


@page.claim(headline=True)
def accuracy_falls_too(r: Records) -> Judged:
    """From the lowest validation loss to the end, the best model's test accuracy falls too."""
    best, last = tested(r, FOUND, "best"), tested(r, FOUND, "last")
    since = f"From the lowest validation loss, after {epochs_at(r, FOUND)} epochs, to the end"
    ends = f"{best} there and {last} at the end, of {best.accuracy.n:,} test sentences"
    return compare(best, last).judge(
        supported=f"{since}, more training costs the best model {best - last} of accuracy: {ends}",
        refuted=f"{since}, more training adds {last - best} to the best model's accuracy, whatever "
        f"its loss does: {ends}",
        undecided=f"{since}, the best model's accuracy goes from {best} to {last} (fall: "
        f"{best - last:+i}), of {best.accuracy.n:,} test sentences; whether it falls or rises is "
        "not decided",
    )


@page.claim
def as_good_as_the_whole_model(r: Records) -> Judged:
    """Trained alike, the searches' best model is less than three points below the whole model."""
    a, b = tested(r, FOUND, "best"), tested(r, WHOLE, "best")
    at = [f"{epochs_at(r, model)} epochs" for model in (FOUND, WHOLE)]
    said = "The best model that the searches cut"
    both = f"each where its validation loss is lowest (after {' and '.join(at)} of more training)"
    return (
        compare(a, b)
        .no_worse(MARGIN)
        .judge(
            supported=f"{said} is within three points of the whole model, {both}: {beside(a, b)}",
            refuted=f"{said} is more than three points below the whole, {both}: {beside(a, b)}",
            undecided=f"{said} against the whole model, {both}: {beside(a, b)}; whether that is "
            "within three points is not decided",
        )
    )


page.fact(headline=True)(longer_facts.course)
page.fact(longer_facts.right_and_wrong)
page.fact(longer_facts.starts)
page.chart(caption=longer_facts.EVERY_STEP)(longer_facts.every_step)


# ---- figures and tables -------------------------------------------------------------------------


EPOCHS = "epochs of further training"
Check = tuple[Sequence[Mapping[str, Any]], Arm | None]  # of each seed; on test where all looked


def checks(r: Records, model: str) -> dict[int, Check]:
    """Every look at a model, by step."""
    found: dict[int, Check] = {}
    together = zip(*(one.values["checks"] for one in every(r, model)), strict=True)
    for i, seen in enumerate(together):
        step = seen[0]["step"]
        test = None if step else started(r, model)
        if step and all("test" in one for one in seen):
            test = arm(r.of(NAME), model, "checks", i, "test", model_of=model)
        found[step] = seen, test
    return found


@page.chart(
    caption="Loss at every check; checks stand at equal distances. Training: the mean of the steps "
    "since the check before, with dropout; validation and test: without. Overfitting is where "
    "these two rise while the training loss falls. Bands are intervals."
)
def loss(r: Records) -> Chart:
    rows, many = list[Row](), longer_facts.models(every(r, FOUND))
    for model in MODELS:
        found, last = [one.values for one in every(r, model)], 0
        for step, (seen, test) in checks(r, model).items():
            steps = [x for values in found for x in values["losses"][last:step]]
            rows.append(
                {
                    "model": MODELS[model],
                    "epoch": step / found[0]["steps_per_epoch"],
                    "training": fmean(steps) if steps else None,
                    "validation": mean_estimate([one["loss"] for one in seen], Unit.NATS),
                    "test": test and test.loss,
                }
            )
            last = step
    return Chart(
        rows,
        x=category("epoch", EPOCHS),
        y=linear(label=f"cross-entropy, {many}", unit="nats", limits=(0, None)),
        marks=[line("training"), line("validation"), points("test")],
        facet="model",
    )


@page.chart(
    caption="Accuracy at the same checks. FP32: the fine-tuned model that both come from, on test. "
    "The best cut's start is what the searches chose by, and can be too high. The y axis is cut."
)
def accuracy(r: Records) -> Chart:
    rows: list[Row] = [
        {
            "model": MODELS[model],
            "epoch": step / every(r, model)[0].values["steps_per_epoch"],
            "validation": mean_estimate([one["accuracy"] for one in seen]),
            "test": test,
        }
        for model in MODELS
        for step, (seen, test) in checks(r, model).items()
    ]
    return Chart(
        rows,
        x=category("epoch", EPOCHS),
        y=percent(f"accuracy, {longer_facts.models(every(r, FOUND))}"),
        marks=[line("validation"), points("test"), level(baseline.fp32(r))],
        facet="model",
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Each training at three checks: on test, and on what was trained on; means over the seeds."""
    rows: list[Row] = []
    for model in MODELS:
        last = every(r, model)[0].case.params["more_epochs"]
        at = {"start": "0", "best": epochs_at(r, model), "last": last}
        for when, epochs in at.items():
            judged = started(r, model) if when == "start" else tested(r, model, when)
            own = [one.values["models"][when]["trained"]["accuracy"] for one in every(r, model)]
            rows.append(
                {
                    "model": MODELS[model],
                    "at": TITLES[when],
                    "epochs": str(epochs),
                    "test accuracy": judged,
                    "test loss": judged.loss,
                    "accuracy on its training sentences": per_cent(fmean(own)),
                    "loss on them": f"{mean_loss(r, model, when, 'trained')} nats",
                }
            )
    return rows
