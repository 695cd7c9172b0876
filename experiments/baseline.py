"""The starting point of every lab: the pretrained model, fine-tuned on the default data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Records
from madl.training import baseline


def params(plan: Plan) -> Iterable[Params]:
    for seed in range(plan.profile.seeds):
        yield {"method": "fp32", **baseline.recipe_params(plan, seed)}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    model = baseline.fine_tuned(params, ctx)
    splits = baseline.load_splits(params)
    tokens = sum(len(ids) for ids in splits.train.token_ids)
    return {
        **baseline.judge(model, params, ctx.device),
        **baseline.history(params, ctx),
        "num_parameters": sum(p.numel() for p in model.parameters()),
        "num_train": len(splits.train),
        "num_validation": len(splits.validation),
        "num_test": len(splits.test),
        "positive_share": sum(splits.test.labels) / len(splits.test),
        "mean_tokens": tokens / len(splits.train),
    }


def learns(records: Records) -> Claim:
    record = records.one(seed=0)
    outcomes = stats.Outcomes.from_json(record.values["outcomes"])
    majority = max(record.values["positive_share"], 1 - record.values["positive_share"])
    beats = stats.exceeds(outcomes, majority)
    text = (
        f"The fine-tuned model classifies {outcomes.accuracy:.1%} of {outcomes.n:,} held-out "
        f"sentences correctly; always answering with the larger class gives {majority:.1%}"
    )
    return beats.improves(text)


SMOOTHING = 25  # steps in the running mean of the loss


def loss_rows(records: Records) -> Sequence[Row]:
    losses = records.one(seed=0).values["losses"]
    window = max(min(SMOOTHING, len(losses) // 4), 1)
    smooth = [sum(losses[i : i + window]) / window for i in range(len(losses) - window + 1)]
    stride = max(len(smooth) // 200, 1)
    return [{"step": i + window, "loss": smooth[i]} for i in range(0, len(smooth), stride)]


def draw_loss(ax: Any, rows: Sequence[Row]) -> None:
    ax.plot(
        [row["step"] for row in rows],
        [row["loss"] for row in rows],
        **plots.line("first", marker=""),
    )
    ax.set_xlabel("training step")
    ax.set_ylabel("cross-entropy, running mean")


def loss_alt(rows: Sequence[Row]) -> str:
    return (
        f"The running mean of the training loss goes from {rows[0]['loss']:.2f} at step "
        f"{rows[0]['step']} to {rows[-1]['loss']:.2f} at step {rows[-1]['step']}."
    )


def splits_table(records: Records) -> Sequence[Row]:
    values = records.one(seed=0).values
    return [
        {"split": "train", "sentences": values["num_train"], "used for": "fine-tuning"},
        {
            "split": "validation",
            "sentences": values["num_validation"],
            "used for": "choosing epochs, rules, trials",
        },
        {"split": "test", "sentences": values["num_test"], "used for": "reported accuracy only"},
    ]


def seeds_table(records: Records) -> Sequence[Row]:
    return [
        {
            "seed": record.case.params["seed"],
            "test accuracy": f"{record.values['accuracy']:.1%}",
            "validation accuracy": f"{record.values['validation_accuracy']:.1%}",
            "test loss": f"{record.values['loss']:.3f}",
            "best epoch": 1
            + record.values["validation_accuracies"].index(
                max(record.values["validation_accuracies"])
            ),
            "products": "bf16" if record.values["bf16"] else "fp32",
        }
        for record in records
    ]


experiment = Experiment(
    title="The starting point: model, data, FP32 accuracy",
    params=params,
    run=run,
    claims={"learns": learns},
    figures={
        "loss": Figure(
            caption="The loss as training goes on. Where it still falls at the last step, a longer "
            "training would have had more to gain.",
            rows=loss_rows,
            draw=draw_loss,
            alt=loss_alt,
        )
    },
    tables={"splits": splits_table, "seeds": seeds_table},
)
