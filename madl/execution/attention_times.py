"""The records of timed attention: forms, dtypes and problems, and how one is held against another.

`attention` makes them. A form is a way to compute the same function; a line or a row that did not
run on a device is left empty.
"""

from collections.abc import Iterable
from typing import Any

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


def said(variant: str) -> str:
    form, _, dtype = variant.partition(" ")
    return f"{form} attention in {DTYPES[dtype]}"


def of_longest(r: Records, device: str) -> Judged:
    """FP32 at the longest sequence that the naive form still reaches in time and memory."""
    record = r.one(kind="time", device=device, dtype="float32")
    have = record.values["measurements"]
    both = [n for n in str(record.case.params["lengths"]).split() if f"naive {n}" in have]
    fused = [f"{form} {n}" for n in both[-1:] for form in FUSED if f"{form} {n}" in have]
    if not fused:
        raise Pending(f"{device}, both forms")
    arms = of(record, fused[0], "fused attention"), of(record, f"naive {both[-1]}", "naive")
    return faster(*arms, f"in FP32 on the {record.place} at {int(both[-1]):,} positions")


def by_length(rows: Iterable[dict[str, Any]], y: Axis, *more: Mark) -> Chart:
    """A line a form, a panel a device and dtype; a form that did not run has an empty cell."""
    given = list(rows)
    forms = [title for title in FORMS.values() if any(title in row for row in given)]
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
