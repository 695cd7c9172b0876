"""The starting point of every lab: the pretrained model, fine-tuned on the default data.

How many passes over its sentences it takes is chosen on the tuning seed, by validation loss, and
stands as `baseline.PASSES` where every page finds it.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.charts import Chart, category, intervals, level, percent
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline

page = Experiment(title="The starting point: model, data, FP32 accuracy")

TRIED = (3, 1, 2)  # passes, the longest first


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for passes in plan.profile.choose(smoke=(1,), quick=TRIED):
        yield {"method": "fp32", **baseline.drawn_params(plan, TUNING_SEED, passes)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in plan.seeds:
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}


@page.quick
def quick(params: Params) -> bool:
    return params["seed"] == CONFIRMING_SEEDS[0]


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.compression.size import num_parameters
    from madl.training import examination

    model, history = baseline.fine_tuned(params, ctx), baseline.history(params, ctx)
    if params["draw"] == TUNING_SEED:
        return {**baseline.judge_on_validation(model, params, ctx.device), **history}
    splits = baseline.load_splits(params)
    return {
        **baseline.judge(model, params, ctx.device),
        **history,
        "num_parameters": num_parameters(model),
        "num_train": len(splits.train),
        "num_validation": len(splits.validation),
        "num_test": len(splits.test),
        "positive_share": sum(splits.test.labels) / len(splits.test),
        "mean_tokens": sum(map(len, splits.train.token_ids)) / len(splits.train),
        "changes": examination.data_changes(params),
    }


def first(r: Records, name: str) -> Counted:
    """What the first model's case counted."""
    one = baseline.fp32(r).first
    return counted(round(one.value(name)), of=one.records)


page.numbers(
    fp32=baseline.fp32,
    guessing=lambda r: counted(
        round(100 * baseline.larger_class(r)), "%", of=baseline.fp32(r).records
    ),
    parameters=lambda r: first(r, "num_parameters"),
    tested=lambda r: first(r, "num_test"),
    tokens=lambda r: first(r, "mean_tokens"),
    passes=lambda r: counted(baseline.fp32(r).param("epochs"), of=baseline.fp32(r).records),
)


@page.chart
def accuracy(r: Records) -> Chart:
    models = baseline.fp32(r).models
    rows = [{"model": f"seed {one.param('seed')}", "FP32": one} for one in models]
    marks = [level(baseline.larger_class(r), "guessing"), intervals("FP32")]
    return Chart(rows, x=percent("test accuracy", column="FP32"), y=category("model"), marks=marks)


@page.table
def passes_tried(r: Records) -> Sequence[Row]:
    """Of the tuning seed."""
    tried = {int(record.case.params["epochs"] or 0): record.values for record in r.tuning}
    return [
        {
            "passes": passes,
            "validation loss": f"{tried[passes]['validation_loss']:.3f}",
            "validation accuracy": per_cent(tried[passes]["validation_accuracy"]),
        }
        for passes in sorted(tried)
    ]


@page.table
def changes(r: Records) -> Sequence[Row]:
    """The changes of other people's data before they were dealt."""
    made = baseline.fp32(r).first.records[0].values.get("changes")
    return [{"what was changed": change} for change in made or ["nothing"]]


@page.table
def splits(r: Records) -> Sequence[Row]:
    used = {
        "train": "fine-tuning",
        "validation": "choosing passes, rates, formats, trials",
        "test": "reported accuracy only",
    }
    return [
        {"split": name, "sentences": f"{first(r, f'num_{name}').value:,}", "used for": use}
        for name, use in used.items()
    ]
