"""Question 4.3a: what MXINT8 on both sides of a product gains, measured where there is hardware.

A CPU with byte dot products (VNNI) is such hardware: a Linear whose weights and inputs are MXINT8,
the inputs quantized on the fly, against torch's FP32, BF16 and dynamic INT8, by number of rows; and
the whole classifier's evaluation, its speed and its accuracy. The gates of a unit made for it are
those that question 4.4 counted.

Shapes: a Linear of `in` inputs and `out` outputs is given `rows` rows.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from madl.hardware import counts
from madl.logbook import benchmarks
from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, bars, category, doubling, level, line, linear
from madl.logbook.claims import Fact, Judged, all_of, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline

page = Experiment(
    title="MXINT8 on both sides of a product",
    needs=("baseline", "machine", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
)

ROWS = (1, 4, 16, 64, 256)
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
VARIANTS = ("FP32", "BF16", "INT8, torch dynamic", "MXINT8")
FP32, BF16, DYNAMIC, MXINT8 = VARIANTS
SAID = {DYNAMIC: "torch's INT8"}  # what a sentence, a column or a series calls it
BITS = {FP32: 32, BF16: 16, DYNAMIC: 8, MXINT8: 8.25}  # of a weight and its share of the scale
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
GATES = ("MXINT8 × MXINT8", "bf16 × bf16", "MXINT8 × bf16")


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    base = baseline.recipe_params(plan, 0)
    budget_s = choose(smoke=0.01, quick=0.15, full=0.5)
    for layer, (num_in, num_out) in LAYERS.items():
        few = (ROWS[0], ROWS[-1])
        for rows in choose(smoke=few, quick=ROWS if layer == "coursework" else few, full=ROWS):
            size = {"in": num_in, "out": num_out, "rows": rows}
            yield {"what": "linear", "layer": layer, **size, "budget_s": budget_s}
    for batch in (1, 32):
        size = {"batch": batch, "length": 27, "budget_s": 2 * budget_s}
        yield {"what": "evaluation", **base, **size}
    for variant in choose(smoke=(MXINT8,), quick=VARIANTS[1:], full=VARIANTS[1:]):
        yield {"what": "accuracy", "variant": variant, **base}


@page.run
def run(params: Params, ctx: Context) -> Values:
    if params["what"] == "linear":
        return time_layer(params)
    if params["what"] == "evaluation":
        return time_model(params, ctx)
    model = prepared(baseline.fine_tuned(params, ctx), str(params["variant"]))
    return baseline.judge_on_test(model, params, "cpu")


def time_layer(params: Params) -> Values:
    """One layer's times and errors; the results are checked before they are timed."""
    import torch
    from torch import nn

    from kernels import mxint8
    from madl.machine.timing import compare

    generator = torch.Generator().manual_seed(0)
    num_in, num_out, rows = (int(params[name] or 0) for name in ("in", "out", "rows"))
    layer = nn.Linear(num_in, num_out)
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    x = torch.randn(rows, num_in, generator=generator)
    half = x.bfloat16()
    with torch.inference_mode():
        exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
        layers = {variant: prepared(nn.Sequential(layer), variant) for variant in VARIANTS}
        given = {variant: half if variant == BF16 else x for variant in VARIANTS}
        errors = {v: error_db(layers[v](given[v]), exact) for v in VARIANTS}
        assert min(errors.values()) > 20, errors
        work = {v: lambda v=v: layers[v](given[v]) for v in VARIANTS}
        timed = compare(work, budget_s=float(params["budget_s"] or 0))
    return {
        "samples_s": {name: m.samples_s for name, m in timed.items()},
        "error_db": errors,
        "path": mxint8.linear_route().path,
    }


def error_db(y: Any, exact: Any) -> float:
    """Signal to error: twenty decibel are a tenth of the signal."""
    error = (y.double() - exact).square().sum() / exact.square().sum()
    return float(-10 * error.log10())


def prepared(model: Any, variant: str) -> Any:
    """A copy of the model in that arithmetic."""
    import copy

    import torch
    from torch import nn

    from madl.compression import pack

    model = copy.deepcopy(model).eval()
    if variant == BF16:
        return model.bfloat16()
    if variant == MXINT8:
        pack.pack_(model, [pack.MXINT8])
    if variant == DYNAMIC:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is announced to move to another package
            model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)
    return model


