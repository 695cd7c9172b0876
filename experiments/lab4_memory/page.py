"""Question 4.3d: why packing saves less memory than the formula says, counted part by part.

The ledger predicts from the parameter list: of the default model, and of DeBERTa-xlarge from its
configuration alone. For DeBERTa-xlarge the course's notebook gives a GPU's two peaks; what it ran
is simulated with a model of the GPU's allocator, and run on a GPU where there is one. The default
model is measured as it was pretrained, each variant in a process of its own: which weights it has
changes no byte.

Units: bytes, but for `REPORTED`, which is in units of 2^20 bytes like everything that is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any, cast

from madl.logbook.arms import inside
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import per_cent
from madl.machine import memory, replay
from madl.machine.device import no_device
from madl.machine.replay import BLOCK, PACKED_FIRST, WORKSPACES, WRITTEN_BYTES

MIB = 2**20
LARGE, DEFAULT = "DeBERTa-xlarge", "default"
FP32, MXINT8 = "FP32", "MXINT8"
BITS = 8 + 8 / BLOCK  # of a value: its mantissa, and its share of the scale
FORMULA = (4 + 8 / 32) / 32  # what is left, as the coursework writes it
TOKENS = 10  # of the coursework's sentence

# The course's notebook on its model: peak of the GPU's allocator in evaluation, in MiB.
REPORTED = {FP32: 2906.2, MXINT8: 976.2}

page = Experiment(title="Why the memory saved is not the formula's", version=3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    default = {"model": plan.workload["model"], "length": choose(smoke=16, quick=128)}
    yield {"what": "ledger", "of": DEFAULT, **default}
    for repeat in range(choose(smoke=1, quick=3)):
        for variant in choose(smoke=(MXINT8,), quick=(FP32, MXINT8)):
            yield {"what": "resident", "variant": variant, "repeat": repeat, **default}
    for of in choose(smoke=(), quick=(LARGE,)):
        yield {"what": "ledger", "of": of}
    for what in choose(smoke=("cuda",), quick=("replay", "cuda")):
        yield {"what": what, "tokens": TOKENS}


@page.unavailable
def unavailable(params: Params) -> str | None:
    if params["what"] == "resident" and not Path("/proc/self/status").exists():
        return "no /proc here to read resident memory from"
    return no_device({"device": params["what"]}) if params["what"] == "cuda" else None


@page.quick
def quick(params: Params) -> bool:
    """What needs no process of its own."""
    return params["what"] in ("ledger", "replay")


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab4_memory import study

    match params["what"]:
        case "replay":
            return replay.replayed(TOKENS)
        case "cuda":
            return replay.on_gpu(TOKENS)
        case "resident":
            return study.resident(params)
        case _ if params["of"] == LARGE:
            return study.predict(replay.deberta_xlarge())
        case _:
            return study.predict_default(params)


# ---- what the records add up to -----------------------------------------------------------------

PARTS = ("Linear weights", "other parameters", "activations", "workspaces", "written-out weight")
LINEAR, KEPT, LIVE, SPACES, WRITTEN = PARTS
SPARE = "spare in blocks"  # what the allocator hands out beyond what is asked for


def ledger_of(r: Records, model: str) -> memory.Ledger:
    return memory.Ledger(**r.one(what="ledger", of=model).values["ledger"])


def peaks(r: Records, kind: str) -> Mapping[str, int]:
    """Bytes that DeBERTa-xlarge asks for and that the allocator takes, at most."""
    return r.one(what="replay").values[kind]


def spare(r: Records, kind: str) -> int:
    return peaks(r, kind)["allocated_bytes"] - peaks(r, kind)["requested_bytes"]


def parts_of(r: Records, model: str, kind: str) -> dict[str, int]:
    """Bytes of each part, without an allocator; MXINT8's with its largest weight written out.

    DeBERTa-xlarge's activations are what is asked for beside all that is known. The default model
    runs on a CPU, which takes no such workspaces; a weight that is written out takes what the
    evaluation then holds more, as measured: activations are fewer at that moment.
    """
    counted, values = ledger_of(r, model), r.one(what="ledger", of=model).values
    weights = counted.dense_bytes if kind == FP32 else counted.packed_bytes
    written = spaces = 0
    live = values["activation_bytes"]
    if model == LARGE:
        spaces = sum(WORKSPACES)
        written = 0 if kind == FP32 else WRITTEN_BYTES * values["largest_weight"]
        live = peaks(r, kind)["requested_bytes"]
        live -= weights + counted.kept_bytes + spaces + written
    elif kind != FP32:
        written = _resident(r, kind, "written_out", "live_bytes") - live
    sizes = (weights, counted.kept_bytes, live, spaces, written)
    return dict(zip(PARTS, sizes, strict=True))


REASON = "reason, added to those above"
REASONS = (
    "the formula, four-bit mantissas",
    "eight-bit mantissas",
    "only Linear weights are packed",
    "activations stay",
    "cuBLAS takes workspaces (assumed)",
    "a weight is written out",
    "the allocator's blocks are larger",
    "the course's notebook, on a GPU",
)


def stages(r: Records, kind: str) -> list[dict[str, float]]:
    """Bytes of each part, from the formula to the peak: each stage counts one reason more."""
    dense, parts = parts_of(r, LARGE, FP32), parts_of(r, LARGE, kind)
    shares = {FP32: (1, 1), MXINT8: (FORMULA, BITS / 32)}[kind]
    every = [*parts.items(), (SPARE, spare(r, kind))]
    return [
        *({name: share * dense[name] for name in (LINEAR, KEPT)} for share in shares),
        *(dict(every[:count]) for count in range(2, len(every) + 1)),
    ]


def steps(r: Records, kind: str) -> list[float]:
    """Bytes at each stage, and of the notebook."""
    return [*(sum(stage.values()) for stage in stages(r, kind)), REPORTED[kind] * MIB]


def added(r: Records) -> list[float]:
    """Bytes that each reason adds to what the formula leaves of MXINT8."""
    *explained, _ = steps(r, MXINT8)
    return [after - before for before, after in pairwise(explained)]


def _resident(r: Records, variant: str, *path: str) -> int:
    """Bytes that the median process of a variant holds."""
    return median_high(inside(one, path) for one in r.all(what="resident", variant=variant))


# ---- numbers ------------------------------------------------------------------------------------


def _mib(num_bytes: float) -> Counted:
    return counted(round(num_bytes / MIB, 1 if num_bytes < 10 * MIB else None), "MiB")


def share(r: Records, model: str) -> Counted:
    """Of the parameters, in Linear weights."""
    found = ledger_of(r, model)
    return counted(round(100 * found.num_packed / found.num_parameters), "%")


def saved(r: Records, step: int, places: int = 0) -> Counted:
    dense, packed = (steps(r, kind)[step] for kind in (FP32, MXINT8))
    return counted(round(100 * (1 - packed / dense), places or None), "%")


def embeddings(r: Records) -> Counted:
    """What packing DeBERTa-xlarge's table of words would save."""
    config = cast("Mapping[str, int]", replay.XLARGE)
    return _mib(config["vocab_size"] * config["hidden_size"] * (32 - BITS) / 8)


