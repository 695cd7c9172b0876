"""Question 4.3a: what MXINT8 on both sides of a product gains, in gates and on a CPU at hand.

The gates are those that question 4.4 counted. On a CPU with byte dot products a Linear whose
weights and inputs are MXINT8, the inputs quantized in every call, takes turns with FP32, BF16 and
torch's dynamic INT8 in each of several processes; then the whole classifier does.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from experiments.lab4_hardware import records as units
from experiments.lab4_hardware.records import INT8, MIXED, QUANTIZING, SIGNS_APART
from madl.logbook import stats
from madl.logbook.arms import Arm, TimedArm, arm, timed
from madl.logbook.charts import Chart, doubling, level, line
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, Context, Experiment, Plan
from madl.logbook.numbers import Counted, contended, counted
from madl.logbook.records import Params, Pending, Record, Records, Row, Scalar, Values
from madl.logbook.stats import Estimate
from madl.training import baseline

page = Experiment(
    title="MXINT8 on both sides of a product",
    needs=("baseline", "lab4_hardware"),
    timed=lambda params: params["what"] != "accuracy",
)

FP32, BF16, DYNAMIC, MXINT8 = "FP32", "BF16", "INT8, torch dynamic", "MXINT8"
PREPACKED, ONEDNN = ", prepacked", ", oneDNN"  # the same arithmetic, computed in another way
VARIANTS = (
    *(FP32, FP32 + PREPACKED, BF16, BF16 + PREPACKED),
    *(DYNAMIC, DYNAMIC + ONEDNN, MXINT8),
)
RIVALS = {FP32: "FP32", BF16: "BF16", DYNAMIC: "torch's INT8"}  # each in the faster of its ways
CONVERTED = (DYNAMIC, MXINT8)  # of a whole classifier that is judged, beside FP32
COLD, WARM = "cold", "warm"
STATES = {COLD: "weights from memory (cold)", WARM: "weights in the caches (warm)"}
ROWS = "1 4 16 64 256"
MOST = 256
BATCHES = "1 32"  # sentences at a time
LAYERS = {"coursework": (1024, 4096), "default": (384, 1536)}  # the largest layer of either model
PROCESSES = tuple(range(1, 10))
AGAIN = PROCESSES[:2]  # in quick
ROTATED_MB = 1000  # that cold calls read before one reads the same again: twice a large last cache
MARGIN = 0.01  # of accuracy: what a choice among arithmetics may cost
DRAWN = (units.BF16, MIXED, QUANTIZING, units.MXINT8, SIGNS_APART, INT8)  # units of 4.4


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed, variant in product(plan.seeds, CONVERTED):
        yield {"what": "accuracy", "variant": variant, **baseline.drawn_params(plan, seed)}
    model: Params = {"batches": BATCHES, "length": 27, **baseline.drawn_params(plan, plan.seeds[0])}
    for process in choose(smoke=PROCESSES[:1], quick=PROCESSES):
        how = {"budget_s": choose(smoke=0.0, quick=0.05), "process": process}
        for layer, (num_in, num_out) in LAYERS.items():
            size = {"in": num_in, "out": num_out, "rows": choose(smoke="1 8", quick=ROWS)}
            rotated = {"rotated_mb": choose(smoke=20, quick=ROTATED_MB)}
            yield {"what": "linear", "layer": layer, **size, **rotated, **how}
        yield {"what": "evaluation", **model, **how}


@page.quick
def quick(params: Params) -> bool:
    if params["what"] == "accuracy":
        return params["seed"] == CONFIRMING_SEEDS[0] and params["variant"] == MXINT8
    return params["process"] in AGAIN and params.get("layer") == "coursework"


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
    """The starting point's models with every Linear in that arithmetic."""
    if variant == FP32:
        return baseline.fp32(r)
    return arm(r, variant, what="accuracy", variant=variant)


def times(r: Records, at: str, **where: Scalar) -> dict[str, TimedArm]:
    """Every arithmetic that was timed so in each process: on so many rows or sentences.

    Raises:
        Pending: a process is missing, or MXINT8 was not timed.
    """
    found = r.all(**where)
    names = {v: f"{v} {at}" for v in VARIANTS}
    kept = {
        v: timed(found, name, v)
        for v, name in names.items()
        if all(name in record.values["measurements"] for record in found)
    }
    if MXINT8 not in kept:
        raise Pending(f"{at} at a time, {where}")
    return kept


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


def layer_times(r: Records, rows: int, state: str, layer: str = "coursework") -> Any:
    return times(r, f"{rows} {state}", what="linear", layer=layer)


def in_layer(
    r: Records, rival: str, rows: int, state: str = WARM, layer: str = "coursework"
) -> Contrast:
    """The speed of MXINT8 over that of a rival, in one layer."""
    t = layer_times(r, rows, state, layer)
    return compare(t[MXINT8], strongest(t, rival))


def in_model(r: Records, rival: str, sentences: int = 32) -> Contrast:
    """The same in the whole classifier."""
    t = times(r, f"{sentences}", what="evaluation")
    return compare(t[MXINT8], strongest(t, rival))


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def accuracy_stays(r: Records) -> Contrast:
    """With every Linear in MXINT8 on both sides, classifiers lose at most one point of accuracy to
    FP32."""
    return compare(classifier(r, MXINT8), classifier(r, FP32)).no_worse(MARGIN)


@page.claim(primary=True)
def faster_in_cache(r: Records) -> Contrast:
    """With one row of inputs and the weights in the caches, a large Linear is faster in MXINT8 than
    in BF16, prepacked or not."""
    return in_layer(r, BF16, 1, WARM)


