"""The records of timed attention: forms, dtypes and problems, and how one is held against another.

`attention` makes them. A form is a way to compute the same function; a line or a row that did not
run on a device is left empty.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Axis, Chart, Mark, doubling, line
from madl.logbook.claims import Judged, faster
from madl.logbook.records import Pending, Record, Records, Row

FORMS = {
    "naive": "naive",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
}
FUSED = ("flash", "cudnn", "efficient")  # the first that a device has for a problem
PROBLEMS = ("no mask", "causal", "padding", "and backward", "BF16 and backward")
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
SHORT = "out of memory"


def ran(r: Records, kind: str) -> Records:
    """All that ran of one kind, on whatever device. Raises: Pending: nothing did."""
    if not (found := r.of("lab4_attention").where(kind=kind)):
        raise Pending(kind)
    return found


def of(record: Record, variant: str, label: str = "") -> TimedArm:
    """One variant of a case. Raises: Pending: it did not run there."""
    return timed(Records([record]), variant, label)


def held(r: Records, **where: Any) -> list[dict[str, Any]]:
    """The calls whose peak memory was taken, with the device and the limit of each."""
    return [
        {**row, "device": x.place, "limit": x.case.params["limit_gb"]}
        for x in ran(r, "memory")
        for row in x.values["peaks"]
        if all(row[name] == value for name, value in where.items())
    ]


def without_kernel(r: Records, device: str) -> list[str]:
    """The forms that torch has no kernel for there: not one of their calls ran or ran out."""
    have = {x["form"] for x in held(r) if x["device"] == device and tried(x)}
    return [title for form, title in FORMS.items() if form not in have]


def tried(row: Row) -> bool:
    """Whether this call had a kernel, and so met the limit."""
    return "peak_bytes" in row or row["missing"] == SHORT


def where_it_ends(r: Records) -> tuple[str, int]:
    """Up to what length FP32 runs under the CPU's limit, in words; of how many calls."""
    calls = [x for x in held(r, dtype="float32") if x["device"] == "CPU" and tried(x)]
    short = [x["length"] for x in calls if x["form"] == "naive" and "missing" in x]
    fused = max(x["length"] for x in calls if x["form"] in FUSED and "peak_bytes" in x)
    how = f"runs out of memory at {short[0]:,} positions" if short else "does not run out"
    text = (
        f"With {calls[0]['limit']:g} GiB to spare, naive attention in FP32 {how}; the fused form "
        f"runs at {fused:,}, the longest tried"
    )
    return text, len(calls)


def grown(r: Records) -> str:
    """How memory and time of each form grow on the CPU in FP32, in words.

    From the shortest to the longest length at which the naive form has both.
    """
    record = r.one(kind="time", device="cpu", dtype="float32")
    rows = [x for x in held(r, dtype="float32") if x["device"] == record.place]
    peaks = {(x["form"], x["length"]): x["peak_bytes"] for x in rows if "peak_bytes" in x}
    have = record.values["measurements"]
    lengths = sorted(n for form, n in peaks if form == "naive" and f"naive {n}" in have)
    if len(lengths) < 2:
        raise Pending("two lengths of the naive form")
    low, high = lengths[0], lengths[-1]
    each: list[str] = []
    for form in FORMS:
        if not {f"{form} {low}", f"{form} {high}"} <= have.keys() or (form, high) not in peaks:
            continue
        short, long = of(record, f"{form} {low}"), of(record, f"{form} {high}")
        logs = (stats.log_medians(arm.samples_s) for arm in (short, long))
        ratios = [math.exp(y - x) for x, y in zip(*logs, strict=True)]
        each.append(
            f"{FORMS[form]} takes {stats.number(peaks[form, high] / peaks[form, low])} × the memory"
            f" and {stats.number(long.median_s / short.median_s)} × the time "
            f"({stats.number(min(ratios))} to {stats.number(max(ratios))} by process)"
        )
    return f"{high:,} positions against {low:,}: {'; '.join(each)}"


def said(variant: str) -> str:
    form, _, dtype = variant.partition(" ")
    return f"{form} attention in {DTYPES[dtype]}"


def at_course(r: Records) -> str:
    """Times of both forms in each dtype on the CPU, with the range over processes, in words."""
    rows = [row for row in against_naive(r, "dtypes", "dtype") if row["device"] == "CPU"]
    return "; ".join(
        f"{x['dtype']} {x['fused']} ({x['fused'].scatter}) and {x['naive']} "
        f"({x['naive'].scatter}), {x['speed-up']:i}"
        for x in rows
    )


def of_longest(r: Records, device: str) -> Judged:
    """FP32 at the longest sequence that the naive form still reaches in time and memory."""
    record = r.one(kind="time", device=device, dtype="float32")
    have = record.values["measurements"]
    both = [n for n in str(record.case.params["lengths"]).split() if f"naive {n}" in have]
    fused = [f"{form} {n}" for n in both[-1:] for form in FUSED if f"{form} {n}" in have]
    if not fused:
        raise Pending(f"{device}, both forms")
    arms = of(record, fused[0], "fused attention"), of(record, f"naive {both[-1]}", "naive")
    shape = _shape(record, int(both[-1]))
    made = faster(*arms, f"in FP32 on the {record.place} at {shape}")
    more = _at_notebook(r, device)
    return replace(
        made, **{v: getattr(made, v) + more for v in ("supported", "refuted", "undecided")}
    )


def _shape(record: Record, positions: int) -> str:
    p = record.case.params
    return f"{positions:,} positions (batch {p['batch']}, {p['heads']} heads)"


def _at_notebook(r: Records, device: str) -> str:
    """What both forms take in FP32 at the notebook's shape, as the end of a sentence."""
    record = r.one(kind="dtypes", device=device)
    forms = [f"{form} float32" for form in ("fused", "naive")]
    if not all(form in record.values["measurements"] for form in forms):
        return ""
    fused, naive = (of(record, form) for form in forms)
    return (
        f". At {_shape(record, int(record.case.params['length'] or 0))}, the notebook's shape, "
        f"the processes' medians are {fused.scatter} fused and {naive.scatter} naive, which "
        "another claim judges"
    )


def by_length(rows: Iterable[dict[str, Any]], y: Axis, *more: Mark) -> Chart:
    """A line a form, a panel a device and dtype; a form that did not run has an empty cell."""
    given = sorted(rows, key=lambda row: row["positions"])
    forms = [t for t in FORMS.values() if any(row.get(t) is not None for row in given)]
    whole = [{**dict.fromkeys(forms), **row} for row in given]
    marks = [*(line(title) for title in forms), *more]
    return Chart(whole, x=doubling("positions"), y=y, marks=marks, facet="panel")


def against_naive(r: Records, kind: str, what: str) -> list[Row]:
    """A row for each problem of which both forms ran."""
    rows: list[Row] = []
    for record in ran(r, kind):
        have = record.values["measurements"]
        for name in (*DTYPES, *PROBLEMS):
            if f"naive {name}" in have and f"fused {name}" in have:
                naive, fused = of(record, f"naive {name}"), of(record, f"fused {name}")
                row = {"device": record.place, what: DTYPES.get(name, name)}
                rows.append({**row, "naive": naive, "fused": fused, "speed-up": naive / fused})
    return rows