page.numbers(
    formula=partial(saved, step=0, places=1),  # as the sheet prints it
    saved=partial(saved, step=-2),
    wider=lambda r: _mib(added(r)[0]),
    kept=lambda r: _mib(added(r)[1]),
    rest=lambda r: _mib(sum(added(r)[2:])),
    lost=lambda r: _mib(sum(added(r))),
    formula_left=lambda r: _mib(steps(r, MXINT8)[0]),
    embeddings=embeddings,
    shrink=lambda r: counted(round(100 * (1 - BITS / 32)), "%", of=r),
    bits=lambda r: counted(BITS, "bits", of=r),
    linear_share=partial(share, model=LARGE),
    small_share=partial(share, model=DEFAULT),
    small_saved=lambda r: counted(round(100 * ledger_of(r, DEFAULT).saved), "%"),
    unpacked=lambda r: _mib(ledger_of(r, LARGE).kept_bytes),
    workspaces=lambda r: _mib(sum(WORKSPACES)),
    written=lambda r: _mib(parts_of(r, LARGE, MXINT8)[WRITTEN]),
    spare=lambda r: _mib(spare(r, MXINT8)),
    peak=lambda r: _mib(peaks(r, MXINT8)["allocated_bytes"]),
    reported_peak=lambda r: _mib(REPORTED[MXINT8] * MIB),
    freed=lambda r: _mib(_resident(r, FP32, "model_bytes") - _resident(r, MXINT8, "model_bytes")),
    freed_ledger=lambda r: _mib(
        ledger_of(r, DEFAULT).dense_bytes - ledger_of(r, DEFAULT).packed_bytes
    ),
    live_packed=lambda r: _mib(_resident(r, MXINT8, "live_bytes")),
    live_written=lambda r: _mib(_resident(r, MXINT8, "written_out", "live_bytes")),
    peak_packed=lambda r: _mib(_resident(r, MXINT8, "peak_bytes")),
    peak_written=lambda r: _mib(_resident(r, MXINT8, "written_out", "peak_bytes")),
    processes=lambda r: len(r.all(what="resident", variant=FP32)),
)


