"""TITLE: one comparison that works, to be replaced by your own.

Here the weights of every Linear layer are rounded to integers of a few bits, one scale a row, and
the model that comes out is held against the one that went in. Nothing is trained.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, doubling, level, line, percent
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.training import baseline
from madl.training.baseline import fp32

page = Experiment(title="TITLE", needs=("baseline",))

WIDTHS = (2, 4, 8)  # bits; the question in experiments/questions.toml asks for the same


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    """What there is to run. A case is its parameters: change one, and it is another case."""
    for seed in range(plan.profile.seeds):
        for width in WIDTHS:
            yield {"method": "rounded", "width": width, **baseline.recipe_params(plan, seed)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    """How one case runs; torch is imported here, as pages are made without it."""
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import ScaledInteger

    model = baseline.fine_tuned(params, ctx)
    quantize_(model, [Rule(weight=ScaledInteger(width=int(str(params["width"])), per="row"))])
    return baseline.judge(model, params, ctx.device)


def rounded(r: Records, width: int) -> Arm:
    """The model with weights of this width."""
    return arm(r, f"{width} bits", method="rounded", width=width)


@page.claim(headline=True)
def few_bits_cost_accuracy(r: Records) -> Judged:
    """Rounding the weights to the fewest bits costs accuracy."""
    whole, narrow = fp32(r), rounded(r, min(WIDTHS))
    return compare(whole, narrow).judge(
        supported=f"Weights of {min(WIDTHS)} bits cost {whole - narrow}: {narrow} after {whole}",
        refuted=f"Weights of {min(WIDTHS)} bits gain {narrow - whole}: {narrow} after {whole}",
        undecided=f"Weights of {min(WIDTHS)} bits are not shown to cost anything: {narrow}",
    )


@page.fact
def tried(r: Records) -> Fact:
    """What is counted, and cannot come out otherwise, is a fact."""
    return Fact(text=f"The weights were rounded to {len(WIDTHS)} widths", of="every Linear layer")


@page.chart(caption="Test accuracy at each width, beside the model that was rounded.")
def accuracy(r: Records) -> Chart:
    rows = [{"width": width, "rounded": rounded(r, width)} for width in WIDTHS]
    marks = [line("rounded"), level(fp32(r))]
    return Chart(rows, x=doubling("width", "bits"), y=percent("test accuracy"), marks=marks)


@page.table
def models(r: Records) -> Sequence[Row]:
    """Rows of a table; an arm prints as its accuracy with its interval."""
    rounded_rows: list[Row] = [
        {"weights": f"{width} bits", "test accuracy": rounded(r, width)} for width in WIDTHS
    ]
    return [{"weights": "FP32", "test accuracy": fp32(r)}, *rounded_rows]
