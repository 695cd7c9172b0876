"""Question 4.3d: why packing saves less memory than the formula says, counted part by part.

The ledger predicts from the parameter list: of the default model, and of DeBERTa-xlarge from its
configuration alone. For DeBERTa-xlarge the course's notebook gives a GPU's two peaks; what it ran
is simulated with a model of the GPU's allocator, and run on a GPU where there is one. The default
model is measured as it was pretrained, each variant in a process of its own: which weights it has
changes no byte.

Units: bytes; everything that is shown is in units of 2^20 bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

from experiments.lab4_memory import design
from experiments.lab4_memory.design import (
    DEFAULT,
    FP32,
    LARGE,
    MIB,
    MXINT8,
    PACKED_FIRST,
    VALUE_BITS,
)
from experiments.lab4_memory.ledger import Ledger
from madl.logbook.arms import value_at
from madl.logbook.charts import Chart, bars, category, linear
from madl.logbook.drawing import Panel, field, field_table, says
from madl.logbook.experiment import Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, exact, percentage
from madl.logbook.records import Params, Records, Row
from madl.logbook.values import per_cent
from madl.machine.device import no_device

page = Experiment(version=3)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    default = {"model": plan.workload["model"], "length": choose(smoke=16, quick=design.LENGTH)}
    yield {"what": "ledger", "of": DEFAULT, **default}
    for repeat in range(choose(smoke=1, quick=design.REPEATS)):
        for variant in choose(smoke=(MXINT8,), quick=(FP32, MXINT8)):
            yield {"what": "resident", "variant": variant, "repeat": repeat, **default}
    for model in choose(smoke=(), quick=(LARGE,)):
        yield {"what": "ledger", "of": model}
    for kind in choose(smoke=("cuda",), quick=("replay", "cuda")):
        yield {"what": kind, "tokens": design.TOKENS}


@page.unavailable
def unavailable(params: Params) -> str | None:
    if params["what"] == "resident" and not Path("/proc/self/status").exists():
        return "no /proc here to read resident memory from"
    return no_device({"device": params["what"]}) if params["what"] == "cuda" else None


page.quick(lambda params: params["what"] in ("ledger", "replay"))  # without processes


PARTS = ("Linear weights", "other parameters", "activations", "workspaces", "written-out weight")
LINEAR, KEPT, LIVE, SPACES, WRITTEN = PARTS
SPARE = "spare in blocks"  # handed out beyond what is asked for


def ledger_of(r: Records, model: str) -> Ledger:
    return Ledger(**r.single(what="ledger", of=model).values["ledger"])


def peaks(r: Records, kind: str) -> Mapping[str, int]:
    """Peaks of DeBERTa-xlarge, simulated: bytes requested of the allocator, and bytes allocated."""
    return r.single(what="replay").values[kind]


def allocated(r: Records, kind: str) -> int:
    return peaks(r, kind)["allocated_bytes"]


def spare(r: Records, kind: str) -> int:
    """Simulated peak bytes that the allocator takes beyond those that are requested."""
    return allocated(r, kind) - peaks(r, kind)["requested_bytes"]


def parts_of(r: Records, model: str, kind: str) -> dict[str, int]:
    """Part → bytes without an allocator's blocks; MXINT8's with its largest weight written out.

    DeBERTa-xlarge's activations are what is requested beside all that is known. The default model
    runs on a CPU, which takes no such workspaces; its written-out weight takes what the measured
    peak rises by, as activations are fewer at that moment.
    """
    ledger, values = ledger_of(r, model), r.single(what="ledger", of=model).values
    weights = ledger.dense_bytes if kind == FP32 else ledger.packed_bytes
    written = spaces = 0
    live = values["activation_bytes"]
    if model == LARGE:
        spaces = sum(design.WORKSPACES)
        written = 0 if kind == FP32 else design.WRITTEN_BYTES * values["largest_weight"]
        live = peaks(r, kind)["requested_bytes"]
        live -= weights + ledger.kept_bytes + spaces + written
    elif kind != FP32:
        written = resident(r, kind, "written_out", "live_bytes") - live
    sizes = (weights, ledger.kept_bytes, live, spaces, written)
    return dict(zip(PARTS, sizes, strict=True))


REASON = "reason, added to those above"
REASONS = (
    "the sheet's formula, four-bit mantissas",
    "the notebook's, eight-bit mantissas",
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
    shares = {FP32: (1, 1), MXINT8: (design.FORMULA_SHARE, VALUE_BITS / 32)}[kind]
    sizes = [*parts.items(), (SPARE, spare(r, kind))]
    return [
        *({name: share * dense[name] for name in (LINEAR, KEPT)} for share in shares),
        *(dict(sizes[:count]) for count in range(2, len(sizes) + 1)),
    ]


def steps(r: Records, kind: str) -> list[float]:
    """Bytes at each of the stages, and those that the course's notebook reports."""
    return [*(sum(stage.values()) for stage in stages(r, kind)), design.REPORTED_MIB[kind] * MIB]


