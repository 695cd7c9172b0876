"""Question 4.3a: what MXINT8 on both sides of a product gains, in gates and on a CPU at hand.

The gates are those that question 4.4 counted. On a CPU with byte dot products a Linear whose
weights and inputs are MXINT8, the inputs quantized in every call, takes turns with FP32, BF16 and
torch's dynamic INT8 in each of several processes; then the whole classifier does.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

from experiments.lab4_hardware import records as units
from experiments.lab4_hardware.records import MIXED, QUANTIZING, SIGNS_APART
from experiments.lab4_mxint8 import design
from experiments.lab4_mxint8.design import BF16, COLD, DYNAMIC, FP32, INT8, MXINT8, WARM
from madl.logbook import benchmarks
from madl.logbook.arms import Arm, TimedArm, arm, timed_arm
from madl.logbook.charts import Chart, doubling, level, line
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, contended_processes, exact
from madl.logbook.records import Params, Pending, Record, Records, Row, Scalar, none_if_pending
from madl.logbook.values import Estimate, pluralize
from madl.training import baseline

page = Experiment(
    needs=("baseline", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
    version=2,
)

STEM = "lab4_mxint8"
RIVALS = (FP32, BF16, INT8)  # each in the way that was the fastest in the tuning sitting
FLOATS = (BF16, FP32)  # so that BF16 is no rival that its own FP32 beats
STATES = {COLD: "weights from memory (cold)", WARM: "weights in the caches (warm)"}
MOST_ROWS = 256
QUICK_SITTINGS = design.SITTINGS[:2]
UNITS = (units.BF16, MIXED, QUANTIZING, units.MXINT8, SIGNS_APART, units.INT8)  # of 4.4, as drawn


def timed_cases(plan: Plan, process: int, seed: int) -> Iterable[Params]:
    """The cases of a sitting: both layers, and the classifier of that seed."""
    choose = plan.profile.choose
    timing = {"budget_s": choose(smoke=0.0, quick=design.BUDGET_S), "process": process}
    rotated_mb = choose(smoke=20, quick=design.ROTATED_MB)
    rows = choose(smoke="1 8", quick=design.ROWS)
    for layer, (num_in, num_out) in design.LAYERS.items():
        size = {"in": num_in, "out": num_out, "rows": rows, "rotated_mb": rotated_mb}
        yield {"what": "linear", "layer": layer, **size, **timing}
    model: Params = {"batches": design.SENTENCES, "length": design.TOKENS}
    yield {"what": "evaluation", **model, **baseline.drawn_params(plan, seed), **timing}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    return timed_cases(plan, design.TUNING, TUNING_SEED)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    for seed, variant in product(plan.seeds, design.CONVERTED):
        yield {"what": "accuracy", "variant": variant, **baseline.drawn_params(plan, seed)}
    for process in plan.profile.choose(smoke=design.SITTINGS[:1], quick=design.SITTINGS):
        yield from timed_cases(plan, process, plan.seeds[0])


@page.quick
def quick(params: Params) -> bool:
    if params["what"] == "accuracy":
        return params["seed"] == CONFIRMING_SEEDS[0] and params["variant"] == MXINT8
    return params["process"] in QUICK_SITTINGS and params.get("layer") == "coursework"


def classifier(r: Records, variant: str) -> Arm:
    """The starting point's models with every Linear in an arithmetic."""
    if variant == FP32:
        return baseline.fp32(r)
    return arm(r, variant, what="accuracy", variant=variant)


def layer_work(rows: int, state: str = WARM, layer: str = "coursework") -> dict[str, str]:
    """The parameters of a layer's times at a number of rows, cold or warm."""
    return {"batch": f"{rows} {state}", "what": "linear", "layer": layer}


def model_work(sentences: int) -> dict[str, str]:
    """The parameters of the whole classifier's times on a batch."""
    return {"batch": f"{sentences}", "what": "evaluation"}


def times(r: Records, batch: str, **where: Scalar) -> dict[str, TimedArm]:
    """Variant → its times on a batch of rows or sentences, if each process timed it.

    Raises:
        Pending: a process is missing, or MXINT8 was not timed.
    """
    arms = {
        variant: none_if_pending(timed_arm, r, f"{variant} {batch}", variant, **where)
        for variant in design.VARIANTS
    }
    if arms[MXINT8] is None:
        raise Pending(f"{batch} at a time, {where}")
    return {variant: arm for variant, arm in arms.items() if arm}


def strongest(r: Records, arithmetics: Sequence[str], work: Mapping[str, str]) -> TimedArm:
    """The way of these arithmetics that was the fastest in the tuning sitting, in the others.

    Raises:
        Pending: none of them is right on that machine.
    """
    tuned, arms = times(r.tuning, **work), times(r, **work)
    every = [way for arithmetic in arithmetics for way in design.WAYS[arithmetic]]
    ways = [way for way in every if way in tuned and way in arms]
    if not ways:
        raise Pending(f"a right result in {' or '.join(arithmetics)}")
    return arms[min(ways, key=lambda way: tuned[way].median_s)]


