"""TITLE: one comparison that works, to be replaced by your own.

Here the weights of every Linear layer are rounded to integers of a few bits, one scale a row, and
the rounded model is compared with the one as it was. Nothing is trained but the baseline.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from experiments.STEM.design import WIDTHS

from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, percent
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline

page = Experiment()


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    """The cases to run. A case is its parameters: change one, and it is another case."""
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        yield {"method": "fp32", **base}
        for width in WIDTHS:
            yield {"method": "rounded", "width": width, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    """Run one case; torch is imported here, as pages are made without it."""
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import ScaledInteger

    model = baseline.fine_tuned(params, ctx)
    if params["method"] == "rounded":
        quantize_(model, [Rule(weight=ScaledInteger(width=int(str(params["width"])), per="row"))])
    return baseline.judge(model, params, ctx.device)


page.quick(lambda params: params["seed"] == 10)  # the cases that a quick run repeats


def fp32(r: Records) -> Arm:
    return arm(r, "FP32", method="fp32")


def rounded(r: Records, width: int) -> Arm:
    """The models with weights rounded to this width, over all seeds."""
    return arm(r, f"{width} bits", method="rounded", width=width)


@page.claim(primary=True)
def few_bits_cost_accuracy(r: Records) -> Contrast:
    """Rounding the weights to the fewest bits costs accuracy."""
    return compare(fp32(r), rounded(r, min(WIDTHS)))


page.numbers(
    whole=fp32,
    narrow=partial(rounded, width=min(WIDTHS)),
    wide=partial(rounded, width=max(WIDTHS)),
)


@page.chart
def accuracy(r: Records) -> Chart:
    rows = [{"width": width, "rounded": rounded(r, width)} for width in WIDTHS]
    marks = [line("rounded"), level(fp32(r))]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


@page.table
def models(r: Records) -> Sequence[Row]:
    """The rows of a table; an arm prints as its accuracy with its interval."""
    rounded_rows: list[Row] = [
        {"weights": f"{width} bits", "test accuracy": rounded(r, width)} for width in WIDTHS
    ]
    return [{"weights": "FP32", "test accuracy": fp32(r)}, *rounded_rows]
