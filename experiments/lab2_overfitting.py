"""Question 2.3: what more training does to the best model, judged on what it was not trained on.

The fine-tuned model is trained on for several epochs on a small part of the training data. Training
loss is kept for every step, validation loss and accuracy for every fraction of an epoch, and the
per-example test loss before and after, so that "overfitting" is a paired test, not a look.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.training import baseline

CHECKS_PER_EPOCH = 2


def params(plan: Plan) -> Iterable[Params]:
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


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
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


# ---- claims -------------------------------------------------------------------------------------


def _all(records: Records) -> Records:
    """Every seed.

    Raises:
        Pending: there is none yet.
    """
    found = Records(r for r in records if "checks" in r.values)
    if not found:
        raise Pending("no seed is trained on")
    return found


def _first(records: Records) -> Record:
    return _all(records).one(seed=0)


def test_loss_rises(records: Records) -> Claim:
    values = _first(records).values
    before, after = values["before"]["losses"], values["after"]["losses"]
    per_epoch = values["steps_per_epoch"]
    first, last = fmean(values["losses"][:per_epoch]), fmean(values["losses"][-per_epoch:])
    text = (
        f"While the training loss goes from {first:.3f} in the first epoch to {last:.3f} in the "
        f"last, the test loss goes from {fmean(before):.3f} to {fmean(after):.3f}: it rises"
    )
    return stats.paired_mean(before, after, unit=stats.Unit.LOSS).improves(text)


def accuracy_changes(records: Records) -> Claim:
    found = _all(records)
    before = [stats.Outcomes.from_json(r.values["before"]["outcomes"]) for r in found]
    after = [stats.Outcomes.from_json(r.values["after"]["outcomes"]) for r in found]
    a, b = (fmean([o.accuracy for o in side]) for side in (before, after))
    text = f"More training lowers test accuracy (before {a:.1%}, after {b:.1%})"
    return stats.compare(before, after).degrades(text)


def validation_says_stop(records: Records) -> Claim:
    """Which check validation loss would have stopped at; counted, because it is a choice."""
    values = _first(records).values
    best = min(values["checks"], key=lambda check: check["loss"])
    total, per_epoch = values["checks"][-1]["step"], values["steps_per_epoch"]
    text = (
        f"Validation loss is lowest after {best['step'] / per_epoch:.2g} of "
        f"{total / per_epoch:.2g} epochs, so early stopping would have stopped before the end"
    )
    return stats.counted(
        best["step"], total, len(values["checks"]), unit=stats.Unit.STEPS
    ).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def loss_rows(records: Records) -> Sequence[Row]:
    """Means over the seeds; validation with the range that they span."""
    found = [record.values for record in _all(records)]
    per_epoch = found[0]["steps_per_epoch"]
    steps = zip(*(values["losses"] for values in found))
    rows: dict[int, dict[str, Any]] = {
        step: {"epoch": step / per_epoch, "training loss": fmean(losses)}
        for step, losses in enumerate(steps, 1)
    }
    rows = {0: {"epoch": 0.0, "training loss": None}, **rows}
    checks = {check["step"]: [check["loss"]] for check in found[0]["checks"]}
    for check in (check for values in found[1:] for check in values["checks"]):
        checks[check["step"]].append(check["loss"])
    for step, row in rows.items():
        losses = checks.get(step)
        row["validation loss"] = fmean(losses) if losses else None
        row["validation loss low"] = min(losses) if losses else None
        row["validation loss high"] = max(losses) if losses else None
    return list(rows.values())


def draw_loss(ax: Any, rows: Sequence[Row]) -> None:
    steps = [row for row in rows if row["training loss"] is not None]
    ax.plot(
        [row["epoch"] for row in steps],
        [row["training loss"] for row in steps],
        **plots.line("first", marker="", linewidth=0.9, label="training loss, each step"),
    )
    checks = [row for row in rows if row["validation loss"] is not None]
    plots.curve(ax, checks, "epoch", "validation loss", "second", label="validation loss")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("epochs of further training")
    ax.set_ylabel("cross-entropy")
    plots.legend(ax)


def loss_alt(rows: Sequence[Row]) -> str:
    checks = [row for row in rows if row["validation loss"] is not None]
    steps = [row["training loss"] for row in rows if row["training loss"] is not None]
    return (
        f"Training loss goes from {steps[0]:.2f} to {steps[-1]:.2f}, validation loss from "
        f"{checks[0]['validation loss']:.2f} to {checks[-1]['validation loss']:.2f}."
    )


def accuracy_rows(records: Records) -> Sequence[Row]:
    """Means over the seeds."""
    found = [record.values for record in _all(records)]
    ends = {0: "before", len(found[0]["checks"]) - 1: "after"}
    return [
        {
            "epoch": check["step"] / found[0]["steps_per_epoch"],
            "validation accuracy": fmean([v["checks"][i]["accuracy"] for v in found]),
            "test accuracy": fmean([v[ends[i]]["accuracy"] for v in found]) if i in ends else None,
            "test examples": len(found[0]["before"]["losses"]) if i in ends else None,
        }
        for i, check in enumerate(found[0]["checks"])
    ]


def draw_accuracy(ax: Any, rows: Sequence[Row]) -> None:
    xs = [row["epoch"] for row in rows]
    ax.plot(
        xs,
        [row["validation accuracy"] for row in rows],
        **plots.line("second", linestyle="-", label="validation, each half of an epoch"),
    )
    whole = [row for row in rows if float(row["epoch"] or 0).is_integer()]
    ax.plot(
        [row["epoch"] for row in whole],
        [row["validation accuracy"] for row in whole],
        **plots.line("fp32", marker="o", linestyle="", markersize=9, label="after a whole epoch")
        | {"markerfacecolor": "none"},
    )
    ends = [row for row in rows if row["test accuracy"] is not None]
    ax.plot(
        [row["epoch"] for row in ends],
        [row["test accuracy"] for row in ends],
        **plots.line("third", linestyle="", markersize=8, label="test"),
    )
    ax.set_xlabel("epochs of further training")
    plots.percent_axis(ax, "accuracy")
    plots.legend(ax)


def accuracy_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(f"{r['epoch']:.2f}: {r['validation accuracy']:.1%}" for r in rows)
    return f"Validation accuracy by epochs of further training. {points}."


def epochs_table(records: Records) -> Sequence[Row]:
    values = _first(records).values
    per_epoch = values["steps_per_epoch"]
    rows: list[Row] = []
    for check in values["checks"]:
        if check["step"] % per_epoch:
            continue
        epoch = int(check["step"]) // per_epoch
        losses = values["losses"][(epoch - 1) * per_epoch : epoch * per_epoch]
        rows.append(
            {
                "epochs": epoch,
                "training loss": f"{fmean(losses):.3f}" if epoch else "before",
                "validation loss": f"{check['loss']:.3f}",
                "validation accuracy": f"{check['accuracy']:.1%}",
            }
        )
    return rows


experiment = Experiment(
    title="Training the best model for longer",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "test_loss_rises": test_loss_rises,
        "accuracy_changes": accuracy_changes,
        "validation_says_stop": validation_says_stop,
    },
    figures={
        "loss": Figure(
            caption="The training loss alone cannot show overfitting: what matters is whether the "
            "other curve turns while this one falls.",
            rows=loss_rows,
            draw=draw_loss,
            alt=loss_alt,
        ),
        "accuracy": Figure(
            caption="Accuracy within the epochs and at their ends. The axis starts above zero.",
            rows=accuracy_rows,
            draw=draw_accuracy,
            alt=accuracy_alt,
        ),
    },
    tables={"epochs": epochs_table},
)
