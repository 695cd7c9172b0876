"""Question 4.3a: what MXINT8 on both sides of a product gains, measured where there is hardware.

A CPU with byte dot products (VNNI) is such hardware: a Linear whose weights and inputs are MXINT8,
the inputs quantized on the fly, against torch's FP32, BF16 and dynamic INT8, by number of rows; and
the whole classifier's evaluation, its speed and its accuracy. The gates of a unit made for it are
those that question 4.4 counted.

Shapes: a Linear of `in` inputs and `out` outputs is given `rows` rows.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_high
from typing import Any

from madl.hardware import counts
from madl.logbook import benchmarks, plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.training import baseline

ROWS = (1, 4, 16, 64, 256)
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
BITS = 8.25  # of a value and its share of the scale
VARIANTS = ("FP32", "BF16", "INT8, torch dynamic", "MXINT8")
FP32, BF16, DYNAMIC, MXINT8 = VARIANTS
MARGIN = 0.01  # accuracies closer than this count as the same
GATES = ("MXINT8 × MXINT8", "bf16 × bf16", "MXINT8 × bf16")


def params(plan: Plan) -> Iterable[Params]:
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


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    if params["what"] == "linear":
        return linear(params)
    if params["what"] == "evaluation":
        return evaluation(params, ctx)
    model = prepared(baseline.fine_tuned(params, ctx), str(params["variant"]))
    return baseline.judge_on_test(model, params, "cpu")


def linear(params: Params) -> Mapping[str, Any]:
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


def evaluation(params: Params, ctx: Context) -> Mapping[str, Any]:
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


def layer_record(records: Records, layer: str, rows: int) -> Record:
    return records.one(what="linear", layer=layer, rows=rows)


def speedup(record: Record, baseline_name: str) -> stats.Comparison:
    samples = record.values["samples_s"]
    return stats.ratio(samples[baseline_name], samples[MXINT8], contention=record.run.contention)


def times(comparison: stats.Comparison) -> str:
    return f"{1 + comparison.evidence.effect:.1f} times"


def most_rows(records: Records, layer: str = "coursework") -> int:
    found = records.where(what="linear", layer=layer).each("rows")
    if not found:
        raise Pending("no layer is timed")
    return max(found)


def fp32_record(records: Records) -> Record:
    """The baseline's own test result: it has no `what`."""
    found = [r for r in records if r.case.experiment == "baseline" and "outcomes" in r.values]
    if not found:
        raise Pending("the baseline")
    return min(found, key=lambda r: r.case.params["seed"])


def int8_ceiling(records: Records) -> float:
    """Operations a second of torch's large INT8 product on this machine."""
    machine = [r for r in records if r.case.experiment == "machine"]
    if not machine:
        raise Pending("the machine")
    values = machine[0].values
    return values["amount"]["int8"] / min(values["measurements"]["int8"]["samples_s"])


# ---- claims -------------------------------------------------------------------------------------


def _size(record: Record) -> str:
    return f"{record.case.params['in']:,} × {record.case.params['out']:,}"


def one_row_is_faster(records: Records) -> Claim:
    record = layer_record(records, "coursework", 1)
    fp32 = speedup(record, FP32)
    text = (
        f"With one row of inputs, a {_size(record)} Linear in MXINT8 is {times(fp32)} as fast as "
        f"in FP32"
    )
    return fp32.improves(text)


def many_rows_are_faster(records: Records) -> Claim:
    record = layer_record(records, "coursework", most_rows(records))
    fp32 = speedup(record, FP32)
    text = f"With {record.case.params['rows']} rows, MXINT8 is {times(fp32)} as fast as FP32"
    return fp32.improves(text)


def bf16_is_beaten_too(records: Records) -> Claim:
    one, many = (layer_record(records, "coursework", m) for m in (1, most_rows(records)))
    text = (
        f"Against BF16, MXINT8 is {times(speedup(one, BF16))} as fast with one row and "
        f"{times(speedup(many, BF16))} with {many.case.params['rows']}"
    )
    return speedup(many, BF16).improves(text)


def fewer_bytes(records: Records) -> Claim:
    record = layer_record(records, "coursework", 1)
    weights = int(record.case.params["in"]) * int(record.case.params["out"])
    text = (
        f"The layer's weight is {weights * BITS / 8 / 1e6:.1f} MB, where FP32 reads "
        f"{weights * 4 / 1e6:.1f} MB"
    )
    less = stats.counted(0.0, BITS / 32 - 1, weights, unit=stats.Unit.PERCENT)
    return less.degrades(text)


def accuracy_stays(records: Records) -> Claim:
    ours, fp32 = records.one(what="accuracy", variant=MXINT8), fp32_record(records)
    text = (
        f"The classifier with every Linear in MXINT8 has {ours.values['accuracy']:.1%} test "
        f"accuracy, within {100 * MARGIN:g} point of FP32's {fp32.values['accuracy']:.1%}"
    )
    return stats.compare(baseline.outcomes([fp32]), baseline.outcomes([ours])).within(MARGIN, text)


