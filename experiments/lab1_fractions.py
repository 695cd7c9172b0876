"""The fraction width that each width wants: the sensible ones tried, on validation sentences only.

Question 1.1, and whoever needs a fixed-point format of some width, chooses here; nothing on this
page is judged on test. The candidates are in `madl/training/widths.py`.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import every_arm
from madl.logbook.charts import Chart, category, cells
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.training import baseline, widths
from madl.training.widths import chosen, pair_of, point

page = Experiment(title="Fraction widths, chosen on validation", needs=("baseline",))


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed in range(plan.profile.seeds):
        base = baseline.recipe_params(plan, seed)
        for width in widths.of_plan(plan):
            for pair in widths.TRAINED[width]:
                yield {"swept": "qat", **base, **point(width, pair), **widths.training(plan)}
        for width in widths.of_plan(plan):
            for pair in widths.pairs(width):
                yield {"swept": "ptq", **base, **point(width, pair)}
        for operands, fractions in widths.ALONE.items():
            for frac in fractions:
                yield {"swept": "ptq", **base, **point(widths.APART, (frac, frac), operands)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import compressed

    model = compressed.build(params, ctx, exact_products=True)
    return baseline.judge_on_validation(model, params, ctx.device)


def said(pair: tuple[int, int]) -> str:
    weights, inputs = pair
    return str(weights) if weights == inputs else f"{weights} | {inputs}"


def heat_map(r: Records, swept: str) -> Chart:
    """A row a width, a column a pair of fraction widths."""
    found: list[Row] = []
    for width in r.where(swept=swept, operands="both").each("width"):
        for arm in every_arm(r, swept=swept, operands="both", width=width):
            found.append(
                {
                    "width": f"{width} bits",
                    "behind the point": said(pair_of(arm)),
                    "validation accuracy": arm.validation,
                    "place": (pair_of(arm)[0] != pair_of(arm)[1], *pair_of(arm)),
                }
            )
    ordered = sorted(found, key=lambda row: row["place"])
    return Chart(
        [{name: row[name] for name in row if name != "place"} for row in ordered],
        x=category("behind the point", "bits behind the point: of both, or of weights | of inputs"),
        y=category("width"),
        marks=[cells("validation accuracy")],
    )


@page.chart(
    caption="After quantization alone: a row a width, a column the bits behind the point, and in "
    "the cell the accuracy on the validation sentences. An empty cell was not tried."
)
def ptq_sweep(r: Records) -> Chart:
    return heat_map(r, "ptq")


@page.chart(caption="The same after training on in the format.")
def qat_sweep(r: Records) -> Chart:
    return heat_map(r, "qat")


@page.table
def choices(r: Records) -> Sequence[Row]:
    found: list[Row] = []
    for width in r.where(swept="qat").each("width"):
        row: dict[str, object] = {"width": width}
        for swept in ("ptq", "qat"):
            best = chosen(r, swept, width)
            weights, inputs = pair_of(best)
            row[f"{swept.upper()}: weights"] = weights
            row[f"{swept.upper()}: inputs"] = inputs
            row[f"{swept.upper()}: validation"] = per_cent(best.validation)
        found.append(row)
    return found