@page.claim(primary=True)
def faster_from_memory(r: Records) -> Contrast:
    """With one row of inputs and the weights in memory, a large Linear is faster in MXINT8 than in
    BF16, prepacked or not."""
    return in_layer(r, BF16, 1, COLD)


@page.claim
def more_accurate_than_int8(r: Records) -> Contrast:
    """Classifiers in MXINT8 are more accurate than in torch's INT8."""
    return compare(classifier(r, MXINT8), classifier(r, DYNAMIC))


# ---- numbers ------------------------------------------------------------------------------------


def processes(r: Records) -> Counted:
    found = r.all(what="linear", layer="coursework")
    return counted(len(found), of=found)


def cold(r: Records, end: Callable[[Sequence[float]], float]) -> Counted:
    """The speed over BF16 of one row, weights from memory, in the process at one end."""
    speed = math.exp(end(faster_from_memory(r).comparison.by_unit))
    return counted(round(speed, 1), "×", of=r.all(what="linear", layer="coursework"))


def of_layers(r: Records, what: Callable[[Record], float | None]) -> Counted:
    """Megabytes, the same in all processes."""
    found = r.all(what="linear")
    size = what(found[0])
    if size is None:
        raise Pending("the size of the last cache")
    return counted(round(size), "MB", of=found)


page.numbers(
    both_sides=partial(units.share_of, a=units.MXINT8, b=units.BF16),
    quantizing=partial(units.share_of, a=QUANTIZING, b=units.BF16),
    weights_alone=partial(units.share_of, a=MIXED, b=units.BF16),
    signs_apart=partial(units.share_of, a=SIGNS_APART, b=units.BF16),
    int8=partial(units.share_of, a=INT8, b=units.BF16),
    exponents=partial(units.part, unit=units.BF16, name="lane exponents"),
    mixed_exponents=partial(units.part, unit=MIXED, name="lane exponents"),
    fp32=partial(classifier, variant=FP32),
    mxint8=partial(classifier, variant=MXINT8),
    at_most_rows=partial(in_layer, rival=BF16, rows=MOST),
    int8_at_most_rows=partial(in_layer, rival=DYNAMIC, rows=MOST),
    in_the_model=partial(in_model, rival=BF16),
    at_sixteen=partial(in_layer, rival=BF16, rows=16, layer="default"),
    int8_one_row=partial(in_layer, rival=DYNAMIC, rows=1),
    least_cold=partial(cold, end=min),
    most_cold=partial(cold, end=max),
    over_int8=more_accurate_than_int8,
    contended=contended,
    processes=processes,
    rotated=partial(of_layers, what=lambda x: x.case.params["rotated_mb"]),
    last_cache=partial(of_layers, what=lambda x: x.values["last_cache_mb"]),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def parts(r: Records) -> Chart:
    return units.part_chart(r, DRAWN)


@page.chart
def speedup(r: Records) -> Chart:
    """In the large layer, cold and warm."""
    rows: list[Row] = []
    for state, n in product((COLD, WARM), map(int, rows_asked(r))):
        t = layer_times(r, n, state)
        speeds = {name: speed_over(t, rival) for rival, name in RIVALS.items()}
        rows.append({"weights": STATES[state], "rows": n, **speeds})
    return Chart(
        rows,
        x=doubling("rows", label="rows of inputs"),
        y=doubling(None, "×", label="speed of MXINT8 over the other"),
        marks=[level(1.0, "as fast"), *map(line, RIVALS.values())],
        facet="weights",
    )


def rows_asked(r: Records) -> list[str]:
    (rows,) = r.all(what="linear").each("rows")
    return rows.split()


@page.table
def gates(r: Records) -> Sequence[Row]:
    return units.unit_rows(r, DRAWN)


@page.table
def ways(r: Records) -> Sequence[Row]:
    """Each arithmetic in each of its ways, in the large layer and in the whole classifier."""
    ends = rows_asked(r)[:: len(rows_asked(r)) - 1]
    layer: dict[str, Scalar] = {"what": "linear", "layer": "coursework"}
    at = {f"{stats.counted(int(ends[0]), 'row')}, {s}": (f"{ends[0]} {s}", layer) for s in STATES}
    at[f"{stats.counted(int(ends[1]), 'row')}, {WARM}"] = (f"{ends[1]} {WARM}", layer)
    for n in BATCHES.split():
        at[stats.counted(int(n), "sentence")] = (n, {"what": "evaluation"})
    return [
        {"": v, **{head: time_or_why(r, v, name, **where) for head, (name, where) in at.items()}}
        for v in VARIANTS
    ]


def time_or_why(r: Records, variant: str, at: str, **where: Scalar) -> TimedArm | str | None:
    """A call's time; in its place, why a peer was left out."""
    size = at.split()[0]
    failed = [record.values.get("failed_peers", {}) for record in r.all(**where)]
    why = next((one[name] for one in failed if (name := f"{variant} {size}") in one), None)
    return times(r, at, **where).get(variant, why)


@page.table
def layers(r: Records) -> Sequence[Row]:
    """How many times as fast MXINT8 is, in both layers."""
    return [
        {
            "layer": f"{num_in} → {num_out}",
            "rows": int(n),
            **{
                f"{RIVALS[rival]}, {s}": speed_over(layer_times(r, int(n), s, layer), rival)
                for rival, s in product((BF16, DYNAMIC), STATES)
            },
        }
        for layer, (num_in, num_out) in LAYERS.items()
        for n in rows_asked(r)
        if n != "4"  # eight rows in all
    ]