def model_is_faster(records: Records) -> Claim:
    record = records.one(what="evaluation", batch=32)
    found = speedup(record, FP32)
    text = f"The whole classifier evaluates a batch of 32 sentences {times(found)} as fast as FP32"
    return found.improves(text)


def model_is_faster_alone(records: Records) -> Claim:
    record = records.one(what="evaluation", batch=1)
    found = speedup(record, FP32)
    return found.improves(f"A single sentence is evaluated {times(found)} as fast as in FP32")


def scales_cost_little_error(records: Records) -> Claim:
    record = layer_record(records, "coursework", most_rows(records))
    errors = record.values["error_db"]
    text = (
        f"A scale for every 32 values leaves {errors[MXINT8]:.1f} dB signal to error; torch's "
        f"dynamic INT8, with one scale a tensor, {errors[DYNAMIC]:.1f} dB"
    )
    outputs = int(record.case.params["out"]) * int(record.case.params["rows"])
    found = stats.counted(errors[DYNAMIC], errors[MXINT8], outputs, unit=stats.Unit.DECIBEL)
    return found.improves(text)


def coarse_scales_lose(records: Records) -> Claim:
    dynamic, fp32 = records.one(what="accuracy", variant=DYNAMIC), fp32_record(records)
    text = (
        f"With one scale a tensor, the classifier has {dynamic.values['accuracy']:.1%}, less than "
        f"FP32's {fp32.values['accuracy']:.1%}"
    )
    return stats.compare(baseline.outcomes([fp32]), baseline.outcomes([dynamic])).degrades(text)


def small_layers_gain_less(records: Records) -> Claim:
    record = layer_record(records, "default", 1)
    found = speedup(record, FP32)
    text = (
        f"With one row, the default model's {_size(record)} Linear is {times(found)} as fast as "
        f"in FP32: its weight fits the cache either way, and the call itself takes its share"
    )
    return found.improves(text)


def fewer_gates(records: Records) -> Claim:
    mx, bf16 = (counts.transistors(records, **counts.COMPARED[unit]) for unit in GATES[:2])
    text = (
        f"A {counts.LANES}-lane dot product in gates takes {mx:,} transistors with MXINT8 on both "
        f"sides and {bf16:,} in bf16, {bf16 / mx:.2f} times as many"
    )
    return stats.counted(1.0, bf16 / mx, mx, unit=stats.Unit.PERCENT).improves(text)


def weights_alone_save_no_gates(records: Records) -> Claim:
    bf16, mixed = (counts.transistors(records, **counts.COMPARED[unit]) for unit in GATES[1:])
    text = (
        f"With MXINT8 weights and bf16 inputs the same unit takes {mixed / bf16:.2f} times the "
        "transistors of bf16 on both sides: nothing is saved"
    )
    return stats.counted(bf16 / mixed, 1.0, mixed, unit=stats.Unit.PERCENT).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def speedup_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for num_rows in records.where(what="linear", layer="coursework").each("rows"):
        record = layer_record(records, "coursework", num_rows)
        row: dict[str, Any] = {"rows": num_rows}
        for other in (FP32, BF16, DYNAMIC):
            low, high = speedup(record, other).evidence.interval
            row |= {
                f"over {other}": 1 + speedup(record, other).evidence.effect,
                f"over {other} low": 1 + low,
                f"over {other} high": 1 + high,
            }
        rows.append(row)
    return rows


def draw_speedup(ax: Any, rows: Sequence[Row]) -> None:
    plots.level(ax, 1.0, "chance", label="as fast")
    for other, role in ((FP32, "first"), (BF16, "second"), (DYNAMIC, "third")):
        plots.curve(ax, rows, "rows", f"over {other}", role, label=f"over {other}")
    plots.doubling_axis(ax, [row["rows"] for row in rows], "rows of inputs")  # type: ignore[misc]
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    ax.set_ylabel("speed-up of MXINT8")
    plots.legend(ax)


def speedup_alt(rows: Sequence[Row]) -> str:
    return "Speed-up of the MXINT8 Linear. " + "; ".join(
        f"{row['rows']} rows: {row[f'over {FP32}']:.1f} over FP32, {row[f'over {BF16}']:.1f} over "
        f"BF16, {row[f'over {DYNAMIC}']:.1f} over torch's dynamic INT8"
        for row in rows
    )


