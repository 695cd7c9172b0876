"""Question 4.3d: why packing saves less memory than the formula says; every byte accounted for.

The ledger predicts from the parameter list: of the default model, and of DeBERTa-xlarge from its
configuration alone. For DeBERTa-xlarge a public report gives a GPU's two peaks; what it ran is
replayed on a model of the GPU's allocator, and on a GPU where there is one. The default model is
measured, each variant in a process of its own. Memory is in units of 2^20 bytes.
"""

import multiprocessing
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median_high
from typing import Any

from madl.logbook.charts import Chart, bars, category, intervals, percent, waterfall
from madl.logbook.claims import Fact
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Pending, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.machine import memory, replay
from madl.machine.replay import BLOCK, PACKED_FIRST, WRITTEN_BYTES
from madl.training import baseline

page = Experiment(title="Why the memory saved is not the formula's", needs=("baseline",))

MB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"
WRITTEN_OUT = "MXINT8, written out"
BITS, SCALE_BITS = 8, 8
FORMULA = 1 - (4 + 8 / 32) / 32  # as the coursework writes it
MXINT8 = 1 - (BITS + SCALE_BITS / BLOCK) / 32
TOKENS = 10  # of the coursework's sentence

# One public report on the coursework's model: peak of the GPU's allocator in evaluation, in MB.
REPORTED = {"FP32": 2906.2, "MXINT8": 976.2}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    batch = {"batch": 1, "length": choose(smoke=16, quick=128, full=128)}
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
    if params["what"] != "cuda":
        return None
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


@page.run
def run(params: Params, ctx: Context) -> Values:
    if params["what"] == "replay":
        return replay.replayed(_whole(params, "tokens"))
    if params["what"] == "cuda":
        return replay.on_gpu(_whole(params, "tokens"))
    if params["what"] == "resident":
        return resident(params, ctx)
    if params["of"] == DEFAULT:
        return predict(baseline.fine_tuned(params, ctx), batch_of(params))
    return predict(replay.deberta_xlarge(), {})


