"""Question 2.3: what more training does to a model, judged on what it was not trained on.

The fine-tuned model is trained on for several epochs on a small part of the training data. Training
loss is kept for every step, validation loss and accuracy for every fraction of an epoch, and the
per-example test loss before and after, so that "overfitting" is a paired test, not a look.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, line, linear, percent, points
from madl.logbook.claims import Fact, Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.searches import mean_estimate
from madl.logbook.stats import Estimate, Unit, number, per_cent
from madl.training import baseline

page = Experiment(title="Training the best model for longer", needs=("baseline",))

CHECKS_PER_EPOCH = 2


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        yield {
            **baseline.recipe_params(plan, seed),
            "choosing_examples": choose(smoke=None, quick=300, full=None),
            "test_examples": choose(smoke=64, quick=1000, full=None),
            "more_epochs": choose(smoke=2, quick=3, full=10),
            "more_examples": choose(smoke=32, quick=384, full=2048),
            "more_learning_rate": 5e-5,
            "more_batch_size": 32,
        }


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import train

    model = baseline.fine_tuned(params, ctx)
    splits = baseline.load_splits(params)
    examples = splits.train.first(int(params["more_examples"]))
    choosing = splits.validation.first(params["choosing_examples"])
    batch_size = int(params["more_batch_size"])
    steps_per_epoch = -(-len(examples) // batch_size)
    every = max(steps_per_epoch // CHECKS_PER_EPOCH, 1)
    checks: list[dict[str, float]] = []

    def check(step: int) -> None:
        if step % every == 0:
            judged = train.evaluate(model, choosing, device=ctx.device)
            checks.append({"step": step, "loss": judged.loss, "accuracy": judged.accuracy})

    before = baseline.judge_on_test(model, params, ctx.device, keep_losses=True)
    check(0)
    epochs = int(params["more_epochs"])
    recipe = baseline.training_recipe(params, prefix="more_", epochs=epochs)
    losses = train.train(model, examples, recipe, device=ctx.device, after_step=check)
    after = baseline.judge_on_test(model, params, ctx.device, keep_losses=True)
    return {
        "losses": losses,
        "checks": checks,
        "steps_per_epoch": steps_per_epoch,
        "before": before,
        "after": after,
        "accuracy": after["accuracy"],
    }


# ---- what the seeds have in common --------------------------------------------------------------


def _seeds(r: Records) -> list[Values]:
    """What every seed gave."""
    return [record.values for record in r.of("lab2_overfitting").all()]


def _model(r: Records, when: str) -> Arm:
    """The model before or after."""
    return arm(r.of("lab2_overfitting"), when, when)


def _test_losses(r: Records, when: str) -> list[float]:
    """Of every test example, the mean over the models."""
    return [fmean(losses) for losses in zip(*(v[when]["losses"] for v in _seeds(r)), strict=True)]


def _test_loss(r: Records, when: str) -> Estimate:
    losses = _test_losses(r, when)
    return stats.mean(losses, unit=Unit.NATS, drawn="test examples").estimate(len(losses))


def _models(r: Records) -> str:
    n = len(_seeds(r))
    return f"{n} model" + ("s" if n > 1 else "")


def _checks(r: Records) -> Iterable[tuple[int, Sequence[Mapping[str, float]]]]:
    """Every check of the validation split: its step, and what it gave for each seed."""
    for same in zip(*(values["checks"] for values in _seeds(r)), strict=True):
        yield int(same[0]["step"]), same


def _epoch_losses(r: Records) -> list[float]:
    """The training loss of every whole epoch: its mean over the steps and the seeds."""
    found, per_epoch = _seeds(r), _seeds(r)[0]["steps_per_epoch"]
    starts = range(0, len(found[0]["losses"]), per_epoch)
    return [fmean(loss for v in found for loss in v["losses"][i : i + per_epoch]) for i in starts]


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def test_loss_rises(r: Records) -> Judged:
    """Further training raises the cross-entropy on test sentences."""
    after, before = (_test_losses(r, when) for when in ("after", "before"))
    made = stats.paired_mean(after, before, unit=Unit.NATS, drawn=f"test examples of {_models(r)}")
    change = made.estimate(len(after))
    ends = f"from {_test_loss(r, 'before')} to {_test_loss(r, 'after')}"
    return contrast(made, r.of("lab2_overfitting")).judge(
        supported=f"Further training raises the test loss {ends}, by {change:i}",
        refuted=f"Further training lowers the test loss {ends}: {change:+i}",
        undecided=f"Nothing shows that further training moves the test loss: {change:+i}",
    )


@page.claim(headline=True)
def accuracy_falls(r: Records) -> Judged:
    """Further training lowers accuracy on test sentences."""
    before, after = _model(r, "before"), _model(r, "after")
    of = f"{before} before, {after} after, of {before.accuracy.n:,} test sentences"
    return compare(before, after).judge(
        supported=f"Further training costs {before - after} of test accuracy ({of})",
        refuted=f"Further training adds {after - before} to test accuracy ({of})",
        undecided="Nothing shows that further training changes test accuracy: "
        f"{after - before:+i} ({of})",
    )


@page.fact
def training_loss(r: Records) -> Fact:
    losses = _epoch_losses(r)
    return Fact(
        text=f"The training loss is {number(losses[0])} in the first further epoch and "
        f"{number(losses[-1])} in the last",
        of=f"the mean over every step of {len(losses)} epochs, {_models(r)}",
    )


@page.fact
def validation_is_lowest(r: Records) -> Fact:
    found = _seeds(r)
    per_epoch, checks = found[0]["steps_per_epoch"], found[0]["checks"]
    lowest = [min(values["checks"], key=lambda check: check["loss"])["step"] for values in found]
    said = ", ".join(f"{step / per_epoch:.2g}" for step in lowest)
    return Fact(
        text=f"The check with the lowest validation loss is the one after {said} of "
        f"{checks[-1]['step'] / per_epoch:.2g} further epochs",
        of=f"{len(checks)} checks of {_models(r)}",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="The loss of every training step, with dropout on, and of held-out sentences, with "
    "dropout off. The test split is judged before and after only. What tells overfitting from "
    "learning is whether the held-out curves turn up while the training curve goes down."
)
def loss(r: Records) -> Chart:
    found = _seeds(r)
    per_epoch, steps = found[0]["steps_per_epoch"], len(found[0]["losses"])
    checks = dict(_checks(r))
    tested = {0: "before", steps: "after"}
    rows: list[Row] = []
    for step in range(steps + 1):
        judged = [check["loss"] for check in checks.get(step, ())]
        rows.append(
            {
                "epoch": step / per_epoch,
                "training": fmean(v["losses"][step - 1] for v in found) if step else None,
                "validation": mean_estimate(judged, Unit.NATS) if judged else None,
                "test": _test_loss(r, tested[step]) if step in tested else None,
            }
        )
    return Chart(
        rows,
        x=linear("epoch", "epochs of further training"),
        y=linear(label="cross-entropy", unit="nats", limits=(0, None)),
        marks=[line("training", markers=False), line("validation"), points("test")],
    )


@page.chart(
    caption="Accuracy on validation sentences, twice an epoch, and on test sentences, before and "
    "after. Hollow points end a whole epoch. Bars are intervals; the axis does not start at "
    "zero."
)
def accuracy(r: Records) -> Chart:
    per_epoch, checks = _seeds(r)[0]["steps_per_epoch"], list(_checks(r))
    ends = {checks[0][0]: "before", checks[-1][0]: "after"}
    rows: list[Row] = []
    for step, same in checks:
        judged = mean_estimate([check["accuracy"] for check in same])
        rows.append(
            {
                "epoch": step / per_epoch,
                "validation": judged,
                "after a whole epoch": judged if step % per_epoch == 0 else None,
                "test": _model(r, ends[step]) if step in ends else None,
            }
        )
    return Chart(
        rows,
        x=linear("epoch", "epochs of further training"),
        y=percent("accuracy"),
        marks=[
            line("validation"),
            points("after a whole epoch", like="validation"),
            points("test"),
        ],
    )


@page.table
def epochs(r: Records) -> Sequence[Row]:
    per_epoch, training = _seeds(r)[0]["steps_per_epoch"], _epoch_losses(r)
    rows: list[dict[str, Any]] = []
    for step, same in _checks(r):
        if step % per_epoch == 0:
            epoch = step // per_epoch
            rows.append(
                {
                    "epochs": epoch,
                    "training loss": number(training[epoch - 1]) if epoch else "before",
                    "validation loss": number(fmean(check["loss"] for check in same)),
                    "validation accuracy": per_cent(fmean(check["accuracy"] for check in same)),
                }
            )
    return rows