def layer_table(records: Records) -> Sequence[Row]:
    """Times of one layer by rows, and what share of the INT8 ceiling MXINT8 reaches."""
    rows: list[Row] = []
    for num_rows in records.where(what="linear", layer="coursework").each("rows"):
        record = layer_record(records, "coursework", num_rows)
        medians = {v: median_high(record.values["samples_s"][v]) for v in VARIANTS}
        work = 2.0 * num_rows * record.case.params["in"] * record.case.params["out"]
        rate = work / medians[MXINT8]
        weight = record.case.params["in"] * record.case.params["out"] * BITS / 8
        rows.append(
            {
                "rows": num_rows,
                **{f"{v} (µs)": round(1e6 * medians[v]) for v in VARIANTS},
                "Gop/s": round(rate / 1e9),
                "of the INT8 ceiling": f"{rate / int8_ceiling(records):.0%}",
                "weight read (GB/s)": round(weight / medians[MXINT8] / 1e9),
            }
        )
    return rows


def model_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for batch in records.where(what="evaluation").each("batch"):
        samples = records.one(what="evaluation", batch=batch).values["samples_s"]
        medians = {v: median_high(samples[v]) for v in VARIANTS}
        shares = {v: medians[v] / medians[FP32] for v in VARIANTS}
        rows.append({"batch": batch, **shares, "FP32 (ms)": 1e3 * medians[FP32]})
    return rows


def draw_model(ax: Any, rows: Sequence[Row]) -> None:
    for i, (variant, role) in enumerate(((BF16, "second"), (DYNAMIC, "third"), (MXINT8, "first"))):
        positions = [k + 0.26 * (i - 1) for k in range(len(rows))]
        bars = ax.bar(
            positions,
            [row[variant] for row in rows],
            width=0.24,
            color=plots.color(role),
            label=variant,
        )
        ax.bar_label(bars, [f"{100 * float(row[variant] or 0):.0f}" for row in rows], padding=2)
    plots.level(ax, 1.0, "fp32")
    ax.set_xticks(range(len(rows)), [f"batch of {row['batch']}" for row in rows])
    ax.grid(axis="x", visible=False)
    plots.percent_axis(ax, "time of FP32")
    plots.legend(ax)


def model_alt(rows: Sequence[Row]) -> str:
    return "Time of an evaluation as a share of FP32's. " + "; ".join(
        f"batch of {row['batch']}: " + ", ".join(f"{v} {row[v]:.0%}" for v in VARIANTS[1:])
        for row in rows
    )


def accuracy_table(records: Records) -> Sequence[Row]:
    """The classifier's accuracy and the layer's error in each arithmetic."""
    errors = layer_record(records, "coursework", most_rows(records)).values["error_db"]
    rows: list[Row] = []
    for variant in VARIANTS:
        found = records.where(what="accuracy", variant=variant)
        record = fp32_record(records) if variant == FP32 else next(iter(found), None)
        shown: str | None = None
        if record is not None:
            low, high = baseline.outcomes([record])[0].interval
            shown = f"{record.values['accuracy']:.1%} [{low:.1%},\u00a0{high:.1%}]"
        error = f"{errors[variant]:.1f}"
        rows.append(
            {
                "arithmetic": variant,
                "test accuracy": shown,
                "one layer, signal to error (dB)": error,
            }
        )
    return rows


def gates_table(records: Records) -> Sequence[Row]:
    return [{**row, "× MXINT8": f"{row['× MXINT8']:.2f}"} for row in counts.gate_rows(records)]


def peers_table(records: Records) -> Sequence[Row]:
    """MXINT8's speed, and how many times as fast it is as each peer."""
    return benchmarks.rows("mxint8", part="linear")


def peers_run(records: Records) -> Sequence[Row]:
    return benchmarks.run_table("mxint8")


experiment = Experiment(
    title="MXINT8 on both sides of a product",
    params=params,
    run=run,
    needs=("baseline", "machine", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
    claims={
        "one_row_is_faster": one_row_is_faster,
        "fewer_gates": fewer_gates,
        "many_rows_are_faster": many_rows_are_faster,
        "weights_alone_save_no_gates": weights_alone_save_no_gates,
        "bf16_is_beaten_too": bf16_is_beaten_too,
        "fewer_bytes": fewer_bytes,
        "accuracy_stays": accuracy_stays,
        "model_is_faster": model_is_faster,
        "model_is_faster_alone": model_is_faster_alone,
        "scales_cost_little_error": scales_cost_little_error,
        "coarse_scales_lose": coarse_scales_lose,
        "small_layers_gain_less": small_layers_gain_less,
    },
    figures={
        "speedup": Figure(
            caption="Few rows gain from the bytes that need not be read, many rows from products "
            "that take less of the processor.",
            rows=speedup_rows,
            draw=draw_speedup,
            alt=speedup_alt,
        ),
        "model": Figure(
            caption="The rest of the model, attention, norms and activations, stays in FP32 and "
            "takes as long as before.",
            rows=model_rows,
            draw=draw_model,
            alt=model_alt,
        ),
    },
    tables={
        "gates_table": gates_table,
        "layer_table": layer_table,
        "accuracy_table": accuracy_table,
        "peers_table": peers_table,
        "peers_run": peers_run,
    },
)
