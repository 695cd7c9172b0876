"""What the records of packed memory add up to: why a model saves less than the formula says.

Units: bytes, but for `REPORTED`, which is in units of 2^20 bytes like everything that is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import median_high
from typing import Any

from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import number, numbers, per_cent
from madl.machine import memory
from madl.machine.replay import BLOCK, PACKED_FIRST, WRITTEN_BYTES

MIB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"
WRITTEN_OUT = "MXINT8, written out"
BITS, SCALE_BITS = 8, 8
FORMULA = 1 - (4 + 8 / 32) / 32  # as the coursework writes it
MXINT8 = 1 - (BITS + SCALE_BITS / BLOCK) / 32

# One public report on the coursework's model: peak of the GPU's allocator in evaluation, in MiB.
REPORTED = {"FP32": 2906.2, "MXINT8": 976.2}


def ledger_of(r: Records, model: str) -> memory.Ledger:
    """The ledger as it was counted."""
    counted = r.one(what="ledger", of=model).values["ledger"]
    return memory.Ledger(**{f.name: counted[f.name] for f in fields(memory.Ledger)})


def written_out(r: Records, model: str) -> int:
    """The largest weight, as an implementation that dequantizes holds it for a moment; bytes."""
    return WRITTEN_BYTES * r.one(what="ledger", of=model).values["largest_weight"]


def apart(r: Records, *, is_written: bool) -> int:
    """The default model's activations, and its largest weight if one is written out; bytes.

    A sum of two peaks, which need not be at the same moment.
    """
    held = r.one(what="ledger", of=DEFAULT).values["activation_bytes"]
    return held + (written_out(r, DEFAULT) if is_written else 0)


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
    """Of the median process."""
    return median_high(_by_process(r, variant, field, kept=kept))


def resident_range(r: Records, variant: str, field: str, *, kept: bool = True) -> str:
    """Of all processes, in words: "3.7 MiB (3.4 to 4.2)", the median first."""
    values = sorted(_by_process(r, variant, field, kept=kept))
    low, high = (number(in_mib(one)) for one in (values[0], values[-1]))
    spread = f" ({low} to {high})" if low != high else ""
    return f"{mib(median_high(values))}{spread}"


def _by_process(r: Records, variant: str, field: str, *, kept: bool) -> Sequence[float]:
    """`MXINT8, written out` is measured in the process of `MXINT8`.

    `kept` is whether the allocator keeps blocks that were freed, as it does of itself.
    """
    held, _, written = variant.partition(", ")
    found: Sequence[Record] = r.all(what="resident", variant=held)
    of = [x.values if kept else x.values["nothing_kept"] for x in found]
    measured = [values["written_out"] if written else values for values in of]
    values = [one[field] for one in measured if one[field] is not None]
    if not values:
        raise Pending(f"resident memory of {variant}")
    return values


def in_mib(num_bytes: float) -> float:
    """For a table: whole mebibytes where there are many."""
    return round(num_bytes / MIB) if num_bytes >= 100 * MIB else num_bytes / MIB


def mib(num_bytes: float) -> str:
    """In a sentence; what is next to nothing in kibibytes."""
    if 0 < num_bytes < MIB / 100:
        return f"{number(num_bytes / 1024)} KiB"
    return f"{number(in_mib(num_bytes))} MiB"


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


def savings_rows(r: Records) -> Sequence[Row]:
    """The share saved, and by how much each reason changes it."""
    found = steps(r)
    previous = [None, *found.values()]
    return [
        {
            "counted": what,
            "saved": per_cent(share),
            "change (points)": "–" if last is None else _points(share - last),
            "left over (MiB)": in_mib((1 - share) * REPORTED["FP32"] * MIB),
        }
        for (what, share), last in zip(found.items(), previous)
    ]


def _points(change: float) -> str:
    return numbers([100 * change], sign=True, places=1)[0]


PARTS = (
    *("Linear weights", "other parameters", "activations"),
    *("written-out weight", "larger blocks"),
)


def parts_of(r: Records) -> dict[tuple[str, str], dict[str, int]]:
    """By model and kind of weights, the bytes of each part.

    The coursework's layer writes a weight out, DeBERTa-xlarge's; this project's product does not.
    """
    made: dict[tuple[str, str], dict[str, int]] = {}
    for model in (LARGE, DEFAULT):
        found, is_simulated = ledger_of(r, model), model == LARGE
        held = r.one(what="ledger", of=model).values["activation_bytes"]
        for kind, weights in (("FP32", found.dense_bytes), ("MXINT8", found.packed_bytes)):
            written = written_out(r, model) if is_simulated and kind == "MXINT8" else 0
            live = activations(r, kind) if is_simulated else held
            more = larger_blocks(r, kind) if is_simulated else 0
            sizes = (weights, found.kept_bytes, live, written, more)
            made[model, kind] = dict(zip(PARTS, sizes))
    return made


def part_rows(r: Records) -> Sequence[Row]:
    """Each model's memory by part."""
    return [
        {
            "MiB": f"{model}, {kind}",
            **{part: in_mib(size) for part, size in sizes.items()},
            "sum": in_mib(sum(sizes.values())),
        }
        for (model, kind), sizes in parts_of(r).items()
    ]


def peak_rows(r: Records) -> Sequence[Row]:
    """DeBERTa-xlarge's peaks: simulated, on a GPU where one has run it, and reported."""
    on_gpu = next(iter(r.where(what="cuda")), None)
    rows: list[Row] = []
    for kind in (*REPORTED, PACKED_FIRST):
        row: dict[str, Any] = {
            "weights": kind,
            "asked for, simulated (MiB)": in_mib(peaks(r, kind)["requested_bytes"]),
            "held, simulated (MiB)": in_mib(peaks(r, kind)["allocated_bytes"]),
        }
        if on_gpu:
            row[f"held, on {on_gpu.run.device} (MiB)"] = in_mib(
                on_gpu.values[kind]["allocated_bytes"]
            )
        known = REPORTED.get(kind)
        rows.append({**row, "reported (MiB)": "none" if known is None else in_mib(known * MIB)})
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
            "tensors, counted apart": apart(r, is_written=variant == WRITTEN_OUT),
            "tensors in an evaluation": resident_bytes(r, variant, "live_bytes"),
            "resident peak above the model": resident_bytes(r, variant, "peak_bytes"),
            "the same, nothing kept": resident_bytes(r, variant, "peak_bytes", kept=False),
        }
        rows.append({"MiB": variant, **{name: in_mib(size) for name, size in sizes.items()}})
    return rows