# ---- the toy ------------------------------------------------------------------------------------

START = "mxint8"
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
    size = num_bytes / MIB
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}"


def _said(rows: Sequence[Row]) -> str:
    """The script has the same words."""
    dense, packed = _row(rows, FP32), _row(rows, START)
    of, whole = _sum(packed), _sum(dense)
    return (
        f"{packed['model']}, Linear weights packed in {packed['format']} at {packed['bits']:g} "
        f"bits each: {_in_mib(of)} MiB instead of {_in_mib(whole)} MiB. The packed weights shrink "
        f"by {per_cent(1 - packed[LINEAR] / dense[LINEAR])}, the sum by {per_cent(1 - of / whole)}."
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
    bits: Mapping[str, float] = {START: BITS}
    for record in r.of("formats"):
        bits = {n: f["bits"] for n, f in record.values["formats"].items() if "moved" not in f}
    rows: list[Row] = []
    for model in (LARGE, DEFAULT):
        num_packed, held = ledger_of(r, model).num_packed, parts_of(r, model, MXINT8)
        rows.append({"model": model, "format": FP32, "bits": 32.0, **parts_of(r, model, "FP32")})
        rows += [
            {"model": model, "format": name, "bits": of}
            | {**held, LINEAR: round(num_packed * of / 8)}
            for name, of in sorted(bits.items(), key=lambda item: (item[1], item[0]))
        ]
    return rows


# ---- chart and tables ---------------------------------------------------------------------------


@page.chart
def losses(r: Records) -> Chart:
    """The parts of each stage, in the toy's colours."""
    parts = (*PARTS, SPARE)
    return Chart(
        [
            {REASON: reason}
            | {part: stage[part] / MIB if part in stage else None for part in parts}
            for reason, stage in zip(REASONS, stages(r, MXINT8))
        ],
        x=linear(label="DeBERTa-xlarge in MXINT8", unit="MiB"),
        y=category(REASON),
        marks=bars(*parts, stacked=True),
    )


@page.table
def reasons(r: Records) -> Sequence[Row]:
    return [
        {
            REASON: reason,
            "FP32 (MiB)": round(dense / MIB),
            "MXINT8 (MiB)": round(packed / MIB),
            "saved": f"{100 * (1 - packed / dense):.1f} %",
        }
        for reason, dense, packed in zip(REASONS, steps(r, FP32), steps(r, MXINT8), strict=True)
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
        rows.append(
            {**row, "reported (MiB)": round(REPORTED[kind]) if kind in REPORTED else "none"}
        )
    return rows
