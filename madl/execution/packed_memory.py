"""What the records of packed memory add up to: why a model saves less than the formula says.

Units: bytes, but for `REPORTED`, which is in units of 2^20 bytes like everything that is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import median_high
from typing import Any

from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import number
from madl.machine import memory
from madl.machine.replay import BLOCK, PACKED_FIRST, WRITTEN_BYTES

MB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"
WRITTEN_OUT = "MXINT8, written out"
BITS, SCALE_BITS = 8, 8
FORMULA = 1 - (4 + 8 / 32) / 32  # as the coursework writes it
MXINT8 = 1 - (BITS + SCALE_BITS / BLOCK) / 32

# One public report on the coursework's model: peak of the GPU's allocator in evaluation, in MB.
REPORTED = {"FP32": 2906.2, "MXINT8": 976.2}


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


def resident_bytes(r: Records, variant: str, field: str, *, kept: bool = True) -> float:
    """The median process; `MXINT8, written out` is measured in the process of `MXINT8`.

    `kept` is whether the allocator keeps blocks that were freed, as it does of itself.
    """
    held, _, written = variant.partition(", ")
    found: Sequence[Record] = r.all(what="resident", variant=held)
    of = [x.values if kept else x.values["nothing_kept"] for x in found]
    measured = [values["written_out"] if written else values for values in of]
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


PARTS = (
    *("Linear weights", "other parameters", "activations"),
    *("written-out weight", "larger blocks"),
)


def parts_of(r: Records) -> dict[tuple[str, str], dict[str, int]]:
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


def peak_rows(r: Records) -> Sequence[Row]:
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


def resident_rows(r: Records) -> Sequence[Row]:
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
            "the same, nothing kept": resident_bytes(r, variant, "peak_bytes", kept=False),
        }
        rows.append({"MB": variant, **{name: in_mb(size) for name, size in sizes.items()}})
    return rows