def speed(r: Records, rivals: Sequence[str], work: Mapping[str, str]) -> Contrast:
    """The speed of MXINT8 over that of the fastest way of its rivals."""
    return compare(times(r, **work)[MXINT8], strongest(r, rivals, work))


def speed_over_each(r: Records, arithmetics: Sequence[str], work: Mapping[str, str]) -> Contrast:
    """The speed of MXINT8 over the way of these arithmetics that is the fastest in each sitting."""
    arms = times(r, **work)
    ways = [arms[way] for a in arithmetics for way in design.WAYS[a] if way in arms]
    sittings = zip(*(way.runs for way in ways), strict=True)
    fastest = [min(runs, key=lambda run: median(run["samples_s"])) for runs in sittings]
    rival = replace(ways[0], label="the fastest of each sitting", runs=tuple(fastest))
    return compare(arms[MXINT8], rival)


def speed_over(r: Records, rival: str, work: Mapping[str, str]) -> Estimate | None:
    """The speed of MXINT8 over that of a rival; None where the rival is never right."""
    fastest = none_if_pending(strongest, r, [rival], work)
    return fastest / times(r, **work)[MXINT8] if fastest else None


@page.claim(primary=True)
def accuracy_stays(r: Records) -> Contrast:
    """With every Linear in MXINT8 on both sides, classifiers lose at most one point of accuracy to
    FP32."""
    return compare(classifier(r, MXINT8), classifier(r, FP32)).no_worse(design.MARGIN)


@page.claim(primary=True)
def faster_in_cache(r: Records) -> Contrast:
    """With one row of inputs and the weights in the caches, a large Linear is faster in MXINT8 than
    in the fastest way of BF16, or of FP32 where that is faster."""
    return speed(r, FLOATS, layer_work(1, WARM))


@page.claim(primary=True)
def faster_from_memory(r: Records) -> Contrast:
    """With one row of inputs and the weights in memory, a large Linear is faster in MXINT8 than in
    the fastest way of BF16, or of FP32 where that is faster."""
    return speed(r, FLOATS, layer_work(1, COLD))


@page.claim
def more_accurate_than_int8(r: Records) -> Contrast:
    """Classifiers in MXINT8 are more accurate than in torch's INT8."""
    return compare(classifier(r, MXINT8), classifier(r, DYNAMIC))


def layer_records(r: Records) -> Sequence[Record]:
    return r.all(what="linear", layer="coursework")


def cold_speed(end: Callable[[Sequence[float]], float]) -> NumberFn:
    """A function that reads MXINT8's speed (cold, one row), least or most by process."""

    def read(r: Records) -> ExactValue:
        speed = math.exp(end(faster_from_memory(r).comparison.by_unit))
        return exact(round(speed, 1), layer_records(r), "×")

    return read


def weight_mb(bytes_each: float) -> float:
    """MB of the large layer's weights."""
    num_in, num_out = design.LAYERS["coursework"]
    return num_in * num_out * bytes_each / 1e6


def cold_rate(r: Records, arithmetic: str) -> ExactValue:
    """GB of weights a second, with one row and the weights in memory, in the fastest way."""
    fastest = strongest(r, [arithmetic], layer_work(1, COLD))
    mb = weight_mb(design.VALUE_BYTES[arithmetic])
    return exact(round(mb / 1e3 / fastest.median_s, 1), fastest.records, "GB")


def last_cache_mb(records: Sequence[Record]) -> int:
    if (size := records[0].values["last_cache_mb"]) is None:
        raise Pending("the size of the last cache")
    return round(size)


page.numbers(
    both_sides=partial(units.share_of, a=units.MXINT8, b=units.BF16),
    quantizing=partial(units.share_of, a=QUANTIZING, b=units.BF16),
    weights_alone=partial(units.share_of, a=MIXED, b=units.BF16),
    signs_apart=partial(units.share_of, a=SIGNS_APART, b=units.BF16),
    int8=partial(units.share_of, a=units.INT8, b=units.BF16),
    switched=partial(units.switched, a=SIGNS_APART, b=units.BF16),
    mixed_switched=partial(units.switched, a=MIXED, b=units.BF16),
    exponents=partial(units.part, unit=units.BF16, name="lane exponents"),
    mixed_exponents=partial(units.part, unit=MIXED, name="lane exponents"),
    fp32=partial(classifier, variant=FP32),
    mxint8=partial(classifier, variant=MXINT8),
    at_most_rows=partial(speed, rivals=FLOATS, work=layer_work(MOST_ROWS)),
    int8_at_most_rows=partial(speed, rivals=[INT8], work=layer_work(MOST_ROWS)),
    in_the_model=partial(speed, rivals=FLOATS, work=model_work(32)),
    one_in_the_model=partial(speed, rivals=FLOATS, work=model_work(1)),
    over_each=partial(speed_over_each, arithmetics=FLOATS, work=layer_work(1, WARM)),
    int8_one_row=partial(speed, rivals=[INT8], work=layer_work(1)),
    mxint8_mb=lambda r: exact(round(weight_mb(design.VALUE_BYTES[MXINT8]), 1), unit="MB"),
    bf16_mb=lambda r: exact(round(weight_mb(design.VALUE_BYTES[BF16]), 1), unit="MB"),
    mxint8_rate=partial(cold_rate, arithmetic=MXINT8),
    bf16_rate=partial(cold_rate, arithmetic=BF16),
    least_cold=cold_speed(min),
    most_cold=cold_speed(max),
    over_int8=more_accurate_than_int8,
    contended=contended_processes,
    processes=computed(layer_records, len),
    rotated=computed(layer_records, lambda records: records[0].case.params["rotated_mb"], "MB"),
    last_cache=computed(layer_records, last_cache_mb, "MB"),
)


