"""Question 4.3d: why packing saves less memory than the formula says, counted part by part.

The ledger predicts from the parameter list: of the default model, and of DeBERTa-xlarge from its
configuration alone. For DeBERTa-xlarge a public report gives a GPU's two peaks; what it ran is
simulated with a model of the GPU's allocator, and run on a GPU where there is one. The default
model is measured, each variant in a process of its own. Memory is in mebibytes.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.lab4_memory.memory_panel import memory_alt, memory_panels, memory_rows
from experiments.lab4_memory.packed_memory import (
    BITS,
    DEFAULT,
    FORMULA,
    LARGE,
    MIB,
    MXINT8,
    PARTS,
    REPORTED,
    SCALE_BITS,
    WRITTEN_OUT,
    apart,
    larger_blocks,
    ledger_of,
    mib,
    parameters,
    part_rows,
    parts_of,
    peak_rows,
    peaks,
    resident_bytes,
    resident_range,
    resident_rows,
    savings_rows,
    steps,
)
from madl.logbook.charts import Chart, bars, category, intervals, percent, waterfall
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import counted, per_cent
from madl.machine import replay
from madl.machine.device import no_device
from madl.machine.replay import BLOCK, PACKED_FIRST
from madl.training import baseline

page = Experiment(title="Why the memory saved is not the formula's", needs=("baseline",), version=2)

TOKENS = 10  # of the coursework's sentence


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    batch = {"batch": 1, "length": choose(smoke=16, quick=128)}
    base = baseline.recipe_params(plan, 0)
    yield {"what": "ledger", "of": LARGE}
    yield {"what": "ledger", "of": DEFAULT, **base, **batch}
    for repeat in range(choose(smoke=1, quick=1, full=5)):
        for variant in ("FP32", "MXINT8"):
            yield {"what": "resident", "variant": variant, "repeat": repeat, **base, **batch}
    for what in ("replay", "cuda"):
        yield {"what": what, "tokens": TOKENS}


@page.unavailable
def unavailable(params: Params) -> str | None:
    if params["what"] == "resident" and not Path("/proc/self/status").exists():
        return "no /proc here to read resident memory from"
    return no_device({"device": params["what"]}) if params["what"] == "cuda" else None


@page.quick
def quick(params: Params) -> bool:
    """What needs no model of our own."""
    return params["what"] == "replay" or params.get("of") == LARGE


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_memory import resident

    if params["what"] == "replay":
        return replay.replayed(_whole(params, "tokens"))
    if params["what"] == "cuda":
        return replay.on_gpu(_whole(params, "tokens"))
    if params["what"] == "resident":
        return resident.resident(baseline.checkpoint(params, ctx), params)
    if params["of"] == LARGE:
        return resident.predict(replay.deberta_xlarge(), {})
    batch = replay.inputs(_whole(params, "length"), batch=_whole(params, "batch"))
    return resident.predict(baseline.fine_tuned(params, ctx), batch)


def _whole(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value


# ---- facts --------------------------------------------------------------------------------------


@page.fact(headline=True)
def formula_has_four_bits(r: Records) -> Fact:
    found = ledger_of(r, LARGE)
    fp32, packed = (peaks(r, kind)["allocated_bytes"] for kind in ("FP32", "MXINT8"))
    return Fact(
        text=f"The lab's formula promises {per_cent(FORMULA)} because it counts a four-bit "
        f"mantissa: MXINT8 takes {BITS + SCALE_BITS / BLOCK:g} bits with its share of the scale, "
        f"which saves {per_cent(MXINT8)}. Only Linear weights are packed, so DeBERTa-xlarge's "
        f"parameters shrink by {per_cent(found.saved)}, and the peak of its simulated GPU "
        f"allocations by {per_cent(1 - packed / fp32)}",
        of=f"{parameters(found)}; every allocation of two simulated runs",
    )


@page.fact(headline=True)
def only_linear_weights(r: Records) -> Fact:
    found = ledger_of(r, LARGE)
    return Fact(
        text=f"Linear weights are {per_cent(found.num_packed / found.num_parameters)} of "
        "DeBERTa-xlarge's parameters; embeddings, norms and biases stay in FP32",
        of=parameters(found),
    )


@page.fact
def small_models_save_less(r: Records) -> Fact:
    large, small = ledger_of(r, LARGE), ledger_of(r, DEFAULT)
    return Fact(
        text=f"Of the default model, {per_cent(small.num_packed / small.num_parameters)} are "
        f"Linear weights, so its parameters shrink by {per_cent(small.saved)}, where "
        f"DeBERTa-xlarge's shrink by {per_cent(large.saved)}",
        of=parameters(small),
    )


@page.fact
def fp32_is_the_parameters(r: Records) -> Fact:
    found = ledger_of(r, LARGE)
    return Fact(
        text=f"DeBERTa-xlarge's parameter list takes {mib(found.before_bytes)} in FP32; one public "
        f"report has a peak of {mib(REPORTED['FP32'] * MIB)}",
        of=parameters(found),
    )


@page.fact
def mxint8_is_accounted_for(r: Records) -> Fact:
    simulated, reported = peaks(r, "MXINT8")["allocated_bytes"] / MIB, REPORTED["MXINT8"]
    less = "less" if reported < simulated else "more"
    return Fact(
        text=f"Packed DeBERTa-xlarge has a simulated peak of {simulated:,.1f} MiB: packed weights, "
        "what stays FP32, activations, a weight that is written out and the allocator's blocks. "
        f"One public report has {reported:,.1f} MiB, {abs(simulated - reported):.1f} {less}; it "
        "was known to whoever made the simulation, which explains the peak and does not predict it",
        of="every allocation of one simulated run",
    )


@page.fact
def blocks_are_larger(r: Records) -> Fact:
    return Fact(
        text="For packed DeBERTa-xlarge the simulated allocator hands out "
        f"{mib(larger_blocks(r, 'MXINT8'))} more than is asked for at the peak; for the FP32 model "
        f"{mib(larger_blocks(r, 'FP32'))}",
        of="every allocation of one simulated run",
    )


@page.fact
def packing_first_needs_less(r: Records) -> Fact:
    after, before = (peaks(r, kind)["allocated_bytes"] for kind in ("MXINT8", PACKED_FIRST))
    return Fact(
        text=f"Simulated, DeBERTa-xlarge needs {mib(before)} at most where it is packed before it "
        f"is moved to the GPU; packed on the GPU, {mib(after)}",
        of="every allocation of two simulated runs",
    )


@page.fact
def resident_memory_freed(r: Records) -> Fact:
    found = ledger_of(r, DEFAULT)
    dense, packed = (resident_bytes(r, v, "model_bytes") for v in ("FP32", "MXINT8"))
    count = len(r.all(what="resident", variant="MXINT8"))
    return Fact(
        text=f"A fresh process holds {mib(dense - packed)} less of resident memory with the "
        "default model packed, where the ledger says "
        f"{mib(found.dense_bytes - found.packed_bytes)}",
        of=f"{counted(count, 'process')} a variant, no interval",
    )


@page.fact
def reserve_is_the_peak(r: Records) -> Fact:
    said = [
        f"{variant}: {resident_range(r, variant, 'peak_bytes')}, or where nothing freed is kept "
        f"{resident_range(r, variant, 'peak_bytes', kept=False)}; its tensors alone are "
        f"{mib(resident_bytes(r, variant, 'live_bytes'))}"
        for variant in ("FP32", WRITTEN_OUT)
    ]
    count = len(r.all(what="resident", variant="FP32"))
    return Fact(
        text="What the default model's process holds beside the model at the peak of an "
        f"evaluation. {'. '.join(said)}",
        of=f"one evaluation a process, {counted(count, 'fresh process')} each"
        f"{': the median (least to most)' if count > 1 else ''}",
    )


@page.fact
def dequantizing_needs_more(r: Records) -> Fact:
    packed, written = (resident_bytes(r, v, "live_bytes") for v in ("MXINT8", WRITTEN_OUT))
    return Fact(
        text=f"Multiplying the packed weights holds at most {mib(packed)} of tensors beside the "
        f"default model during an evaluation; writing each weight out first holds {mib(written)}, "
        "where the activations and the largest weight written out, each counted apart at its own "
        f"largest, are {mib(apart(r, is_written=True))}",
        of="every tensor of one evaluation each",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="From the formula to what is seen on DeBERTa-xlarge, top to bottom: each bar begins "
    "where the one above it ends, and is what one reason more takes away. The upper bars are "
    "counted or simulated; the last one is one public report, measured on a GPU."
)
def savings(r: Records) -> Chart:
    found = steps(r)
    before = [0.0, *list(found.values())[:-2], 0.0]
    rows = [
        {"counted": what, "begins": start, "saved": share}
        for (what, share), start in zip(found.items(), before, strict=True)
    ]
    return Chart(
        rows,
        x=percent("memory saved", column="saved"),
        y=category("counted", "counted, one more each"),
        marks=[waterfall("saved", "begins")],
    )


@page.chart(
    caption="Each model's memory in evaluation, by part, as shares of its own sum in FP32. The "
    "lone marks are the peaks that one public report measured; DeBERTa-xlarge's bars are simulated."
)
def parts(r: Records) -> Chart:
    made = parts_of(r)
    whole = {model: sum(made[model, "FP32"].values()) for model, _ in made}
    rows = [
        {
            "model and weights": f"{model}, {kind}",
            **{part: size / whole[model] for part, size in sizes.items()},
            "reported": REPORTED[kind] * MIB / whole[model] if model == LARGE else None,
        }
        for (model, kind), sizes in made.items()
    ]
    return Chart(
        rows,
        x=percent("share of the FP32 sum"),
        y=category("model and weights"),
        marks=[bars(*PARTS, stacked=True), intervals("reported", "reported by others")],
    )


@page.drawing(
    caption="What the ledger adds up for a stored model under any format of the formats page, in "
    "mebibytes. Without packing, a weight takes a format's values and stays in FP32. What an "
    "allocator adds is not in it.",
    panels=memory_panels,
    alt=memory_alt,
    script="memory",
    reads=("formats",),
)
def calculator(r: Records) -> Sequence[Row]:
    return memory_rows(r)


for rows in (savings_rows, part_rows, peak_rows, resident_rows):
    page.table(rows)
