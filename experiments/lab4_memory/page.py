"""Question 4.3d: why packing saves less memory than the formula says, counted part by part.

The ledger predicts from the parameter list: of the default model, and of DeBERTa-xlarge from its
configuration alone. For DeBERTa-xlarge a public report gives a GPU's two peaks; what it ran is
simulated with a model of the GPU's allocator, and run on a GPU where there is one. The default
model is measured, each variant in a process of its own.

Units: bytes, but for `REPORTED`, which is in units of 2^20 bytes like everything that is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

from madl.logbook.charts import Chart, bars, category, percent
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import number, numbers, per_cent
from madl.machine import memory, replay
from madl.machine.device import no_device
from madl.machine.replay import BLOCK, PACKED_FIRST, WORKSPACES, WRITTEN_BYTES
from madl.training import baseline

MIB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"
BITS, SCALE_BITS = 8, 8
FORMULA = 1 - (4 + 8 / 32) / 32  # as the coursework writes it
MXINT8 = 1 - (BITS + SCALE_BITS / BLOCK) / 32
TOKENS = 10  # of the coursework's sentence

# One public report on the coursework's model: peak of the GPU's allocator in evaluation, in MiB.
REPORTED = {"FP32": 2906.2, "MXINT8": 976.2}

page = Experiment(title="Why the memory saved is not the formula's", version=2)


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
    from experiments.lab4_memory import study

    if params["what"] == "replay":
        return replay.replayed(_whole(params, "tokens"))
    if params["what"] == "cuda":
        return replay.on_gpu(_whole(params, "tokens"))
    if params["what"] == "resident":
        return study.resident(baseline.checkpoint(params, ctx), params)
    if params["of"] == LARGE:
        return study.predict(replay.deberta_xlarge(), {})
    batch = replay.inputs(_whole(params, "length"), batch=_whole(params, "batch"))
    return study.predict(baseline.fine_tuned(params, ctx), batch)


def _whole(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value


# ---- what the records add up to -----------------------------------------------------------------

PARTS = ("Linear weights", "other parameters", "activations", "workspaces", "written-out weight")
PACKED, KEPT, LIVE, SPACES, WRITTEN = PARTS
SPARE = "spare in blocks"  # what the allocator hands out beyond what is asked for


def ledger_of(r: Records, model: str) -> memory.Ledger:
    """The ledger as it was counted."""
    made = r.one(what="ledger", of=model).values["ledger"]
    return memory.Ledger(**{f.name: made[f.name] for f in fields(memory.Ledger)})


def written_out(r: Records, model: str) -> int:
    """The largest weight, as a layer that dequantizes holds it for a moment; bytes."""
    return WRITTEN_BYTES * r.one(what="ledger", of=model).values["largest_weight"]


def peaks(r: Records, kind: str) -> Mapping[str, int]:
    """Bytes that DeBERTa-xlarge asks for and that the allocator takes, at most."""
    return r.one(what="replay").values[kind]


def spare(r: Records, kind: str) -> int:
    return peaks(r, kind)["allocated_bytes"] - peaks(r, kind)["requested_bytes"]


def parts_of(r: Records, model: str, kind: str) -> dict[str, int]:
    """Bytes of each part, without an allocator; MXINT8's with its largest weight written out.

    DeBERTa-xlarge's activations are what is asked for beside all that is known. The default model
    runs on a CPU, which takes no such workspaces.
    """
    found = ledger_of(r, model)
    weights = found.dense_bytes if kind == "FP32" else found.packed_bytes
    written = 0 if kind == "FP32" else written_out(r, model)
    if model == LARGE:
        spaces = sum(WORKSPACES)
        live = peaks(r, kind)["requested_bytes"] - weights - found.kept_bytes - written - spaces
    else:
        spaces, live = 0, r.one(what="ledger", of=model).values["activation_bytes"]
    sizes = (weights, found.kept_bytes, live, spaces, written)
    return dict(zip(PARTS, sizes, strict=True))


def steps(r: Records) -> dict[str, float]:
    """The share saved, from the formula to what is seen, one reason more each."""
    before = peaks(r, "FP32")["allocated_bytes"]
    held = parts_of(r, LARGE, "MXINT8")
    found = ledger_of(r, LARGE)
    kept = {name: sum(held[part] for part in PARTS[:n]) for n, name in enumerate(PARTS, 1)}
    return {
        "the formula, four-bit mantissas": FORMULA,
        "eight-bit mantissas": MXINT8,
        "only Linear weights are packed": found.saved,
        "activations stay": 1 - kept[LIVE] / (before - sum(WORKSPACES)),
        "cuBLAS takes workspaces (assumed)": 1 - kept[SPACES] / before,
        "a weight is written out": 1 - kept[WRITTEN] / before,
        "the allocator's blocks are larger": 1 - (kept[WRITTEN] + spare(r, "MXINT8")) / before,
        "one report, on a GPU": 1 - REPORTED["MXINT8"] / REPORTED["FP32"],
    }


def _resident(r: Records, variant: str, *path: str) -> int:
    """Bytes that the median process of a variant holds."""

    def value(values: Any) -> int:
        for name in path:
            values = values[name]
        return values

    return median_high(value(one.values) for one in r.all(what="resident", variant=variant))


# ---- numbers ------------------------------------------------------------------------------------


def _mib(num_bytes: float) -> Counted:
    return counted(round(num_bytes / MIB, 1 if num_bytes < 100 * MIB else None), "MiB")


def lost(r: Records, first: int, last: int) -> Counted:
    """Points of the share saved that the reasons from one step to another take away."""
    shares = list(steps(r).values())
    return counted(round(100 * (shares[first] - shares[last]), 1), "points")


def linear_share(r: Records, model: str) -> Counted:
    found = ledger_of(r, model)
    return counted(round(100 * found.num_packed / found.num_parameters), "%")


def freed(r: Records) -> Counted:
    return _mib(_resident(r, "FP32", "model_bytes") - _resident(r, "MXINT8", "model_bytes"))


page.numbers(
    formula=lambda r: counted(round(100 * FORMULA), "%", of=r),
    saved=lambda r: counted(round(100 * list(steps(r).values())[-2]), "%"),
    lost_bits=partial(lost, first=0, last=1),
    lost_kept=partial(lost, first=1, last=2),
    lost_rest=partial(lost, first=2, last=6),
    bits=lambda r: counted(BITS + SCALE_BITS / BLOCK, "bits", of=r),
    linear_share=partial(linear_share, model=LARGE),
    small_share=partial(linear_share, model=DEFAULT),
    small_saved=lambda r: counted(round(100 * ledger_of(r, DEFAULT).saved), "%"),
    kept=lambda r: _mib(ledger_of(r, LARGE).kept_bytes),
    workspaces=lambda r: _mib(sum(WORKSPACES)),
    written=lambda r: _mib(written_out(r, LARGE)),
    spare=lambda r: _mib(spare(r, "MXINT8")),
    peak=lambda r: _mib(peaks(r, "MXINT8")["allocated_bytes"]),
    reported_peak=lambda r: _mib(REPORTED["MXINT8"] * MIB),
    packed_first=lambda r: _mib(peaks(r, PACKED_FIRST)["allocated_bytes"]),
    freed=freed,
    freed_ledger=lambda r: _mib(
        ledger_of(r, DEFAULT).dense_bytes - ledger_of(r, DEFAULT).packed_bytes
    ),
    live_packed=lambda r: _mib(_resident(r, "MXINT8", "live_bytes")),
    live_written=lambda r: _mib(_resident(r, "MXINT8", "written_out", "live_bytes")),
    resident_peak=lambda r: _mib(_resident(r, "FP32", "peak_bytes")),
    resident_bare=lambda r: _mib(_resident(r, "FP32", "nothing_kept", "peak_bytes")),
    processes=lambda r: len(r.all(what="resident", variant="FP32")),
)


# ---- the toy ------------------------------------------------------------------------------------

FP32, START = "FP32", "mxint8"
WIDTH, BAR, TOP, STEP = 340.0, 30.0, 18.0, 58.0


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The coursework's model in its format; the script shows any other."""
    both = {"in FP32": _row(rows, FP32), "as chosen": _row(rows, START)}
    names = ("dense", "chosen")
    cells = [
        [f'<i class="key part{i}"></i>{part}']
        + [field(f"{n}{i}", _in_mib(row[part])) for n, row in zip(names, both.values())]
        for i, part in enumerate(PARTS)
    ]
    cells.append(["sum", *(field(n, _in_mib(_sum(row))) for n, row in zip(names, both.values()))])
    table = field_table(("MiB", *both), cells)
    svg = f'<div class="beside">{_bars(both)}{table}</div>\n{says(_said(rows))}'
    return [Panel(title="", svg=svg, folded=False)]


