"""Question 4.3a: what MXINT8 on both sides of a product gains, in gates and on hardware at hand.

The gates of a unit made for it are those that question 4.4 counted. A CPU with byte dot products is
hardware at hand: a Linear whose weights and inputs are MXINT8, the inputs quantized on the fly,
against FP32 and BF16, their weights as torch keeps them and rearranged beforehand, and against
torch's dynamic INT8; then the whole classifier. All take turns in each of several processes.
"""

from collections.abc import Iterable, Sequence

from experiments.lab4_mxint8 import gpu_peers, linear_facts, linear_peers
from madl.execution.linear_times import (
    BATCHES,
    BF16,
    CONVERTED,
    DYNAMIC,
    FP32,
    MXINT8,
    beside,
    layer_case,
    layer_rows,
    model_rows,
    model_times,
    most,
    num_rows,
    rate_rows,
    said,
    shape,
    small_layer_rows,
    speedup_rows,
    strongest,
    times,
)
from madl.hardware.unit_records import finely, share
from madl.logbook import benchmarks
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear
from madl.logbook.claims import Judged, compare, faster
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import counted
from madl.training import baseline

page = Experiment(
    title="MXINT8 on both sides of a product",
    needs=("baseline", "machine", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
)

ROWS = "1 4 16 64 256"
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost


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


@page.quick
def quick(params: Params) -> bool:
    return params["what"] == "linear" and params["layer"] == "default"


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


def _in_layer(r: Records, rival: str, rows: int, layer: str = "coursework") -> Judged:
    record = layer_case(r, layer)
    t = times(record, rows)
    where = f"in {shape(record)} with {counted(rows, 'row')} on a CPU"
    return faster(t[MXINT8], strongest(t, rival), where)


def _in_model(r: Records, rival: str, sentences: int) -> Judged:
    t = model_times(r, sentences)
    at_a_time = f"{counted(sentences, 'sentence')} at a time"
    where = f"in the whole default classifier with {at_a_time} on a CPU"
    return beside(faster(t[MXINT8], strongest(t, rival), where), t, rival)


@page.claim(headline=True)
def bf16_is_beaten_in_the_model(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in BF16, prepacked or not."""
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
    return _in_layer(r, FP32, 1, "default")


@page.claim
def bf16_is_beaten_in_the_small_layer(r: Records) -> Judged:
    """With the most rows, the default model's largest Linear is faster in MXINT8 than in BF16."""
    return _in_layer(r, BF16, most(r), "default")


@page.claim(headline=True)
def torch_int8_is_beaten_in_the_model(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in torch's dynamic INT8."""
    return _in_model(r, DYNAMIC, 32)


@page.claim
def model_is_faster(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in FP32, prepacked or not."""
    return _in_model(r, FP32, 32)


@page.claim(headline=True)
def accuracy_stays(r: Records) -> Judged:
    """With every Linear in MXINT8, the classifier loses less than one point against FP32."""
    ours, fp32 = classifier(r, MXINT8), classifier(r, FP32)
    both = f"the classifier is right on {ours}, in FP32 on {fp32}"
    return (compare(ours, fp32).no_worse(MARGIN)).judge(
        supported="Every Linear in MXINT8 costs less than a point of accuracy: "
        f"{both} ({finely(ours, fp32)})",
        refuted="Every Linear in MXINT8 costs more than a point of accuracy: "
        f"{both} ({finely(ours, fp32)})",
        undecided="Nothing shows that every Linear in MXINT8 costs less than a point: "
        f"{both} ({finely(ours, fp32)})",
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


for answer in (linear_facts.fewer_gates, linear_facts.few_and_many_rows):
    page.fact(headline=True)(answer)
for found in (
    *(linear_facts.timed_layers, linear_facts.floats_as_exact, linear_facts.weights_alone),
    *(linear_facts.fewer_bytes, linear_facts.rates_with_one_row, linear_peers.nearest_peers),
    *(linear_facts.most_rows_beside_bf16, linear_facts.errors_of_a_layer),
    *(linear_peers.disagreements, linear_peers.prepacked_bf16, gpu_peers.gpu_run),
):
    page.fact(found)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart(
    caption="How many times as fast MXINT8 is as each other arithmetic, in the large Linear, the "
    "largest of the coursework's model. Above the line at one it is the faster one. Its time "
    "includes quantizing FP32 inputs, as that of torch's INT8 does; BF16 gets inputs that are BF16 "
    "already. Prepacked weights were rearranged by the library before, as MXINT8's are."
)
def speedup(r: Records) -> Chart:
    rows = speedup_rows(r)
    return Chart(
        rows,
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over that of the other"),
        marks=[level(1.0, "as fast"), *(line(other) for other in rows[0] if other != "rows")],
    )


@page.chart(
    caption="The whole classifier's speed over FP32's as torch keeps its weights, in each "
    "arithmetic. Only the Linear layers differ; attention, norms and activations stay as they "
    "were, but for BF16."
)
def model(r: Records) -> Chart:
    rows = model_rows(r)
    return Chart(
        rows,
        x=category("batch", label="sentences at a time"),
        y=linear(label="speed over FP32's", unit="×"),
        marks=[level(1.0, FP32), *bars(*(other for other in rows[0] if other != "batch"))],
    )


for rows in (
    *(linear_facts.gate_rows, layer_rows, small_layer_rows, rate_rows),
    gpu_peers.gpu_kernels,
):
    page.table(rows)


@page.table
def accuracy(r: Records) -> Sequence[Row]:
    """The classifier's accuracy and one layer's error in each arithmetic, by the layer's rows."""
    record = layer_case(r)
    errors, few_and_many = record.values["error_db"], (num_rows(record)[0], num_rows(record)[-1])
    return [
        {
            "arithmetic": said(v),
            **_accuracy(r, v),
            **{
                f"one layer, {counted(n, 'row')}: signal to error (dB)": errors[f"{v} {n}"]
                for n in few_and_many
            },
        }
        for v in (FP32, *CONVERTED)
    ]


def _accuracy(r: Records, variant: str) -> Row:
    """Of the classifier, and beside FP32's; empty where it was not judged."""
    if variant not in {FP32, *r.each("variant")}:
        return {"test accuracy": None, "against FP32": None}
    one = classifier(r, variant)
    difference = "the reference" if variant == FP32 else finely(one, classifier(r, FP32))
    return {"test accuracy": share(one), "against FP32": difference}


@page.table
def peers(r: Records) -> Sequence[Row]:
    return linear_peers.layer_peers()


@page.table
def model_peers(r: Records) -> Sequence[Row]:
    return linear_peers.model_peers()


@page.table
def peers_run(r: Records) -> Sequence[Row]:
    return [*benchmarks.run_table(linear_peers.NAME), *linear_peers.code_rows()]