def added(r: Records) -> list[float]:
    """Bytes that each reason adds to what the formula leaves of MXINT8."""
    *explained, _ = steps(r, MXINT8)
    return [after - before for before, after in pairwise(explained)]


def resident(r: Records, variant: str, *path: str) -> int:
    """A value in bytes by its path of keys in a variant's records: the median process's."""
    return median_high(value_at(record, path) for record in r.all(what="resident", variant=variant))


def mib(compute: Callable[[Records], float]) -> NumberFn:
    """A function that reads a number of bytes, in MiB."""

    def read(r: Records) -> ExactValue:
        size = compute(r) / MIB
        return exact(round(size, 1 if size < 10 else None), unit="MiB")

    return read


def resident_mib(variant: str, *path: str) -> NumberFn:
    return mib(lambda r: resident(r, variant, *path))


def packed_share(r: Records, model: str) -> ExactValue:
    """The share of a model's parameters that are Linear weights."""
    ledger = ledger_of(r, model)
    return percentage(ledger.num_packed / ledger.num_parameters, ())


def saved(r: Records, step: int, places: int = 0) -> ExactValue:
    """The share of FP32's bytes that MXINT8 saves at one of `steps`, in %."""
    dense, packed = (steps(r, kind)[step] for kind in (FP32, MXINT8))
    return exact(round(100 * (1 - packed / dense), places or None), unit="%")


def embeddings(r: Records) -> float:
    """Bytes that packing DeBERTa-xlarge's word embeddings would save."""
    config: Mapping[str, Any] = design.XLARGE
    return config["vocab_size"] * config["hidden_size"] * (32 - VALUE_BITS) / 8


def freed_by_ledger(r: Records) -> int:
    """Bytes by which the default model's Linear weights shrink."""
    ledger = ledger_of(r, DEFAULT)
    return ledger.dense_bytes - ledger.packed_bytes


page.numbers(
    sheet=partial(saved, step=0, places=1),  # as the sheet prints it
    formula=partial(saved, step=1, places=1),  # and the notebook
    saved=partial(saved, step=-2),
    notebook_saved=partial(saved, step=-1, places=1),
    kept=mib(lambda r: added(r)[1]),
    rest=mib(lambda r: sum(added(r)[2:])),
    lost=mib(lambda r: sum(added(r)[1:])),
    formula_left=mib(lambda r: steps(r, MXINT8)[1]),
    embeddings=mib(embeddings),
    shrink=lambda r: percentage(1 - VALUE_BITS / 32, r),
    bits=lambda r: exact(VALUE_BITS, r, "bits"),
    linear_share=partial(packed_share, model=LARGE),
    small_share=partial(packed_share, model=DEFAULT),
    small_saved=lambda r: percentage(ledger_of(r, DEFAULT).saved, ()),
    unpacked=mib(lambda r: ledger_of(r, LARGE).kept_bytes),
    workspaces=mib(lambda r: sum(design.WORKSPACES)),
    written=mib(lambda r: parts_of(r, LARGE, MXINT8)[WRITTEN]),
    packed_before=mib(lambda r: allocated(r, MXINT8) - allocated(r, PACKED_FIRST)),
    spare=mib(lambda r: spare(r, MXINT8)),
    peak=mib(partial(allocated, kind=MXINT8)),
    reported_peak=mib(lambda r: design.REPORTED_MIB[MXINT8] * MIB),
    freed=mib(lambda r: resident(r, FP32, "model_bytes") - resident(r, MXINT8, "model_bytes")),
    freed_ledger=mib(freed_by_ledger),
    live_packed=resident_mib(MXINT8, "live_bytes"),
    live_written=resident_mib(MXINT8, "written_out", "live_bytes"),
    peak_packed=resident_mib(MXINT8, "peak_bytes"),
    peak_written=resident_mib(MXINT8, "written_out", "peak_bytes"),
    processes=lambda r: len(r.all(what="resident", variant=FP32)),
)


