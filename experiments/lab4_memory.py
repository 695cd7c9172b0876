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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from madl.logbook import plots, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.machine.allocator import Allocator, CachingAllocator, DeviceAllocator
from madl.training import baseline

MB = 2**20
WRITTEN_OUT = "MXINT8, written out"
BLOCK, BITS, SCALE_BITS = 32, 8, 8
FORMULA = 1 - (4 + 8 / 32) / 32  # as the coursework writes it
MXINT8 = 1 - (8 + 8 / 32) / 32
WRITTEN_BYTES = 2 + 4  # of a weight that is dequantized to BF16 and then cast to FP32

# One public report on the coursework's model: peak of the GPU's allocator in evaluation, in MB.
REPORTED = {"FP32": 2906.2, "MXINT8": 976.2}
TOKENS = 10  # of the coursework's sentence
WORKSPACES = (8 * MB + 2**17, MB)  # what cuBLAS and cuBLASLt take and keep on GPUs before Hopper
XLARGE = {  # microsoft/deberta-xlarge, the first version
    "vocab_size": 50265,
    "hidden_size": 1024,
    "num_hidden_layers": 48,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "pos_att_type": ["c2p", "p2c"],
    "num_labels": 6,
}
LOADED = "MXINT8, packed before"
CLOSE = 0.01  # a prediction nearer than this names every byte that matters


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    batch = {"batch": 1, "length": choose(smoke=16, quick=128, full=128)}
    base = baseline.recipe_params(plan, 0)
    yield {"what": "ledger", "of": "DeBERTa-xlarge"}
    yield {"what": "ledger", "of": "default", **base, **batch}
    for repeat in range(choose(smoke=1, quick=1, full=5)):
        for variant in ("FP32", "MXINT8"):
            yield {"what": "resident", "variant": variant, "repeat": repeat, **base, **batch}
    for what in ("replay", "cuda"):
        yield {"what": what, "tokens": TOKENS}


def unavailable(params: Params) -> str | None:
    if params["what"] == "resident" and not Path("/proc/self/status").exists():
        return "no /proc here to read resident memory from"
    if params["what"] != "cuda":
        return None
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    if params["what"] == "replay":
        return replayed(params)
    if params["what"] == "cuda":
        return on_gpu(params)
    if params["what"] == "resident":
        return resident(params, ctx)
    if params["of"] == "default":
        return predict(baseline.fine_tuned(params, ctx), inputs(params))
    return predict(deberta_xlarge("meta"), {})


def deberta_xlarge(device: str) -> Any:
    """The coursework's model from its configuration, without values on the meta device."""
    import torch
    from transformers import DebertaConfig, DebertaForSequenceClassification

    config: Any = DebertaConfig
    with torch.device(device):
        return DebertaForSequenceClassification(config(**XLARGE)).eval()


