"""The starting point of every lab: the pretrained model, fine-tuned on the default data.

The number of passes over the training sentences is chosen on the tuning seed, by validation loss;
other pages read it as `baseline.PASSES`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial

from experiments.baseline import design
from madl.logbook.arms import answers_apart
from madl.logbook.charts import Chart, category, intervals, level, percent
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, percentage
from madl.logbook.records import Params, Pending, Records, Row, Values
from madl.logbook.values import Outcomes, per_cent
from madl.training import baseline

page = Experiment(title="The starting point: model, data, FP32 accuracy")


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for passes in plan.profile.choose(smoke=(1,), quick=design.PASSES_TRIED):
        yield {"method": "fp32", **baseline.drawn_params(plan, TUNING_SEED, passes)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in plan.seeds:
        yield {"method": "fp32", **baseline.drawn_params(plan, seed)}


page.quick(lambda params: params["seed"] == CONFIRMING_SEEDS[0])


@page.run
def run(params: Params, ctx: Context) -> Values:
    """Fine-tune a model and judge it: on the tuning seed on validation alone, else on test, too.

    `choosing` has its answers to the sentences that choose, which every seed's model can be asked.
    """
    import numpy as np

    from madl.compression.size import num_parameters
    from madl.training import examination, train

    model, history = baseline.fine_tuned(params, ctx), baseline.history(params, ctx)
    if params["seed"] == TUNING_SEED:
        return {**baseline.judge_on_validation(model, params, ctx.device), **history}
    splits = baseline.load_splits(params)
    choosing = train.evaluate(model, splits.validation, device=ctx.device)
    tokens = hashlib.sha256(repr(splits.validation.token_ids).encode()).hexdigest()[:12]
    answers = Outcomes(np.array(choosing.correct), tokens).to_json()
    return {
        **baseline.judge_on_test(model, params, ctx.device),
        "validation_accuracy": choosing.accuracy,
        "validation_loss": choosing.loss,
        "choosing": {"accuracy": choosing.accuracy, "loss": choosing.loss, "outcomes": answers},
        **history,
        "num_parameters": num_parameters(model),
        "num_train": len(splits.train),
        "num_validation": len(splits.validation),
        "num_test": len(splits.test),
        "positive_share": sum(splits.test.labels) / len(splits.test),
        "mean_tokens": sum(map(len, splits.train.token_ids)) / len(splits.train),
        "changes": examination.data_changes(params),
    }


def count(r: Records, name: str) -> ExactValue:
    """The value of that name in the record of the first seed, as a whole number."""
    model = baseline.fp32(r).first
    return exact(round(model.value(name)), model.records)


def apart(r: Records) -> ExactValue:
    """The share of sentences that choose on which two seeds' models differ, a mean of all pairs.

    Raises:
        Pending: there is one seed alone, or evidence that is older than these answers.
    """
    records = baseline.fp32(r).records
    if sum("choosing" in record.values for record in records) < 2:
        raise Pending("two models' answers to the sentences that choose")
    return percentage(answers_apart(baseline.fp32(r), "choosing"), records)


page.numbers(
    fp32=baseline.fp32,
    apart=apart,
    guessing=baseline.guessing,
    parameters=partial(count, name="num_parameters"),
    tested=partial(count, name="num_test"),
    tokens=partial(count, name="mean_tokens"),
    passes=lambda r: exact(baseline.fp32(r).param("epochs"), baseline.fp32(r).records),
)


@page.chart
def accuracy(r: Records) -> Chart:
    rows = [{"model": f"seed {a.param('seed')}", "FP32": a} for a in baseline.fp32(r).models]
    marks = [level(baseline.larger_class(r), "guessing"), intervals("FP32")]
    return Chart(rows, x=percent("test accuracy", column="FP32"), y=category("model"), marks=marks)


@page.table
def passes_tried(r: Records) -> Sequence[Row]:
    """Validation loss and accuracy on the tuning seed, a row for each number of passes."""
    rows: list[Row] = [
        {
            "passes": record.case.params["epochs"],
            "validation loss": f"{record.values['validation_loss']:.3f}",
            "validation accuracy": per_cent(record.values["validation_accuracy"]),
        }
        for record in r.tuning
    ]
    return sorted(rows, key=lambda row: row["passes"])


@page.table
def changes(r: Records) -> Sequence[Row]:
    """The changes made to a user's own data on the way to the model, a row each."""
    changes = baseline.fp32(r).first.records[0].values.get("changes")
    return [{"what was changed": change} for change in changes or ["nothing"]]


@page.table
def splits(r: Records) -> Sequence[Row]:
    uses = {
        "train": "fine-tuning",
        "validation": "choosing passes, rates, formats, trials",
        "test": "reported accuracy only",
    }
    return [
        {"split": name, "sentences": f"{count(r, f'num_{name}').value:,}", "used for": use}
        for name, use in uses.items()
    ]
