"""The models that studies start from which were not repeated on fresh seeds: one pass, one split.

Goes with the last page that needs it.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline

page = Experiment(title="The starting point of earlier studies")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in range(plan.profile.seeds):
        yield {"method": "fp32", **baseline.recipe_params(plan, seed)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    model, splits = baseline.fine_tuned(params, ctx), baseline.load_splits(params)
    return {
        **baseline.judge(model, params, ctx.device),
        **baseline.history(params, ctx),
        "positive_share": sum(splits.test.labels) / len(splits.test),
    }


page.numbers(fp32=baseline.fp32)


@page.table
def models(r: Records) -> Sequence[Row]:
    return [
        {
            "seed": one.param("seed"),
            "test accuracy": one,
            "validation accuracy": per_cent(one.validation),
        }
        for one in baseline.fp32(r).models
    ]