def time_model(params: Params, ctx: Context) -> Values:
    """The whole classifier on random tokens, all variants interleaved."""
    import torch

    from madl.machine.timing import compare

    model = baseline.fine_tuned(params, ctx)
    size = (int(params["batch"] or 0), int(params["length"] or 0))
    vocabulary: Any = model.config.vocab_size
    ids = torch.randint(1, vocabulary, size, generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    models = {variant: prepared(model, variant) for variant in VARIANTS}
    with torch.inference_mode():
        work: dict[str, Callable[[], object]] = {
            variant: lambda m=models[variant]: m(**batch) for variant in VARIANTS
        }
        timed = compare(work, budget_s=float(params["budget_s"] or 0))
    return {"samples_s": {name: m.samples_s for name, m in timed.items()}}


# ---- reading the records ------------------------------------------------------------------------


def said(variant: str) -> str:
    return SAID.get(variant, variant)


def times(record: Record) -> dict[str, TimedArm]:
    """Each variant of a case that timed them all, interleaved."""
    return {
        name: timed(Records([record]), name, said(name), at=("samples_s",))
        for name in record.values["samples_s"]
    }


def layer_record(r: Records, rows: int, layer: str = "coursework") -> Record:
    return r.one(what="linear", layer=layer, rows=rows)


def layer_times(r: Records, rows: int, layer: str = "coursework") -> dict[str, TimedArm]:
    return times(layer_record(r, rows, layer))


def num_rows(r: Records) -> list[int]:
    return r.all(what="linear", layer="coursework").each("rows")


def num_weights(record: Record) -> int:
    return int(record.case.params["in"]) * int(record.case.params["out"])


def megabytes(record: Record, variant: str) -> float:
    """Of the layer's weight."""
    return num_weights(record) * BITS[variant] / 8 / 1e6


def rate(record: Record, variant: str) -> float:
    """GB/s of weights."""
    return megabytes(record, variant) / 1e3 / times(record)[variant].median_s


def classifier(r: Records, variant: str) -> Arm:
    """The starting point's model with every Linear in that arithmetic."""
    if variant != FP32:
        return arm(r, said(variant), what="accuracy", variant=variant)
    converted = arm(r, MXINT8, what="accuracy", variant=MXINT8)
    return arm(r, FP32, method="fp32", seed=converted.param("seed"))


def int8_ceiling(r: Records) -> float:
    """Operations a second of torch's large INT8 product on this machine."""
    values = r.of("machine").one(device="cpu").values
    return values["amount"]["int8"] / min(values["measurements"]["int8"]["samples_s"])


def faster(ours: TimedArm, other: TimedArm, where: str) -> Judged:
    """Whether ours is the faster one; `where` starts the sentence."""
    return compare(ours, other).judge(
        supported=f"{where}, {ours.label} is {other / ours} as fast as {other.label}: {ours} "
        f"against {other}",
        refuted=f"{where}, {ours.label} is slower than {other.label}: {ours} against {other}",
        undecided=f"{where}, nothing shows which is faster, {ours.label} or {other.label}: {ours} "
        f"against {other}",
    )


# ---- claims and facts ---------------------------------------------------------------------------


@page.claim(headline=True)
def one_row_is_faster(r: Records) -> Judged:
    """With one row of inputs, a large Linear is faster in MXINT8 than in FP32."""
    t = layer_times(r, 1)
    return faster(t[MXINT8], t[FP32], "With one row of inputs to the layer")


@page.claim
def many_rows_are_faster(r: Records) -> Judged:
    """With the most rows of inputs, a large Linear is faster in MXINT8 than in FP32."""
    rows = max(num_rows(r))
    t = layer_times(r, rows)
    return faster(t[MXINT8], t[FP32], f"With {rows} rows")


@page.claim
def bf16_is_beaten_too(r: Records) -> Judged:
    """With one row and with the most rows, a large Linear is faster in MXINT8 than in BF16."""
    rows = max(num_rows(r))
    one, many = layer_times(r, 1), layer_times(r, rows)
    gains = f"{one[BF16] / one[MXINT8]} with one row and {many[BF16] / many[MXINT8]} with {rows}"
    return all_of(
        compare(one[MXINT8], one[BF16]),
        compare(many[MXINT8], many[BF16]),
        supported=f"MXINT8 is faster than BF16 too, {gains}",
        refuted=f"MXINT8 is not faster than BF16 at both numbers of rows: {gains}",
        undecided=f"Nothing shows that MXINT8 is faster than BF16 at both numbers of rows: {gains}",
    )


@page.claim
def torch_int8_is_beaten_at_one_row(r: Records) -> Judged:
    """With one row, MXINT8 is faster than torch's dynamic INT8, which has fewer scales."""
    t = layer_times(r, 1)
    return faster(t[MXINT8], t[DYNAMIC], "With one row")


@page.claim
def torch_int8_is_beaten_at_many_rows(r: Records) -> Judged:
    """With the most rows, MXINT8 is faster than torch's dynamic INT8, which has fewer scales."""
    rows = max(num_rows(r))
    t = layer_times(r, rows)
    return faster(t[MXINT8], t[DYNAMIC], f"With {rows} rows")


@page.claim
def bytes_are_not_all(r: Records) -> Judged:
    """With one row, MXINT8 gains more over FP32 than its fewer bytes alone would give."""
    record = layer_record(r, 1)
    t, fewer = times(record), BITS[FP32] / BITS[MXINT8]
    found = (
        f"with one row MXINT8 is {t[FP32] / t[MXINT8]} as fast, its weight {number(fewer)} times "
        f"smaller; FP32 gets through {number(rate(record, FP32))} GB/s of weights, MXINT8 through "
        f"{number(rate(record, MXINT8))}"
    )
    return (
        compare(t[MXINT8], t[FP32])
        .more_than(fewer - 1)
        .judge(
            supported=f"Fewer bytes are not all of the gain over FP32: {found}",
            refuted=f"The gain over FP32 is less than the fewer bytes would give: {found}",
            undecided=f"Nothing shows that the gain over FP32 is more than of bytes: {found}",
        )
    )


@page.claim(headline=True)
def accuracy_stays(r: Records) -> Judged:
    """With every Linear in MXINT8, the classifier loses less than one point against FP32."""
    ours, fp32 = classifier(r, MXINT8), classifier(r, FP32)
    both = f"the classifier is right on {ours}, in FP32 on {fp32}"
    return (
        compare(ours, fp32)
        .no_worse(MARGIN)
        .judge(
            supported=f"Every Linear in MXINT8 costs less than a point of accuracy: {both}",
            refuted=f"Every Linear in MXINT8 costs more than a point of accuracy: {both}",
            undecided=f"Nothing shows that every Linear in MXINT8 costs less than a point: {both}",
        )
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


@page.claim
def model_is_faster(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in FP32."""
    t = times(r.one(what="evaluation", batch=32))
    return faster(t[MXINT8], t[FP32], "In the whole classifier, 32 sentences at a time")


@page.claim
def model_is_faster_alone(r: Records) -> Judged:
    """The whole classifier evaluates a single sentence faster in MXINT8 than in FP32."""
    t = times(r.one(what="evaluation", batch=1))
    return faster(t[MXINT8], t[FP32], "In the whole classifier, one sentence at a time")


@page.claim(headline=True)
def torch_int8_is_beaten_in_the_model(r: Records) -> Judged:
    """The whole classifier evaluates a batch faster in MXINT8 than in torch's dynamic INT8."""
    t = times(r.one(what="evaluation", batch=32))
    return faster(t[MXINT8], t[DYNAMIC], "In the whole classifier, 32 sentences at a time")


@page.claim
def small_layer_is_faster(r: Records) -> Judged:
    """With one row, the default model's largest Linear is faster in MXINT8 than in FP32 too."""
    record = layer_record(r, 1, "default")
    t, size = times(record), megabytes(record, FP32)
    return faster(t[MXINT8], t[FP32], f"With one row, in a layer of {size:.1f} MB in FP32")


@page.fact
def fewer_gates(r: Records) -> Fact:
    mx, bf16 = (counts.transistors(r, **counts.COMPARED[unit]) for unit in GATES[:2])
    return Fact(
        text=f"A dot product of {counts.LANES} pairs in gates takes {mx:,} transistors with MXINT8 "
        f"on both sides and {bf16:,} in bf16, {number(bf16 / mx)} times as many",
        of="every gate of two synthesised units, each gate's transistors estimated",
    )


@page.fact
def one_side_in_gates(r: Records) -> Fact:
    bf16, mixed = (counts.transistors(r, **counts.COMPARED[unit]) for unit in GATES[1:])
    return Fact(
        text=f"With MXINT8 weights and bf16 inputs the unit takes {mixed:,} transistors, "
        f"{number(mixed / bf16)} times those of bf16 on both sides",
        of="every gate of two synthesised units, each gate's transistors estimated",
    )


@page.fact
def fewer_bytes(r: Records) -> Fact:
    record = layer_record(r, 1)
    return Fact(
        text=f"The layer's weight is {megabytes(record, MXINT8):.1f} MB in MXINT8 and "
        f"{megabytes(record, FP32):.1f} MB in FP32",
        of=f"{num_weights(record):,} weights",
    )


@page.fact
def errors_of_a_layer(r: Records) -> Fact:
    record = layer_record(r, max(num_rows(r)))
    errors = record.values["error_db"]
    outputs = int(record.case.params["out"]) * int(record.case.params["rows"])
    return Fact(
        text="The layer's results in MXINT8, which has a scale for every 32 values, are "
        f"{errors[MXINT8]:.1f} dB above their error, and in torch's INT8 {errors[DYNAMIC]:.1f} dB",
        of=f"{outputs:,} outputs of one layer, normal weights and inputs",
    )


# ---- charts and tables --------------------------------------------------------------------------


@page.chart(
    caption="How many times as fast MXINT8 is as each other arithmetic, in one layer. Above the "
    "line at one it is the faster one."
)
def speedup(r: Records) -> Chart:
    rows: list[Row] = []
    for rows_given in num_rows(r):
        t = layer_times(r, rows_given)
        rows.append({"rows": rows_given, **{said(v): t[v] / t[MXINT8] for v in VARIANTS[:-1]}})
    return Chart(
        rows,
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over that of the other"),
        marks=[level(1.0, "as fast"), *(line(said(v)) for v in VARIANTS[:-1])],
    )


@page.chart(
    caption="The whole classifier's speed over FP32's, in each arithmetic. Only the Linear layers "
    "differ; attention, norms and activations stay as they were, but for BF16."
)
def model(r: Records) -> Chart:
    rows: list[Row] = []
    for batch in r.all(what="evaluation").each("batch"):
        t = times(r.one(what="evaluation", batch=batch))
        rows.append(
            {"batch": f"batch of {batch}", **{said(v): t[FP32] / t[v] for v in VARIANTS[1:]}}
        )
    return Chart(
        rows,
        x=category("batch", label="sentences at a time"),
        y=linear(label="speed over FP32's", unit="×"),
        marks=[level(1.0, FP32), *bars(*map(said, VARIANTS[1:]))],
    )


@page.table
def layer(r: Records) -> Sequence[Row]:
    """Times of one layer by rows, and what share of the INT8 ceiling MXINT8 reaches."""
    rows: list[Row] = []
    for rows_given in num_rows(r):
        record = layer_record(r, rows_given)
        t = times(record)
        speed = 2.0 * rows_given * num_weights(record) / t[MXINT8].median_s
        rows.append(
            {
                "rows": rows_given,
                **{said(v): t[v] for v in VARIANTS},
                "MXINT8, Gop/s": speed / 1e9,
                "of the INT8 ceiling": per_cent(speed / int8_ceiling(r)),
            }
        )
    return rows


@page.table
def reading(r: Records) -> Sequence[Row]:
    """One row of inputs uses each weight once: how fast the weights are got through."""
    record = layer_record(r, 1)
    t = times(record)
    return [
        {
            "arithmetic": said(variant),
            "weight (MB)": megabytes(record, variant),
            "time": t[variant],
            "weights (GB/s)": rate(record, variant),
        }
        for variant in VARIANTS
    ]


@page.table
def accuracy(r: Records) -> Sequence[Row]:
    """The classifier's accuracy and the layer's error in each arithmetic."""
    errors = layer_record(r, max(num_rows(r))).values["error_db"]
    planned = {FP32, *r.each("variant")}
    return [
        {
            "arithmetic": said(variant),
            "test accuracy": classifier(r, variant) if variant in planned else None,
            "one layer, signal to error (dB)": errors[variant],
        }
        for variant in VARIANTS
    ]


@page.table
def gates(r: Records) -> Sequence[Row]:
    return counts.gate_rows(r)


@page.table
def peers(r: Records) -> Sequence[Row]:
    """MXINT8's time, and how many times as fast it is as each peer, in a run of the benchmark."""
    return benchmarks.rows("mxint8", part="linear")


@page.table
def peers_run(r: Records) -> Sequence[Row]:
    return benchmarks.run_table("mxint8")