def _whole(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value


def batch_of(params: Params) -> dict[str, Any]:
    return replay.inputs(_whole(params, "length"), batch=_whole(params, "batch"))


def predict(model: Any, batch: Mapping[str, Any]) -> Values:
    """The ledger, and the activations where there is a batch to count them on."""
    import torch

    counted = memory.ledger(model, bits=BITS, scale_bits=SCALE_BITS, block=BLOCK)
    with torch.inference_mode():
        activations = memory.live_bytes(lambda: model.eval()(**batch)) if batch else 0
    return {
        # the two zeros stand in every record; the ledger itself is of weights alone
        "ledger": {**asdict(counted), "activation_bytes": 0, "transient_bytes": 0},
        "activation_bytes": activations,
        "largest_weight": max(layer.weight.numel() for layer in replay.linears(model)),
    }


def resident(params: Params, ctx: Context) -> Values:
    """Memory of a fresh process that does nothing but hold the model and evaluate once."""
    from madl.training import models

    model = baseline.fine_tuned(params, ctx)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        models.save_checkpoint(model, Path(folder))
        with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
            return executor.submit(_in_fresh_process, folder, dict(params)).result()


def _in_fresh_process(folder: str, params: Params) -> Values:
    import torch

    from madl.training import models

    torch.set_num_threads(1)
    warm_up(models.load_checkpoint(Path(folder)), params)  # code and buffers that any model needs
    memory.return_freed_pages()
    before = memory.resident_bytes()
    model = own_copy(models.load_checkpoint(Path(folder)))
    if params["variant"] == "MXINT8":
        pack(model)
    memory.return_freed_pages()
    held = memory.resident_bytes()
    assert before is not None
    assert held is not None
    values = {"model_bytes": held - before, **evaluated(model, params)}
    if params["variant"] == "MXINT8":
        write_weights_out(model)
        values["written_out"] = evaluated(model, params)
    return values


def evaluated(model: Any, params: Params) -> dict[str, Any]:
    """What one evaluation holds beside the model: pages, and tensors."""
    import torch

    memory.return_freed_pages()
    with torch.inference_mode():
        peak = memory.peak_resident_bytes(lambda: model(**batch_of(params)))
        live = memory.live_bytes(lambda: model(**batch_of(params)))
    return {"peak_bytes": peak, "live_bytes": live}


def warm_up(model: Any, params: Params) -> None:
    import torch

    with torch.inference_mode():
        model.eval()(**batch_of(params))
        pack(model)
        model(**batch_of(params))


def own_copy(model: Any) -> Any:
    """The model with weights in memory of its own: a loaded file is only mapped."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model.eval()


def pack(model: Any) -> None:
    from madl.compression.pack import MXINT8, pack_

    pack_(model, [MXINT8])


def write_weights_out(model: Any) -> None:
    """Have each packed layer dequantize its weight before it multiplies."""
    import torch.nn.functional as F

    from madl.compression.pack import packed_layers

    def write_out(layer: Any) -> None:
        layer.forward = lambda x: F.linear(x, layer.dequantized().float(), layer.bias)

    for layer in packed_layers(model).values():
        write_out(layer)


# ---- reading the records ------------------------------------------------------------------------


def ledger_of(r: Records, model: str) -> memory.Ledger:
    """The ledger as it was counted."""
    counted = r.one(what="ledger", of=model).values["ledger"]
    return memory.Ledger(**{f.name: counted[f.name] for f in fields(memory.Ledger)})


def written_out(r: Records, model: str) -> int:
    """The largest weight, as an implementation that dequantizes holds it for a moment; bytes."""
    return WRITTEN_BYTES * r.one(what="ledger", of=model).values["largest_weight"]


def peaks(r: Records, kind: str) -> Mapping[str, int]:
    """Bytes that DeBERTa-xlarge asks for and that the allocator takes, at most."""
    return r.one(what="replay").values[kind]


def activations(r: Records, kind: str) -> int:
    """What DeBERTa-xlarge asks for beside its weights, cuBLAS' workspaces included; bytes."""
    found = ledger_of(r, LARGE)
    after = found.after_bytes + written_out(r, LARGE)
    weights = {"FP32": found.before_bytes, "MXINT8": after}
    return peaks(r, kind)["requested_bytes"] - weights[kind]


def larger_blocks(r: Records, kind: str) -> int:
    """What the allocator hands out beyond what is asked for, at the peak; bytes."""
    return peaks(r, kind)["allocated_bytes"] - peaks(r, kind)["requested_bytes"]


def resident_bytes(r: Records, variant: str, field: str) -> float:
    """The median process; `MXINT8, written out` is measured in the process of `MXINT8`."""
    held, _, written = variant.partition(", ")
    found: Sequence[Record] = r.all(what="resident", variant=held)
    measured = [record.values["written_out"] if written else record.values for record in found]
    values = [one[field] for one in measured if one[field] is not None]
    if not values:
        raise Pending(f"resident memory of {variant}")
    return median_high(values)


def in_mb(num_bytes: float) -> float:
    """For a table: whole megabytes where there are many."""
    return round(num_bytes / MB) if num_bytes >= 100 * MB else num_bytes / MB


def mb(num_bytes: float) -> str:
    return f"{number(in_mb(num_bytes))} MB"


def parameters(found: memory.Ledger) -> str:
    return f"{found.num_parameters:,} parameters"


# ---- facts --------------------------------------------------------------------------------------


@page.fact
def formula_has_four_bits(r: Records) -> Fact:
    return Fact(
        text=f"The formula's {per_cent(FORMULA)} counts a four-bit mantissa. MXINT8 has {BITS} "
        f"bits and a share of the scale, {BITS + SCALE_BITS / BLOCK:g} in all, so a packed weight "
        f"saves {per_cent(MXINT8)}",
        of=f"{ledger_of(r, LARGE).num_packed:,} packed weights",
    )


@page.fact
def only_linear_weights(r: Records) -> Fact:
    found = ledger_of(r, LARGE)
    return Fact(
        text=f"Only Linear weights are packed, {per_cent(found.num_packed / found.num_parameters)} "
        "of DeBERTa-xlarge's parameters; with embeddings, norms and biases in FP32, the parameters "
        f"shrink by {per_cent(found.saved)}",
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
        text=f"DeBERTa-xlarge's parameter list takes {mb(found.before_bytes)} in FP32; one public "
        f"report has a peak of {mb(REPORTED['FP32'] * MB)}",
        of=parameters(found),
    )


@page.fact
def mxint8_is_accounted_for(r: Records) -> Fact:
    return Fact(
        text="Packed weights, what stays FP32, activations, a weight that is written out and the "
        f"allocator's blocks come to {mb(peaks(r, 'MXINT8')['allocated_bytes'])} for packed "
        f"DeBERTa-xlarge; one public report has a peak of {mb(REPORTED['MXINT8'] * MB)}",
        of="every allocation of one replayed run",
    )


@page.fact
def blocks_are_larger(r: Records) -> Fact:
    return Fact(
        text=f"For the packed model the allocator hands out {mb(larger_blocks(r, 'MXINT8'))} more "
        f"than is asked for at the peak; for the FP32 model {mb(larger_blocks(r, 'FP32'))}",
        of="every allocation of one replayed run",
    )


@page.fact
def packing_first_needs_less(r: Records) -> Fact:
    after, before = (peaks(r, kind)["allocated_bytes"] for kind in ("MXINT8", PACKED_FIRST))
    return Fact(
        text=f"A model that is packed before it is moved to the GPU needs {mb(before)} at most; "
        f"packed on the GPU, {mb(after)}",
        of="every allocation of two replayed runs",
    )


@page.fact
def resident_memory_freed(r: Records) -> Fact:
    found = ledger_of(r, DEFAULT)
    dense, packed = (resident_bytes(r, v, "model_bytes") for v in ("FP32", "MXINT8"))
    count = len(r.all(what="resident", variant="MXINT8"))
    return Fact(
        text=f"In a fresh process, packing the default model frees {mb(dense - packed)} of "
        f"resident memory, where the ledger says {mb(found.dense_bytes - found.packed_bytes)}",
        of=f"{count} {'process' if count == 1 else 'processes'} a variant, no interval",
    )


@page.fact
def dequantizing_needs_more(r: Records) -> Fact:
    packed, written = (resident_bytes(r, v, "live_bytes") for v in ("MXINT8", WRITTEN_OUT))
    return Fact(
        text=f"Multiplying the packed weights holds at most {mb(packed)} of tensors beside the "
        f"default model during an evaluation; writing each weight out first holds {mb(written)}",
        of="every tensor of one evaluation each",
    )


# ---- figures and tables -------------------------------------------------------------------------


def steps(r: Records) -> dict[str, float]:
    """The share saved, from the formula to what is seen, one reason more each."""
    found = ledger_of(r, LARGE)
    before, after = (peaks(r, kind)["allocated_bytes"] for kind in ("FP32", "MXINT8"))
    kept = found.after_bytes + activations(r, "MXINT8")
    return {
        "the formula, four-bit mantissas": FORMULA,
        "eight-bit mantissas": MXINT8,
        "only Linear weights": found.saved,
        "activations stay": 1 - kept / before,
        "a weight is written out": 1 - (kept + written_out(r, LARGE)) / before,
        "the allocator's blocks": 1 - after / before,
        "one report": 1 - REPORTED["MXINT8"] / REPORTED["FP32"],
    }


@page.chart(
    caption="From the formula to what is seen on DeBERTa-xlarge, top to bottom: each bar begins "
    "where the one above it ends, and is what one reason more takes away. The last bar is one "
    "public report, measured on a GPU."
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


@page.table
def savings_table(r: Records) -> Sequence[Row]:
    found = steps(r)
    previous = [None, *found.values()]
    return [
        {
            "counted": what,
            "saved": per_cent(share),
            "change (points)": "–" if last is None else number(100 * (share - last), sign=True),
            "left over (MB)": in_mb((1 - share) * REPORTED["FP32"] * MB),
        }
        for (what, share), last in zip(found.items(), previous)
    ]


PARTS = (
    *("Linear weights", "other parameters", "activations"),
    *("written-out weight", "larger blocks"),
)


def _parts(r: Records) -> dict[tuple[str, str], dict[str, int]]:
    """By model and kind of weights, the bytes of each part."""
    made: dict[tuple[str, str], dict[str, int]] = {}
    for model in (LARGE, DEFAULT):
        found, is_replayed = ledger_of(r, model), model == LARGE
        held = r.one(what="ledger", of=model).values["activation_bytes"]
        for kind, weights in (("FP32", found.dense_bytes), ("MXINT8", found.packed_bytes)):
            written = written_out(r, model) if kind == "MXINT8" else 0
            live = activations(r, kind) if is_replayed else held
            more = larger_blocks(r, kind) if is_replayed else 0
            sizes = (weights, found.kept_bytes, live, written, more)
            made[model, kind] = dict(zip(PARTS, sizes))
    return made


@page.chart(
    caption="Each model's memory in evaluation, by part, as shares of its own sum in FP32. The "
    "lone marks are the peaks that one public report measured."
)
def parts(r: Records) -> Chart:
    made = _parts(r)
    whole = {model: sum(made[model, "FP32"].values()) for model, _ in made}
    rows = [
        {
            "model and weights": f"{model}, {kind}",
            **{part: size / whole[model] for part, size in sizes.items()},
            "reported": REPORTED[kind] * MB / whole[model] if model == LARGE else None,
        }
        for (model, kind), sizes in made.items()
    ]
    return Chart(
        rows,
        x=percent("share of the FP32 sum"),
        y=category("model and weights"),
        marks=[bars(*PARTS, stacked=True), intervals("reported", "reported by others")],
    )


@page.table
def parts_table(r: Records) -> Sequence[Row]:
    """The same in megabytes."""
    return [
        {
            "MB": f"{model}, {kind}",
            **{part: in_mb(size) for part, size in sizes.items()},
            "sum": in_mb(sum(sizes.values())),
        }
        for (model, kind), sizes in _parts(r).items()
    ]


@page.table
def peaks_table(r: Records) -> Sequence[Row]:
    """DeBERTa-xlarge's peaks: replayed, on a GPU where one has run it, and reported."""
    on_gpu = next(iter(r.where(what="cuda")), None)
    rows: list[Row] = []
    for kind in (*REPORTED, PACKED_FIRST):
        row: dict[str, Any] = {
            "weights": kind,
            "asked for, replayed (MB)": in_mb(peaks(r, kind)["requested_bytes"]),
            "held, replayed (MB)": in_mb(peaks(r, kind)["allocated_bytes"]),
        }
        if on_gpu:
            row["held, on a GPU (MB)"] = in_mb(on_gpu.values[kind]["allocated_bytes"])
        known = REPORTED.get(kind)
        rows.append({**row, "reported (MB)": "none" if known is None else in_mb(known * MB)})
    return rows


@page.table
def resident_table(r: Records) -> Sequence[Row]:
    """The default model: the ledger beside fresh processes."""
    found = ledger_of(r, DEFAULT)
    rows: list[Row] = []
    for variant in ("FP32", "MXINT8", WRITTEN_OUT):
        weights = found.dense_bytes if variant == "FP32" else found.packed_bytes
        sizes = {
            "parameters, ledger": weights + found.kept_bytes,
            "model, resident": resident_bytes(r, variant.partition(",")[0], "model_bytes"),
            "tensors in an evaluation": resident_bytes(r, variant, "live_bytes"),
            "resident peak above the model": resident_bytes(r, variant, "peak_bytes"),
        }
        rows.append({"MB": variant, **{name: in_mb(size) for name, size in sizes.items()}})
    return rows
