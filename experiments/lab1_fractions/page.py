"""The fraction width that each width wants: the sensible ones tried, on validation sentences only.

Question 1.1, and whoever needs a fixed-point format of some width, chooses here; nothing on this
page is judged on test. The candidates are in `madl/training/widths.py`.
"""

from collections.abc import Iterable, Sequence

from madl.logbook.arms import every_arm
from madl.logbook.charts import Chart, Mark, category, cells
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
        for learning_rate in widths.LEARNING_RATES:
            yield {"swept": "control", **base, **widths.training(plan, learning_rate)}
        for width in widths.of_plan(plan):
            for trained in widths.trainings(plan, width):
                yield {"swept": "qat", **base, **trained}
        for width in widths.of_plan(plan):
            for pair in widths.tried(plan, width):
                yield {"swept": "ptq", **base, **point(width, pair)}
        for operands, fractions in widths.ALONE.items():
            for frac in fractions:
                yield {"swept": "ptq", **base, **point(widths.APART, (frac, frac), operands)}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import compressed

    model = compressed.build(params, ctx, exact_products=True)
    return baseline.judge_on_validation(model, params, ctx.device)


def tried(r: Records, swept: str, *, shared: bool = False) -> list[Row]:
    """Every point of a sweep, with its mean validation accuracy in whole per cent.

    `shared` leaves those with one fraction width for both. What is chosen at a width is marked.
    """
    best: dict[tuple[int, ...], float] = {}  # of the learning rates
    for arm in every_arm(r, swept=swept, operands="both"):
        place = (arm.param("width"), *pair_of(arm))
        best[place] = max(arm.validation, best.get(place, 0.0))
    at = {width for width, _, _ in best}
    taken = {w: pair_of(chosen(r, swept, w, shared=shared)) for w in at}
    return [
        {
            "width": f"{width} bits",
            "weights": weights,
            "inputs": inputs,
            "accuracy": round(100 * accuracy),
            "chosen": "chosen" if (weights, inputs) == taken[width] else None,
        }
        for (width, weights, inputs), accuracy in best.items()
        if weights == inputs or not shared
    ]


def shaded(r: Records) -> Mark:
    """Accuracies, in one scale of shades on the whole page: from the larger class to FP32."""
    low, high = baseline.larger_class(r), baseline.fp32(r).validation
    return cells(
        "accuracy", "validation accuracy, %", text="chosen", low=100 * low, high=100 * high
    )


@page.chart(
    caption="One fraction width for both, after quantization alone: a row a width, a column the "
    "bits behind the point, in the cell the validation accuracy in per cent, the mean over the "
    "models. Outlined: the most accurate of the row, before rounding; of equals, that of the lower "
    "loss. Empty: not tried. Shade, alike in all figures: faintest at the larger class's share, "
    "strongest at FP32's accuracy."
)
def shared_sweep(r: Records) -> Chart:
    rows = tried(r, "ptq", shared=True)
    return Chart(
        sorted(rows, key=lambda row: row["weights"]),
        x=category("weights", "bits behind the point"),
        y=category("width"),
        marks=[shaded(r)],
    )


def by_operand(r: Records, swept: str) -> Chart:
    """A panel a width: a column the fraction bits of the weights, a row those of the inputs."""
    narrow = {f"{width} bits" for width in widths.OWN}
    rows = [row for row in tried(r, swept) if row["width"] in narrow]
    return Chart(
        sorted(rows, key=lambda row: (row["weights"], row["inputs"])),
        x=category("weights", "bits behind the point of the weights"),
        y=category("inputs", "bits behind the point of the inputs"),
        marks=[shaded(r)],
        facet="width",
    )


@page.chart(
    caption="A fraction width for each, after quantization alone, at the narrow widths. The "
    "diagonal, where both are equal, is the figure above. Outlined: what validation prefers at the "
    "width."
)
def own_sweep(r: Records) -> Chart:
    return by_operand(r, "ptq")


@page.chart(
    caption="The same after training on in the format; of two learning rates, where they were "
    "tried, the better one."
)
def qat_sweep(r: Records) -> Chart:
    return by_operand(r, "qat")


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
        row["QAT: learning rate"] = widths.power(
            chosen(r, "qat", width).param("tune_learning_rate")
        )
        found.append(row)
    return found
