"""Question 4.3a: what MXINT8 on both sides of a product gains, in gates and on hardware at hand.

The gates of a unit made for it are those that question 4.4 counted. A CPU with byte dot products is
hardware at hand: a Linear whose weights and inputs are MXINT8, the inputs quantized on the fly,
against FP32 and BF16, their weights as torch keeps them and rearranged beforehand, and against
torch's dynamic INT8; then the whole classifier. All take turns in each of several processes.
"""

from collections.abc import Iterable, Sequence

from madl.execution.linear_times import (
    BATCHES,
    BF16,
    BITS,
    CONVERTED,
    DYNAMIC,
    FP32,
    MXINT8,
    VARIANTS,
    faster,
    layer_case,
    layer_rows,
    megabytes,
    model_rows,
    model_times,
    most,
    num_weights,
    peer_rows,
    rate_rows,
    said,
    speedup_rows,
    strongest,
    times,
)
from madl.hardware import compared, counts
from madl.logbook import benchmarks
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear
from madl.logbook.claims import Fact, Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(
    title="MXINT8 on both sides of a product",
    needs=("baseline", "machine", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
)

ROWS = "1 4 16 64 256"
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
GATES = ("MXINT8 × MXINT8", "bf16 × bf16", "MXINT8 × bf16")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    base = baseline.recipe_params(plan, 0)
    repeated = {
        "budget_s": choose(smoke=0.0, quick=0.05, full=0.3),
        "processes": choose(smoke=2, quick=5, full=9),
    }
    for layer, (num_in, num_out) in LAYERS.items():
        size = {"in": num_in, "out": num_out, "rows": choose(smoke="1 8", quick=ROWS)}
        processes = choose(smoke=2, quick=5 if layer == "coursework" else 4, full=9)
        yield {"what": "linear", "layer": layer, **size, **repeated, "processes": processes}
    yield {"what": "evaluation", **base, "batches": BATCHES, "length": 27, **repeated}
    for variant in choose(smoke=(MXINT8,), quick=CONVERTED):
        yield {"what": "accuracy", "variant": variant, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.execution import arithmetic

    if params["what"] == "accuracy":
        model = arithmetic.prepared(baseline.fine_tuned(params, ctx), str(params["variant"]))
        return baseline.judge_on_test(model, params, "cpu")
    if params["what"] == "linear":
        return arithmetic.study(params)
    return arithmetic.study({**params, "checkpoint": str(baseline.checkpoint(params, ctx))})


# ---- reading the records ------------------------------------------------------------------------


def classifier(r: Records, variant: str) -> Arm:
    """The starting point's model with every Linear in that arithmetic."""
    if variant != FP32:
        return arm(r, said(variant), what="accuracy", variant=variant)
    return arm(r, FP32, method="fp32", seed=classifier(r, MXINT8).param("seed"))


# ---- claims -------------------------------------------------------------------------------------


def _in_layer(r: Records, rival: str, rows: int) -> Judged:
    t = times(layer_case(r), rows)
    where = f"in a large Linear with {rows} row{'s' if rows > 1 else ''} of inputs"
    return faster(t[MXINT8], strongest(t, rival), where)


def _in_model(r: Records, rival: str, sentences: int) -> Judged:
    t = model_times(r, sentences)
    said_of = f"{sentences} sentences" if sentences > 1 else "one sentence"
    return faster(t[MXINT8], t[rival], f"in the whole classifier, {said_of} at a time")


@page.claim(headline=True)
def bf16_is_beaten_in_the_model(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in BF16."""
    return _in_model(r, BF16, 32)


@page.claim(headline=True)
def one_row_is_faster(r: Records) -> Judged:
    """With one row of inputs, a large Linear is faster in MXINT8 than in FP32, prepacked or not."""
    return _in_layer(r, FP32, 1)


@page.claim
def many_rows_are_faster(r: Records) -> Judged:
    """With the most rows, a large Linear is faster in MXINT8 than in FP32, prepacked or not."""
    return _in_layer(r, FP32, most(r))


@page.claim
def bf16_is_beaten_at_one_row(r: Records) -> Judged:
    """With one row, a large Linear is faster in MXINT8 than in BF16, prepacked or not."""
    return _in_layer(r, BF16, 1)


@page.claim(headline=True)
def bf16_is_beaten_at_many_rows(r: Records) -> Judged:
    """With the most rows, a large Linear is faster in MXINT8 than in BF16, prepacked or not."""
    return _in_layer(r, BF16, most(r))


@page.claim
def torch_int8_is_beaten_at_one_row(r: Records) -> Judged:
    """With one row, MXINT8 is faster than torch's dynamic INT8, which has fewer scales."""
    return _in_layer(r, DYNAMIC, 1)


@page.claim
def torch_int8_is_beaten_at_many_rows(r: Records) -> Judged:
    """With the most rows, MXINT8 is faster than torch's dynamic INT8, which has fewer scales."""
    return _in_layer(r, DYNAMIC, most(r))


@page.claim
def small_layer_is_faster(r: Records) -> Judged:
    """With one row, the default model's largest Linear is faster in MXINT8 than in FP32 too."""
    record = layer_case(r, "default")
    t = times(record, 1)
    where = f"with one row, in a layer of {megabytes(record, FP32):.1f} MB in FP32"
    return faster(t[MXINT8], strongest(t, FP32), where)


@page.claim(headline=True)
def torch_int8_is_beaten_in_the_model(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in torch's dynamic INT8."""
    return _in_model(r, DYNAMIC, 32)


@page.claim
def model_is_faster(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in FP32."""
    return _in_model(r, FP32, 32)


@page.claim(headline=True)
def accuracy_stays(r: Records) -> Judged:
    """With every Linear in MXINT8, the classifier loses less than one point against FP32."""
    ours, fp32 = classifier(r, MXINT8), classifier(r, FP32)
    both = f"the classifier is right on {ours}, in FP32 on {fp32}"
    return (compare(ours, fp32).no_worse(MARGIN)).judge(
        supported=f"Every Linear in MXINT8 costs less than a point of accuracy: {both}",
        refuted=f"Every Linear in MXINT8 costs more than a point of accuracy: {both}",
        undecided=f"Nothing shows that every Linear in MXINT8 costs less than a point: {both}",
    )


@page.claim
def more_accurate_than_torch_int8(r: Records) -> Judged:
    """The classifier is more accurate with MXINT8 than with torch's dynamic INT8."""
    ours, other = classifier(r, MXINT8), classifier(r, DYNAMIC)
    return compare(ours, other).judge(
        supported=f"With MXINT8 the classifier is {ours - other} more accurate than with torch's "
        f"INT8: {ours} against {other}",
        refuted=f"With MXINT8 the classifier is {other - ours} less accurate than with torch's "
        f"INT8: {ours} against {other}",
        undecided="Nothing shows which makes the classifier more accurate, MXINT8 or torch's INT8: "
        f"{ours} and {other}",
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def fewer_gates(r: Records) -> Fact:
    mx, bf16, mixed = (counts.transistors(r, **counts.COMPARED[unit]) for unit in GATES)
    whole = counts.transistors(r, **compared.QUANTIZING)
    return Fact(
        text=f"A dot product of {counts.LANES} pairs in gates takes {mx:,} transistors with MXINT8 "
        f"on both sides and {bf16:,} in bf16, {number(bf16 / mx)} times as many, "
        f"{number(bf16 / whole)} times where the MXINT8 unit quantizes bf16 inputs itself; with "
        f"MXINT8 weights and bf16 inputs it takes {mixed:,}, {number(mixed / bf16)} times bf16's",
        of="gates of four synthesized units, transistors estimated",
    )


@page.fact
def fewer_bytes(r: Records) -> Fact:
    record = layer_case(r)
    t = times(record, 1)
    fp32 = strongest(t, FP32)
    return Fact(
        text=f"The layer's weight is {megabytes(record, FP32):.1f} MB in FP32 and "
        f"{megabytes(record, MXINT8):.1f} MB in MXINT8, {number(BITS[FP32] / BITS[MXINT8])} times "
        f"smaller; with one row the layer is {fp32 / t[MXINT8]} as fast as {fp32.label}",
        of=f"{num_weights(record):,} weights",
    )


@page.fact
def errors_of_a_layer(r: Records) -> Fact:
    record = layer_case(r)
    mx, torch_s = (record.values["error_db"][f"{v} {most(r)}"] for v in (MXINT8, DYNAMIC))
    outputs = int(record.case.params["out"] or 0) * most(r)
    return Fact(
        text="The layer's results in MXINT8, which has a scale for every 32 values, are "
        f"{mx:.1f} dB above their error, and in torch's INT8 {torch_s:.1f} dB",
        of=f"{outputs:,} outputs of one layer, normal weights and inputs",
    )


# ---- charts and tables --------------------------------------------------------------------------


@page.chart(
    caption="How many times as fast MXINT8 is as each other arithmetic, in one layer of the "
    "coursework's model. Above the line at one it is the faster one."
)
def speedup(r: Records) -> Chart:
    return Chart(
        speedup_rows(r),
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over that of the other"),
        marks=[level(1.0, "as fast"), *(line(said(v)) for v in VARIANTS[:-1])],
    )


@page.chart(
    caption="The whole classifier's speed over FP32's, in each arithmetic. Only the Linear layers "
    "differ; attention, norms and activations stay as they were, but for BF16."
)
def model(r: Records) -> Chart:
    return Chart(
        model_rows(r),
        x=category("batch", label="sentences at a time"),
        y=linear(label="speed over FP32's", unit="×"),
        marks=[level(1.0, FP32), *bars(*map(said, CONVERTED))],
    )


page.table(layer_rows)
page.table(rate_rows)


@page.table
def accuracy(r: Records) -> Sequence[Row]:
    """The classifier's accuracy and the layer's error in each arithmetic."""
    errors = layer_case(r).values["error_db"]
    return [
        {
            "arithmetic": said(v),
            "test accuracy": classifier(r, v) if v in {FP32, *r.each("variant")} else None,
            "one layer, signal to error (dB)": errors[f"{v} {most(r)}"],
        }
        for v in (FP32, *CONVERTED)
    ]


@page.table
def gates(r: Records) -> Sequence[Row]:
    return counts.gate_rows(r)


@page.table
def peers(r: Records) -> Sequence[Row]:
    return peer_rows()


@page.table
def peers_run(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("mxint8")
