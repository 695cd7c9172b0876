"""The starting point of every lab: the pretrained model, fine-tuned on the default data."""

from collections.abc import Iterable, Sequence
from functools import partial

from madl.logbook.arms import arm
from madl.logbook.charts import Chart, line, linear
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline

page = Experiment(title="The starting point: model, data, FP32 accuracy")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in range(plan.profile.seeds):
        yield {"method": "fp32", **baseline.recipe_params(plan, seed)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.compression.size import num_parameters

    model = baseline.fine_tuned(params, ctx)
    splits = baseline.load_splits(params)
    tokens = sum(len(ids) for ids in splits.train.token_ids)
    return {
        **baseline.judge(model, params, ctx.device),
        **baseline.history(params, ctx),
        "num_parameters": num_parameters(model),
        "num_train": len(splits.train),
        "num_validation": len(splits.validation),
        "num_test": len(splits.test),
        "positive_share": sum(splits.test.labels) / len(splits.test),
        "mean_tokens": tokens / len(splits.train),
    }


def _of_split(name: str, r: Records) -> Counted:
    first = r.one(method="fp32", seed=0)
    return counted(first.values[name], of=[first])


def _guessing(r: Records) -> Counted:
    return counted(round(100 * baseline.larger_class(r)), "%", of=baseline.fp32(r).records)


def _tokens(r: Records) -> Counted:
    first = r.one(method="fp32", seed=0)
    return counted(round(first.values["mean_tokens"]), of=[first])


page.numbers(
    fp32=baseline.fp32,
    guessing=_guessing,
    parameters=partial(_of_split, "num_parameters"),
    tested=partial(_of_split, "num_test"),
    tokens=_tokens,
)


SMOOTHING = 25  # steps in the running mean of the loss


@page.chart
def loss(r: Records) -> Chart:
    losses = r.one(method="fp32", seed=0).values["losses"]
    window = max(min(SMOOTHING, len(losses) // 4), 1)
    smooth = [sum(losses[i : i + window]) / window for i in range(len(losses) - window + 1)]
    stride = max(len(smooth) // 200, 1)
    rows = [{"step": i + window, "training": smooth[i]} for i in range(0, len(smooth), stride)]
    return Chart(
        rows,
        x=linear("step", "training step"),
        y=linear(label="cross-entropy", unit="nats"),
        marks=[line("training", markers=False)],
    )


@page.table
def splits(r: Records) -> Sequence[Row]:
    values = r.one(method="fp32", seed=0).values
    used = {
        "train": "fine-tuning",
        "validation": "choosing epochs, formats, trials",
        "test": "reported accuracy only",
    }
    return [
        {"split": name, "sentences": values[f"num_{name}"], "used for": use}
        for name, use in used.items()
    ]


@page.table
def seeds(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for record in r.all(method="fp32"):
        seed, values = record.case.params["seed"], record.values
        reached = values["validation_accuracies"]
        rows.append(
            {
                "seed": seed,
                "test accuracy": arm(r, method="fp32", seed=seed),
                "validation accuracy": per_cent(values["validation_accuracy"]),
                "best epoch": 1 + reached.index(max(reached)),
                "products": "bf16" if values["bf16"] else "fp32",
            }
        )
    return rows