@page.chart
def parts(r: Records) -> Chart:
    return units.part_chart(r, UNITS)


@page.chart
def speedup(r: Records) -> Chart:
    """The speed of MXINT8 over its rivals in the coursework's layer, by rows, cold and warm."""
    rows: list[Row] = []
    for state, num_rows in product((COLD, WARM), map(int, timed_rows(r))):
        speeds = {rival: speed_over(r, rival, layer_work(num_rows, state)) for rival in RIVALS}
        rows.append({"weights": STATES[state], "rows": num_rows, **speeds})
    return Chart(
        rows,
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over the other"),
        marks=[level(1.0, "as fast"), *map(line, RIVALS)],
        facet="weights",
    )


def timed_rows(r: Records) -> list[str]:
    (rows,) = r.all(what="linear").param_values("rows")
    return rows.split()


@page.table
def gates(r: Records) -> Sequence[Row]:
    return units.unit_rows(r, UNITS)


@page.table
def ways(r: Records) -> Sequence[Row]:
    """Each arithmetic in each of its ways, in the large layer and in the whole classifier."""
    rows = timed_rows(r)
    few, many = (pluralize(int(end), "row") for end in (rows[0], rows[-1]))
    layer: dict[str, Scalar] = {"what": "linear", "layer": "coursework"}
    columns = {f"{few}, {state}": (f"{rows[0]} {state}", layer) for state in STATES}
    columns[f"{many}, {WARM}"] = (f"{rows[-1]} {WARM}", layer)
    for batch in design.SENTENCES.split():
        columns[pluralize(int(batch), "sentence")] = (batch, {"what": "evaluation"})
    return [
        {"": variant}
        | {
            column: time_or_reason(r, variant, batch, **where)
            for column, (batch, where) in columns.items()
        }
        for variant in design.VARIANTS
    ]


def time_or_reason(r: Records, variant: str, batch: str, **where: Scalar) -> TimedArm | str | None:
    """A variant's times on a batch, or why it was left out."""
    name = f"{variant} {batch.split()[0]}"
    failures = [record.values.get("failed_peers", {}) for record in r.all(**where)]
    reason = next((failed[name] for failed in failures if name in failed), None)
    return times(r, batch, **where).get(variant, reason)


@page.table
def layers(r: Records) -> Sequence[Row]:
    """The speed of MXINT8 over BF16 and INT8 in both layers, by rows, cold and warm."""
    return [
        {
            "layer": f"{num_in} → {num_out}",
            "rows": int(rows),
            **{
                f"{rival}, {s}": speed_over(r, rival, layer_work(int(rows), s, layer))
                for rival, s in product((BF16, INT8), STATES)
            },
        }
        for layer, (num_in, num_out) in design.LAYERS.items()
        for rows in timed_rows(r)
        if rows != "4"  # eight rows in all
    ]


ON_GPU = "mxint8_cuda"  # a benchmark
OVER = {"bfloat16": "over cuBLAS BF16", "float32": "over cuBLAS FP32"}  # by the input's type
OVER_COPY = "over a copy"


@page.table
def on_gpu(r: Records) -> Sequence[Row]:
    """Speeds of the last published run of `benchmarks/mxint8_cuda.py`, below where it ran."""
    published = none_if_pending(benchmarks.read, ON_GPU)
    if published is None:
        command = f"`python cli.py bench {ON_GPU} --publish`"
        return [{"CUDA GPU": f"not run here; {command} runs it on one"}]
    run, works = published["run"], {row["work"]: row for row in published["rows"]}
    versions = (f"{name} {version}" for name, version in run["versions"].items())
    title = ", ".join([run["machine"], *versions, run["date"]])
    rows: dict[str, dict[str, Any]] = {}
    for name, arms in benchmarks.arms(ON_GPU).items():
        work, base = works[name], next(iter(arms.values()))
        ours = next((a for variant, a in arms.items() if variant.startswith("ours")), None)
        if ours is None:
            continue
        if work["kernel"] == "dequantize":
            size = f"{work['elements'] >> 20} Mi, groups of {work['group']}"
            cell, column = f"dequantize {size}", OVER_COPY
        elif work["kernel"] == "linear":
            shape = f"{work['in']:,} → {work['out']:,}, {pluralize(work['rows'], 'row')}"
            cell, column = f"Linear {shape}", OVER[work["dtype"]]
        else:
            continue
        rows.setdefault(cell, dict.fromkeys((OVER_COPY, *OVER.values()), "–"))[column] = base / ours
    return [{title: cell, **columns} for cell, columns in rows.items()]