def _row(rows: Sequence[Row], name: str) -> Row:
    return next(row for row in rows if (row["model"], row["format"]) == (LARGE, name))


def _sum(row: Row) -> int:
    return sum(row[part] for part in PARTS)


def _in_mib(num_bytes: float) -> str:
    return number(round(num_bytes / MIB) if num_bytes >= 100 * MIB else num_bytes / MIB)


def _said(rows: Sequence[Row]) -> str:
    """The script has the same words."""
    dense, packed = _row(rows, FP32), _row(rows, START)
    of, whole = _sum(packed), _sum(dense)
    return (
        f"{packed['model']}, Linear weights packed in {packed['format']} at {packed['bits']:g} "
        f"bits each: {_in_mib(of)} MiB instead of {_in_mib(whole)} MiB. The packed weights shrink "
        f"by {per_cent(1 - packed[PACKED] / dense[PACKED])}, the sum by {per_cent(1 - of / whole)}."
    )


def _bars(both: Mapping[str, Row]) -> str:
    """Each model as a bar of its parts, all on the scale of the first."""
    whole = _sum(next(iter(both.values())))
    drawn: list[str] = []
    for j, (name, row) in enumerate(both.items()):
        top, left = TOP + j * STEP, 0.0
        drawn.append(f'<text class="note" x="0" y="{top - 6:g}">{name}</text>')
        for i, part in enumerate(PARTS):
            width = WIDTH * row[part] / whole
            drawn.append(
                f'<rect class="part{i}" data-bar="{j}" x="{left:.1f}" y="{top:g}" '
                f'width="{width:.1f}" height="{BAR:g}"/>'
            )
            left += width
    return (
        f'<svg class="graph" viewBox="0 0 {WIDTH:g} {TOP + STEP + BAR + 2:g}" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )


@page.drawing(panels=_panels, alt=_said, script="memory", reads=("formats",))
def calculator(r: Records) -> Sequence[Row]:
    """A row for each stored model and format, FP32 first, then by bits a value."""
    bits: Mapping[str, float] = {START: BITS + SCALE_BITS / BLOCK}
    for record in r.of("formats"):
        bits = {n: f["bits"] for n, f in record.values["formats"].items() if "moved" not in f}
    rows: list[Row] = []
    for model in (LARGE, DEFAULT):
        num_packed, held = ledger_of(r, model).num_packed, parts_of(r, model, "MXINT8")
        rows.append({"model": model, "format": FP32, "bits": 32.0, **parts_of(r, model, "FP32")})
        rows += [
            {"model": model, "format": name, "bits": of}
            | {**held, PACKED: round(num_packed * of / 8)}
            for name, of in sorted(bits.items(), key=lambda item: (item[1], item[0]))
        ]
    return rows


# ---- chart and tables ---------------------------------------------------------------------------


@page.chart
def savings(r: Records) -> Chart:
    found = steps(r)
    causes = ("wider mantissas", KEPT, LIVE, SPACES, WRITTEN, SPARE)
    reasons, shares = list(found)[:-1], list(found.values())
    rows: list[Row] = [{"counted": reasons[0], "still saved": shares[0]}]
    for reason, cause, (last, share) in zip(reasons[1:], causes, pairwise(shares)):
        rows.append({"counted": reason, "still saved": share, cause: last - share})
    rows.append({"counted": list(found)[-1], "still saved": shares[-1]})
    every = ("still saved", *causes)
    return Chart(
        [{"counted": row["counted"], **{name: row.get(name) for name in every}} for row in rows],
        x=percent("memory saved", column="still saved"),
        y=category("counted", "counted, one more each"),
        marks=bars(*every, stacked=True),
    )


@page.table
def reasons(r: Records) -> Sequence[Row]:
    """The share saved, and by how much each reason changes it."""
    exact = steps(r)
    found = {reason: round(100 * share, 1) for reason, share in exact.items()}
    changes = numbers([b - a for a, b in pairwise(found.values())], sign=True, places=1)
    changes = ["–", *(change.replace("+0.0", "0.0") for change in changes)]
    return [
        {
            "counted, one reason more each": reason,
            "saved": f"{share:.1f} %",
            "change (points)": change,
            "left of the report's FP32 peak (MiB)": round((1 - exact[reason]) * REPORTED["FP32"]),
        }
        for (reason, share), change in zip(found.items(), changes)
    ]


@page.table
def gpu_peaks(r: Records) -> Sequence[Row]:
    """DeBERTa-xlarge's peaks: simulated, on a GPU where one has run it, and reported."""
    on_gpu = next(iter(r.where(what="cuda")), None)
    rows: list[Row] = []
    for kind in (*REPORTED, PACKED_FIRST):
        row: dict[str, Any] = {
            "weights": kind,
            "asked for, simulated (MiB)": round(peaks(r, kind)["requested_bytes"] / MIB),
            "held, simulated (MiB)": round(peaks(r, kind)["allocated_bytes"] / MIB),
        }
        if on_gpu:
            measured = on_gpu.values[kind]["allocated_bytes"]
            row[f"held, on {on_gpu.run.device} (MiB)"] = round(measured / MIB)
        rows.append({**row, "reported (MiB)": REPORTED.get(kind, "none")})
    return rows
