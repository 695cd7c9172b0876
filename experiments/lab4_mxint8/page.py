"""Question 4.3a: what MXINT8 on both sides of a product gains, in gates and on a CPU at hand.

The gates are those that question 4.4 counted. On a CPU with byte dot products a Linear whose
weights and inputs are MXINT8, the inputs quantized in every call, takes turns with FP32, BF16 and
torch's dynamic INT8 in each of several processes; then the whole classifier does.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import median

from experiments.lab4_hardware import records as units
from experiments.lab4_hardware.records import BF16_ADDERS, MIXED, QUANTIZING, Described
from madl.logbook import benchmarks, stats
from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.logbook.stats import Estimate, number
from madl.training import baseline

page = Experiment(
    title="MXINT8 on both sides of a product",
    needs=("earlier_baseline", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
)

FP32, BF16, DYNAMIC, MXINT8 = "FP32", "BF16", "INT8, torch dynamic", "MXINT8"
PREPACKED, ONEDNN = ", prepacked", ", oneDNN"  # the same arithmetic, computed in another way
VARIANTS = (
    *(FP32, FP32 + PREPACKED, BF16, BF16 + PREPACKED),
    *(DYNAMIC, DYNAMIC + ONEDNN, MXINT8),
)
RIVALS = {FP32: "FP32", BF16: "BF16", DYNAMIC: "torch's INT8"}  # each in the faster of its ways
CONVERTED = (BF16, DYNAMIC, MXINT8)  # of a whole classifier that is judged, beside FP32
ROWS = "1 4 16 64 256"
MOST = 256
BATCHES = "1 32"  # sentences at a time
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
COMPARED = (units.MXINT8, QUANTIZING, units.BF16, MIXED, BF16_ADDERS, units.FP32)
DRAWN = (units.BF16, MIXED, QUANTIZING, units.MXINT8)  # units that round once, at the end


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    base = baseline.recipe_params(plan, 0)
    repeated = {
        "budget_s": choose(smoke=0.0, quick=0.05),  # more processes decide, not more samples
        "processes": choose(smoke=1, quick=5, full=9),
    }
    for layer, (num_in, num_out) in LAYERS.items():
        size = {"in": num_in, "out": num_out, "rows": choose(smoke="1 8", quick=ROWS)}
        yield {"what": "linear", "layer": layer, **size, **repeated}
    yield {"what": "evaluation", **base, "batches": BATCHES, "length": 27, **repeated}
    for variant in choose(smoke=(MXINT8,), quick=CONVERTED):
        yield {"what": "accuracy", "variant": variant, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_mxint8 import study

    if params["what"] == "accuracy":
        model = study.prepared(baseline.fine_tuned(params, ctx), str(params["variant"]))
        return baseline.judge_on_test(model, params, "cpu")
    if params["what"] == "linear":
        return study.study(params)
    return study.study({**params, "checkpoint": str(baseline.checkpoint(params, ctx))})


# ---- reading the records ------------------------------------------------------------------------


def classifier(r: Records, variant: str) -> Arm:
    """The starting point's model with every Linear in that arithmetic."""
    if variant != FP32:
        return arm(r, variant, what="accuracy", variant=variant)
    return arm(r, FP32, method="fp32", seed=classifier(r, MXINT8).param("seed"))


def layer_of(r: Records, layer: str = "coursework") -> Record:
    return r.one(what="linear", layer=layer)


def times(record: Record, size: int) -> dict[str, TimedArm]:
    """Every arithmetic that was timed on so many rows or sentences.

    Raises:
        Pending: none was, MXINT8 neither.
    """
    measured, one = record.values["measurements"], Records([record])
    if f"{MXINT8} {size}" not in measured:
        raise Pending(f"{record.place}, {size} at a time")
    return {v: timed(one, f"{v} {size}", v) for v in VARIANTS if f"{v} {size}" in measured}


def strongest(t: Mapping[str, TimedArm], variant: str) -> TimedArm:
    """The faster of an arithmetic's ways: as torch has it, prepacked, or by another engine.

    Raises:
        Pending: none of them is right on that machine.
    """
    found = [t[name] for name in (variant, variant + PREPACKED, variant + ONEDNN) if name in t]
    if not found:
        raise Pending(f"a right result in {variant}")
    return min(found, key=lambda one: one.median_s)


def speed_over(t: Mapping[str, TimedArm], rival: str) -> Estimate | None:
    """Of MXINT8; None where the rival is never right."""
    try:
        return strongest(t, rival) / t[MXINT8]
    except Pending:
        return None


def time_or_why(record: Record, variant: str, size: int) -> TimedArm | str | None:
    """A call's time on so many rows or sentences; in its place, why a peer was left out."""
    why = record.values.get("failed_peers", {}).get(f"{variant} {size}")
    return times(record, size).get(variant, why)


def in_layer(r: Records, rival: str, rows: int, layer: str = "coursework") -> Contrast:
    """The speed of MXINT8 over that of a rival, in one layer."""
    t = times(layer_of(r, layer), rows)
    return compare(t[MXINT8], strongest(t, rival))


def in_model(r: Records, rival: str, sentences: int = 32) -> Contrast:
    """The same in the whole classifier."""
    t = times(r.one(what="evaluation"), sentences)
    return compare(t[MXINT8], strongest(t, rival))


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def accuracy_stays(r: Records) -> Contrast:
    """With every Linear in MXINT8 on both sides, the classifier loses at most one point of accuracy
    to FP32."""
    return compare(classifier(r, MXINT8), classifier(r, FP32)).no_worse(MARGIN)