# ---- the toy ------------------------------------------------------------------------------------

START = "mxint8"
WIDTH, BAR, TOP, STEP = 340.0, 30.0, 18.0, 58.0


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel: DeBERTa-xlarge in MXINT8 and FP32; the page's script shows any other."""
    both = {"in FP32": _row(rows, FP32), "as chosen": _row(rows, START)}
    names = ("dense", "chosen")
    cells = [
        [f'<i class="key part{i}"></i>{part}']
        + [field(f"{n}{i}", _in_mib(row[part])) for n, row in zip(names, both.values())]
        for i, part in enumerate(PARTS)
    ]
    cells.append(["sum", *(field(n, _in_mib(_sum(row))) for n, row in zip(names, both.values()))])
    table = field_table(("MiB", *both), cells)
    svg = f'<div class="beside">{_bars(both)}{table}</div>\n{says(_sentence(rows))}'
    return [Panel(title="", svg=svg, folded=False)]


def _row(rows: Sequence[Row], name: str) -> Row:
    """The row of DeBERTa-xlarge in a format."""
    return next(row for row in rows if (row["model"], row["format"]) == (LARGE, name))


def _sum(row: Row) -> int:
    return sum(row[part] for part in PARTS)


def _in_mib(num_bytes: float) -> str:
    size = num_bytes / MIB
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}"


def _sentence(rows: Sequence[Row]) -> str:
    """A sentence on what is drawn; the page's script has the same words."""
    dense, packed = _row(rows, FP32), _row(rows, START)
    part, whole = _sum(packed), _sum(dense)
    return (
        f"{packed['model']}, Linear weights packed in {packed['format']} at {packed['bits']:g} "
        f"bits each: {_in_mib(part)} MiB instead of {_in_mib(whole)} MiB. The packed weights "
        f"shrink by {per_cent(1 - packed[LINEAR] / dense[LINEAR])}, "
        f"the sum by {per_cent(1 - part / whole)}."
    )


def _bars(both: Mapping[str, Row]) -> str:
    """SVG with a bar of parts for each row, all on the scale of the first."""
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


@page.drawing(panels=_panels, alt=_sentence, script="memory", reads=("formats",))
def calculator(r: Records) -> Sequence[Row]:
    """A row of bytes by part for each stored model and format, FP32 first, then by bits a value."""
    bits: Mapping[str, float] = {START: VALUE_BITS}
    for record in r.of_experiment("formats").without("library"):
        bits = {n: f["bits"] for n, f in record.values["formats"].items()}
    rows: list[Row] = []
    for model in (LARGE, DEFAULT):
        num_packed, packed = ledger_of(r, model).num_packed, parts_of(r, model, MXINT8)
        rows.append({"model": model, "format": FP32, "bits": 32.0, **parts_of(r, model, FP32)})
        rows += [
            {"model": model, "format": name, "bits": width}
            | {**packed, LINEAR: round(num_packed * width / 8)}
            for name, width in sorted(bits.items(), key=lambda item: (item[1], item[0]))
        ]
    return rows


@page.chart
def losses(r: Records) -> Chart:
    """MiB of each part, from the formula to the peak, with one reason more in each row."""
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
    """MiB of FP32 and of MXINT8, and what is saved, with one reason more in each row."""
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
    place = on_gpu.run.device if on_gpu else "a CUDA GPU"
    rows: list[Row] = []
    for kind in (*design.REPORTED_MIB, design.PACKED_FIRST):
        simulated, measured = peaks(r, kind), on_gpu and on_gpu.values[kind]["allocated_bytes"]
        rows.append(
            {
                "weights": kind,
                "asked for, simulated (MiB)": round(simulated["requested_bytes"] / MIB),
                "held, simulated (MiB)": round(simulated["allocated_bytes"] / MIB),
                f"held, on {place} (MiB)": measured and round(measured / MIB),
                "reported (MiB)": round(design.REPORTED_MIB.get(kind, 0)) or "none",
            }
        )
    return rows