def inputs(params: Params, device: str = "cpu") -> dict[str, Any]:
    import torch

    shape = (int(params.get("batch") or 1), int(params["length"] or 0))
    ids = torch.ones(shape, dtype=torch.long, device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def predict(model: Any, batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ledger, and the activations where there is a batch to count them on."""
    import torch

    from madl.machine.memory import ledger, live_bytes

    counted = ledger(model, bits=BITS, scale_bits=SCALE_BITS, block=BLOCK)
    with torch.inference_mode():
        activations = live_bytes(lambda: model.eval()(**batch)) if batch else 0
    return {
        "ledger": asdict(counted),
        "activation_bytes": activations,
        "largest_weight": max(p.numel() for m in linears(model) for p in [m.weight]),
    }


def linears(model: Any) -> list[Any]:
    from torch import nn

    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def resident(params: Params, ctx: Context) -> Mapping[str, Any]:
    """Memory of a fresh process that does nothing but hold the model and evaluate once."""
    from madl.training import models

    model = baseline.fine_tuned(params, ctx)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        models.save_checkpoint(model, Path(folder))
        with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
            return executor.submit(_in_fresh_process, folder, dict(params)).result()


def _in_fresh_process(folder: str, params: Params) -> Mapping[str, Any]:
    import torch

    from madl.machine import memory
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

    from madl.machine import memory

    memory.return_freed_pages()
    with torch.inference_mode():
        peak = memory.peak_resident_bytes(lambda: model(**inputs(params)))
        live = memory.live_bytes(lambda: model(**inputs(params)))
    return {"peak_bytes": peak, "live_bytes": live}


def warm_up(model: Any, params: Params) -> None:
    import torch

    with torch.inference_mode():
        model.eval()(**inputs(params))
        pack(model)
        model(**inputs(params))


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

    for layer in packed_layers(model).values():
        layer.forward = lambda x, layer=layer: F.linear(x, layer.dequantized().float(), layer.bias)


def replayed(params: Params) -> Mapping[str, Any]:
    """What `on_gpu` would find, from the model of the allocator."""
    from madl.machine import memory

    packed = packed_xlarge()  # not on the device, so not counted
    values: dict[str, Any] = {}
    for run_on, model in ((as_reported, deberta_xlarge("meta")), (as_loaded, packed)):
        allocator = CachingAllocator()
        with memory.watching(allocator.allocate, allocator.free):
            on_device = model.to_empty(device="meta")
            for size in WORKSPACES:  # taken at the first product
                allocator.allocate(size)
            values |= run_on(on_device, inputs({"length": params["tokens"]}, "meta"), allocator)
            del on_device
    return values


def on_gpu(params: Params) -> Mapping[str, Any]:
    """Peaks of torch's allocator in evaluations of DeBERTa-xlarge."""
    batch, allocator = inputs({"length": params["tokens"]}, "cuda"), DeviceAllocator()
    values = as_reported(deberta_xlarge("meta").to_empty(device="cuda"), batch, allocator)
    allocator.empty_cache()
    return {**values, **as_loaded(packed_xlarge().to_empty(device="cuda"), batch, allocator)}


def as_reported(model: Any, batch: Mapping[str, Any], allocator: Allocator) -> dict[str, Any]:
    """Evaluated in FP32, packed on the device layer after layer, and evaluated again."""
    fp32 = peaks_of(model, batch, allocator)
    for layer in linears(model):
        write_out(layer)
        allocator.empty_cache()
    return {"FP32": fp32, "MXINT8": peaks_of(model, batch, allocator)}


def as_loaded(model: Any, batch: Mapping[str, Any], allocator: Allocator) -> dict[str, Any]:
    """Evaluated by a model that was packed before it was moved to the device."""
    return {LOADED: peaks_of(model, batch, allocator)}


def packed_xlarge() -> Any:
    model = deberta_xlarge("meta")
    for layer in linears(model):
        write_out(layer)
    return model


def peaks_of(model: Any, batch: Mapping[str, Any], allocator: Allocator) -> dict[str, int]:
    import torch

    allocator.reset_peaks()
    with torch.inference_mode():
        model(**batch)
    return {
        "requested_bytes": allocator.peak_requested_bytes,
        "allocated_bytes": allocator.peak_bytes,
    }


def write_out(linear: Any) -> None:
    """Pack a weight; the layer then writes it out in BF16 and casts it to its input's type.

    Memory is taken and freed in the order of the coursework's layer, which has room for the codes
    before it computes them.
    """
    import torch
    import torch.nn.functional as F

    from kernels import mxint8

    rows = linear.weight.detach().view(-1, BLOCK)
    room = torch.empty_like(rows, dtype=torch.int8)
    mantissas, scales = mxint8.quantize_in_torch(rows, BLOCK)
    shape = linear.weight.shape
    linear.register_buffer("mantissas", mantissas.view(shape))
    linear.register_buffer("scales", scales.view(shape[0], -1))
    del room, rows
    linear.weight = None

    def forward(x: Any) -> Any:
        weight = mxint8.dequantize(linear.mantissas, linear.scales, BLOCK)
        return F.linear(x, weight.to(x.dtype), linear.bias)

    linear.forward = forward


# ---- reading the records ------------------------------------------------------------------------


def ledger_of(records: Records, model: str) -> Any:
    """The ledger as it was counted."""
    from madl.machine.memory import Ledger

    return Ledger(**records.one(what="ledger", of=model).values["ledger"])


def written_out(records: Records, model: str) -> int:
    """The largest weight, as an implementation that dequantizes holds it for a moment; bytes."""
    values = records.one(what="ledger", of=model).values
    return WRITTEN_BYTES * values["largest_weight"]


def peaks(records: Records, kind: str) -> Any:
    """Bytes that DeBERTa-xlarge asks for and that the allocator takes, at most."""
    return records.one(what="replay").values[kind]


def activations(records: Records, kind: str) -> int:
    """What DeBERTa-xlarge asks for beside its weights, cuBLAS' workspaces included; bytes."""
    found = ledger_of(records, "DeBERTa-xlarge")
    weights = {
        "FP32": found.before_bytes,
        "MXINT8": found.after_bytes + written_out(records, "DeBERTa-xlarge"),
    }
    return peaks(records, kind)["requested_bytes"] - weights[kind]


def resident_median(records: Records, variant: str, field: str) -> float:
    """Over the repeats; `MXINT8, written out` is measured in the process of `MXINT8`."""
    held, _, written = variant.partition(", ")
    found: list[Record] = list(records.where(what="resident", variant=held))
    measured = [r.values["written_out"] if written else r.values for r in found]
    values = sorted(v[field] for v in measured if v[field] is not None)
    if not values:
        raise Pending(f"resident memory of {variant}")
    return values[len(values) // 2]


def larger_blocks(records: Records, kind: str) -> int:
    """What the allocator hands out beyond what is asked for, at the peak; bytes."""
    found = peaks(records, kind)
    return found["allocated_bytes"] - found["requested_bytes"]


# ---- claims -------------------------------------------------------------------------------------


def formula_has_four_bits(records: Records) -> Claim:
    weights = ledger_of(records, "DeBERTa-xlarge").num_packed
    text = (
        f"The formula's {FORMULA:.1%} counts a four-bit mantissa. MXINT8 has eight bits and a "
        f"share of the scale, {BITS + SCALE_BITS / BLOCK:g} in all, so a packed weight saves "
        f"{MXINT8:.1%}"
    )
    return stats.counted(FORMULA, MXINT8, weights).degrades(text)


def only_linear_weights(records: Records) -> Claim:
    found = ledger_of(records, "DeBERTa-xlarge")
    share = found.num_packed / found.num_parameters
    text = (
        f"Only Linear weights are packed, {share:.1%} of DeBERTa-xlarge's parameters; with the "
        f"embeddings, norms and biases in FP32, the parameters shrink by {found.saved:.1%}"
    )
    return stats.counted(MXINT8, found.saved, found.num_parameters).degrades(text)


def small_models_save_less(records: Records) -> Claim:
    large, small = (ledger_of(records, model) for model in ("DeBERTa-xlarge", "default"))
    share = small.num_packed / small.num_parameters
    text = (
        f"In the default model, only {share:.1%} of the parameters are Linear weights, so its "
        f"parameters shrink by {small.saved:.1%}, where DeBERTa-xlarge's shrink by "
        f"{large.saved:.1%}"
    )
    return stats.counted(large.saved, small.saved, small.num_parameters).degrades(text)


def _near(expected: float, predicted: float, n: int, text: str) -> Claim:
    off = stats.counted(0.0, predicted / expected - 1, n, unit=stats.Unit.PERCENT)
    return off.within(CLOSE, text)


def fp32_is_the_parameters(records: Records) -> Claim:
    found = ledger_of(records, "DeBERTa-xlarge")
    text = (
        f"DeBERTa-xlarge's parameter list gives {found.before_bytes / MB:,.1f} MB in FP32; "
        f"reported is a peak of {REPORTED['FP32']:,} MB"
    )
    return _near(REPORTED["FP32"] * MB, found.before_bytes, found.num_parameters, text)


def mxint8_is_accounted_for(records: Records) -> Claim:
    predicted = peaks(records, "MXINT8")["allocated_bytes"]
    text = (
        f"Packed weights, what stays FP32, activations, a weight that is written out and the "
        f"allocator's blocks come to {predicted / MB:,.1f} MB; reported is a peak of "
        f"{REPORTED['MXINT8']:,} MB"
    )
    return _near(REPORTED["MXINT8"] * MB, predicted, 1, text)


def blocks_are_larger(records: Records) -> Claim:
    before, after = (larger_blocks(records, kind) for kind in ("FP32", "MXINT8"))
    text = (
        f"For the packed model the allocator hands out {after / MB:.1f} MB more than is asked for; "
        f"for the FP32 model {before / MB:.1f} MB"
    )
    return stats.counted(before / MB, after / MB, 1, unit=stats.Unit.MEGABYTES).improves(text)


def packing_first_needs_less(records: Records) -> Claim:
    after, before = (peaks(records, kind)["allocated_bytes"] for kind in ("MXINT8", LOADED))
    text = (
        f"A model that is packed before it is moved to the GPU needs {before / MB:,.1f} MB at "
        f"most, where packing on the GPU leaves it at {after / MB:,.1f} MB"
    )
    return stats.counted(after / MB, before / MB, 1, unit=stats.Unit.MEGABYTES).degrades(text)


def measured_is_predicted(records: Records) -> Claim:
    found = ledger_of(records, "default")
    predicted = found.dense_bytes - found.packed_bytes
    measured = resident_median(records, "FP32", "model_bytes") - resident_median(
        records, "MXINT8", "model_bytes"
    )
    text = (
        f"In a fresh process, packing the default model frees {measured / MB:.1f} MB of resident "
        f"memory, where the ledger says {predicted / MB:.1f} MB"
    )
    runs = len(records.where(what="resident", variant="MXINT8"))
    off = stats.counted(0.0, measured / predicted - 1, runs, unit=stats.Unit.PERCENT)
    return off.within(0.05, text)


def dequantizing_needs_more(records: Records) -> Claim:
    packed, written = (
        resident_median(records, variant, "live_bytes") for variant in ("MXINT8", WRITTEN_OUT)
    )
    text = (
        f"Multiplying the packed weights holds at most {packed / MB:.1f} MB beside the model "
        f"during an evaluation; writing each weight out first holds {written / MB:.1f} MB"
    )
    more = stats.counted(0.0, written / packed - 1, 1, unit=stats.Unit.PERCENT)
    return more.improves(text)


# ---- figures and tables -------------------------------------------------------------------------

PARTS = {
    "Linear weights": "first",
    "other parameters": "second",
    "activations": "third",
    "written-out weight": "fourth",
    "larger blocks": "chance",
}


def parts_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for model in ("DeBERTa-xlarge", "default"):
        found = ledger_of(records, model)
        is_replayed = model == "DeBERTa-xlarge"
        held = records.one(what="ledger", of=model).values["activation_bytes"]
        for kind, weights in (("FP32", found.dense_bytes), ("MXINT8", found.packed_bytes)):
            written = written_out(records, model) if kind == "MXINT8" else 0
            live = activations(records, kind) if is_replayed else held
            more = larger_blocks(records, kind) if is_replayed else 0
            parts = (weights, found.kept_bytes, live, written, more)
            sizes = {part: round(size / MB, 2) for part, size in zip(PARTS, parts)}
            total = round(sum(parts) / MB, 2)
            reported = REPORTED[kind] if is_replayed else None
            rows.append({"model": model, "weights": kind, **sizes, "sum": total, "seen": reported})
    return rows


def draw_parts(ax: Any, rows: Sequence[Row]) -> None:
    names = [f"{row['model']}\n{row['weights']}" for row in rows]
    whole = {row["model"]: row["sum"] for row in rows if row["weights"] == "FP32"}
    left = [0.0] * len(rows)
    for part, role in PARTS.items():
        shares: list[Any] = [row[part] / whole[row["model"]] for row in rows]  # type: ignore[operator]
        ax.barh(names, shares, left=left, color=plots.color(role), height=0.6, label=part)
        left = [a + b for a, b in zip(left, shares)]
    for i, row in enumerate(rows):
        end, label = left[i], f"{row['sum']:,.0f} MB"
        if row["seen"] is not None:
            at = row["seen"] / whole[row["model"]]  # type: ignore[operator]
            ax.plot([at, at], [i - 0.4, i + 0.4], color=plots.color("fp32"), linewidth=2)
            end, label = max(end, at), f"{label} of {row['seen']:,.0f}"
        ax.annotate(label, (end, i), (4, 0), textcoords="offset points", va="center")
    ax.plot([], [], color=plots.color("fp32"), linewidth=2, label="reported")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.5)
    ax.set_xticks([0, 0.5, 1])
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
    ax.set_xlabel("share of the FP32 sum (%)")
    plots.legend(ax)


def parts_alt(rows: Sequence[Row]) -> str:
    return "; ".join(
        f"{row['model']} in {row['weights']}: "
        + ", ".join(f"{part} {row[part]:,.1f} MB" for part in PARTS)
        + (f", reported {row['seen']:,} MB" if row["seen"] else "")
        for row in rows
    )


def savings(records: Records) -> Sequence[Row]:
    """From the formula to what is seen, one reason a row."""
    found = ledger_of(records, "DeBERTa-xlarge")
    before, after = (peaks(records, kind)["allocated_bytes"] for kind in ("FP32", "MXINT8"))
    kept = found.after_bytes + activations(records, "MXINT8")
    written = kept + written_out(records, "DeBERTa-xlarge")
    steps = [
        ("the formula, four-bit mantissas", FORMULA),
        ("eight-bit mantissas", MXINT8),
        ("only Linear weights are packed", found.saved),
        ("activations stay as they are", 1 - kept / before),
        ("a weight is written out, in BF16 and FP32", 1 - written / before),
        ("the allocator's blocks are larger", 1 - after / before),
        ("reported", 1 - REPORTED["MXINT8"] / REPORTED["FP32"]),
    ]
    previous = [None, *(share for _, share in steps)]
    return [
        {
            "counted": what,
            "saved": f"{share:.1%}",
            "change": ""
            if last is None
            else f"{100 * (share - last):+.1f} points".replace("-", "−"),
            "left over": f"{(1 - share) * REPORTED['FP32']:,.1f} MB",
        }
        for (what, share), last in zip(steps, previous)
    ]


def resident_table(records: Records) -> Sequence[Row]:
    """The default model: the ledger beside a fresh process."""
    found = ledger_of(records, "default")
    rows: list[Row] = []
    for variant in ("FP32", "MXINT8", WRITTEN_OUT):
        weights = found.dense_bytes if variant == "FP32" else found.packed_bytes
        held = resident_median(records, variant.partition(",")[0], "model_bytes")
        sizes = {
            "parameters, ledger (MB)": weights + found.kept_bytes,
            "model, resident (MB)": held,
            "tensors in an evaluation (MB)": resident_median(records, variant, "live_bytes"),
            "resident peak above the model (MB)": resident_median(records, variant, "peak_bytes"),
        }
        rows.append({"variant": variant, **{k: round(v / MB, 1) for k, v in sizes.items()}})
    return rows


def peaks_table(records: Records) -> Sequence[Row]:
    """DeBERTa-xlarge's peaks: replayed, on a GPU where one has run it, and reported."""
    on_gpu = next((r.values for r in records.where(what="cuda")), None)
    rows: list[Row] = []
    for kind in (*REPORTED, LOADED):
        sizes: dict[str, int | None] = {
            "asked for, replayed (MB)": peaks(records, kind)["requested_bytes"],
            "held, replayed (MB)": peaks(records, kind)["allocated_bytes"],
            "held, on a GPU (MB)": on_gpu and on_gpu[kind]["allocated_bytes"],
        }
        shown = {name: None if v is None else f"{v / MB:,.1f}" for name, v in sizes.items()}
        reported = f"{REPORTED[kind]:,}" if kind in REPORTED else "–"
        rows.append({"weights": kind, **shown, "reported (MB)": reported})
    return rows


experiment = Experiment(
    title="Why the memory saved is not the formula's",
    params=params,
    run=run,
    unavailable=unavailable,
    needs=("baseline",),
    claims={
        "formula_has_four_bits": formula_has_four_bits,
        "only_linear_weights": only_linear_weights,
        "small_models_save_less": small_models_save_less,
        "fp32_is_the_parameters": fp32_is_the_parameters,
        "mxint8_is_accounted_for": mxint8_is_accounted_for,
        "blocks_are_larger": blocks_are_larger,
        "packing_first_needs_less": packing_first_needs_less,
        "measured_is_predicted": measured_is_predicted,
        "dequantizing_needs_more": dequantizing_needs_more,
    },
    figures={
        "parts": Figure(
            caption="Packing shrinks one part of the memory. The more of a model is embeddings, "
            "the less it saves.",
            rows=parts_rows,
            draw=draw_parts,
            alt=parts_alt,
        )
    },
    tables={"savings": savings, "resident_table": resident_table, "peaks_table": peaks_table},
)