@page.claim(primary=True)
def one_row_is_faster(r: Records) -> Contrast:
    """With one row of inputs and calls back to back, a large Linear is faster in MXINT8 than in
    BF16, prepacked or not."""
    return in_layer(r, BF16, 1)


@page.claim
def many_rows(r: Records) -> Contrast:
    """The large Linear with the most rows: the speed of MXINT8 over BF16's."""
    return in_layer(r, BF16, MOST)


@page.claim
def many_rows_beside_int8(r: Records) -> Contrast:
    """The large Linear with the most rows: the speed of MXINT8 over that of torch's INT8."""
    return in_layer(r, DYNAMIC, MOST)


@page.claim
def small_layer(r: Records) -> Contrast:
    """The default model's largest Linear with the most rows: the speed of MXINT8 over BF16's."""
    return in_layer(r, BF16, MOST, "default")


@page.claim
def whole_classifier(r: Records) -> Contrast:
    """The whole classifier, many sentences at a time: the speed of MXINT8 over BF16's."""
    return in_model(r, BF16)


@page.claim
def whole_classifier_beside_int8(r: Records) -> Contrast:
    """The whole classifier, many sentences at a time: the speed of MXINT8 over torch's INT8's."""
    return in_model(r, DYNAMIC)


@page.claim
def more_accurate_than_int8(r: Records) -> Contrast:
    """The classifier's accuracy in MXINT8 over that in torch's INT8."""
    return compare(classifier(r, MXINT8), classifier(r, DYNAMIC))


# ---- numbers ------------------------------------------------------------------------------------


def share(r: Records, unit: Described, period: int | None = None) -> Counted:
    """A unit's transistors, of bf16's."""
    return units.percent_of(r, unit, units.BF16, period)


def decibels(r: Records, unit: Described) -> Counted:
    """Signal to error of a unit's results."""
    return counted(round(units.error_db(r, unit) or 0), "dB", of=[units.gates(r, unit)])


def calls(r: Records, variant: str) -> Counted:
    """Calls in a row that one sample of the time at one row has, by processes' median."""
    record = layer_of(r)
    runs = record.values["measurements"][f"{variant} 1"]
    return counted(round(median(run["calls_per_sample"] for run in runs)), of=[record])


page.numbers(
    both_sides=partial(share, unit=units.MXINT8),
    quantizing=partial(share, unit=QUANTIZING),
    weights_alone=partial(share, unit=MIXED),
    exponents=partial(units.part, unit=units.BF16, name="lane exponents"),
    mixed_exponents=partial(units.part, unit=MIXED, name="lane exponents"),
    unit_error=partial(decibels, unit=units.MXINT8),
    bf16_error=partial(decibels, unit=units.BF16),
    fp32=partial(classifier, variant=FP32),
    mxint8=partial(classifier, variant=MXINT8),
    at_most_rows=partial(in_layer, rival=BF16, rows=MOST),
    in_the_model=partial(in_model, rival=BF16),
    int8_in_the_model=partial(in_model, rival=DYNAMIC),
    calls=partial(calls, variant=MXINT8),
    fp32_calls=partial(calls, variant=FP32),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def parts(r: Records) -> Chart:
    rows = units.part_rows(r, DRAWN)
    return Chart(
        rows,
        x=linear(None, "transistors of one unit", "thousand", factor=1e-3),
        y=category("unit"),
        marks=bars(*(name for name in rows[0] if name != "unit"), stacked=True),
    )


@page.chart
def speedup(r: Records) -> Chart:
    record = layer_of(r)
    rows: list[Row] = []
    for n in map(int, str(record.case.params["rows"]).split()):
        t = times(record, n)
        speeds = {name: speed_over(t, rival) for rival, name in RIVALS.items()}
        rows.append({"rows": n, **speeds})
    return Chart(
        rows,
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over the other"),
        marks=[level(1.0, "as fast"), *map(line, RIVALS.values())],
    )


@page.table
def gates(r: Records) -> Sequence[Row]:
    return units.unit_rows(r, COMPARED)


@page.table
def ways(r: Records) -> Sequence[Row]:
    """Each arithmetic in each of its ways, in the large layer and in the whole classifier."""
    layer, model = layer_of(r), r.one(what="evaluation")
    ends = str(layer.case.params["rows"]).split()
    works = [(layer, n, "row") for n in (ends[0], ends[-1])]
    works += [(model, n, "sentence") for n in str(model.case.params["batches"]).split()]
    return [
        {"": v, **{stats.counted(int(n), of): time_or_why(x, v, int(n)) for x, n, of in works}}
        for v in VARIANTS
    ]


@page.table
def peers(r: Records) -> Sequence[Row]:
    """How many times as fast MXINT8 is as each peer of the benchmark, by medians of one run."""
    found: list[Row] = []
    for (layer, rows), arms in benchmarks.arms("mxint8", part="linear").items():
        us = {name: median(chain.from_iterable(one.samples_s)) for name, one in arms.items()}
        over = {name: f"{number(s / us[MXINT8])} ×" for name, s in us.items() if name != MXINT8}
        found.append({"layer": layer, "rows": rows, **over})
    return found
