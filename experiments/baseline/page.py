"""The starting point of every lab: the pretrained model, fine-tuned on the default data."""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import arm, of_models
from madl.logbook.charts import Chart, line, linear
from madl.logbook.claims import Fact, Judged, above
from madl.logbook.experiment import Context, Experiment, Plan
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


@page.claim
def learns(r: Records) -> Judged:
    """The fine-tuned model beats always answering with the larger class of the test split."""
    fp32 = baseline.fp32(r)
    share = fp32.value("positive_share")
    majority = max(share, 1 - share)
    beats = above(fp32, majority)
    said = f"The fine-tuned model classifies {fp32} of {fp32.accuracy.n:,} test sentences correctly"
    return beats.judge(
        supported=f"{said}; always answering with the larger class gives {per_cent(majority)}",
        refuted=f"{said}, fewer than the {per_cent(majority)} of always giving the larger class",
        undecided=f"{said}; nothing tells that from the larger class' {per_cent(majority)}",
    )


@page.fact
def sizes(r: Records) -> Fact:
    values = r.one(method="fp32", seed=0).values
    return Fact(
        text=f"The classifier has {values['num_parameters']:,} parameters, and a training sentence "
        f"{values['mean_tokens']:.0f} tokens on average",
        of=f"{values['num_train']:,} training sentences",
    )


@page.fact
def workload(r: Records) -> Fact:
    fp32 = baseline.fp32(r)
    return Fact(
        text=f"Where a page needs a trained model it is `{fp32.param('model')}` as a classifier of "
        f"the sentences of `{fp32.param('dataset')}`: {fp32:i} of {fp32.accuracy.n:,} test "
        f"sentences in FP32{of_models(fp32, ', the mean of {} models')}, where always "
        f"answering with the larger class gives {per_cent(baseline.larger_class(r))}",
        of=f"{fp32.accuracy.n:,} test sentences",
    )


SMOOTHING = 25  # steps in the running mean of the loss


@page.chart(caption="The running mean of the training loss, of the first model.")
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
