"""The records of timed attention: forms, dtypes and problems, and how one is held against another.

`attention_study` makes them. A form is a way to compute the same function; a line or a row that did
not run on a device is left empty.
"""

import math
from collections.abc import Iterable
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import TimedArm, timed
from madl.logbook.charts import Axis, Chart, Mark, doubling, line
from madl.logbook.claims import Judged, faster
from madl.logbook.records import Pending, Record, Records, Row

FORMS = {
    "naive": "naive",
    "tuned": "tuned",
    "math": "SDPA math",
    "flash": "SDPA flash",
    "efficient": "SDPA efficient",
    "cudnn": "SDPA cuDNN",
}
FUSED = ("flash", "cudnn", "efficient")  # the first that a device has for a problem
WITH_MEMORY = {form: title for form, title in FORMS.items() if form != "tuned"}
DTYPES = {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}
PROBLEMS = {  # of the variants: what is computed, and the dtype where it is not the case's
    "no mask": ("forward, no mask", ""),
    "causal": ("forward, causal mask", ""),
    "padding": ("forward, padding mask", ""),
    "and backward": ("forward and backward", ""),
    "BF16 and backward": ("forward and backward", "bfloat16"),
}
SAID = {  # what a form is called in a sentence that stands alone
    "naive": "naive attention (its formula written out)",
    "tuned": "attention written out with care (the product scales, memory is kept)",
    **{form: f"torch's fused attention ({FORMS[form]})" for form in FUSED},
}
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
    return [title for form, title in WITH_MEMORY.items() if form not in have]


def tried(row: Row) -> bool:
    """Whether this call had a kernel, and so met the limit."""
    return "peak_bytes" in row or row["missing"] == SHORT


def in_scores(r: Records) -> str:
    """What each form holds, in matrices of one score for every pair of positions, in words."""
    ok = [x for x in held(r, dtype="float32") if x["device"] == "CPU" and "peak_bytes" in x]
    at = max(x["length"] for x in ok if x["form"] == "naive")
    each = [(x["peak_bytes"] / x["score_bytes"], x["form"]) for x in ok if x["length"] == at]
    return ", ".join(f"{FORMS[form]} {stats.number(count)}" for count, form in each) + (
        f" ({at:,} positions)"
    )


def where_it_ends(r: Records) -> tuple[str, int]:
    """Up to what length FP32 runs under the CPU's limit, in words; of how many calls."""
    calls = [x for x in held(r, dtype="float32") if x["device"] == "CPU" and tried(x)]
    short = [x["length"] for x in calls if x["form"] == "naive" and "missing" in x]
    fused = max(x["length"] for x in calls if x["form"] in FUSED and "peak_bytes" in x)
    how = f"runs out of memory at {short[0]:,} positions" if short else "does not run out"
    record = r.of("lab4_attention").one(kind="memory", device="cpu")
    text = (
        f"With {calls[0]['limit']:g} GiB to spare on this CPU, naive attention in FP32 "
        f"({shape_of(record)}) {how}; the fused form runs at {fused:,}, the longest tried"
    )
    return text, len(calls)


def grown(r: Records) -> str:
    """How memory and time of naive and fused grow on the CPU in FP32, in words.

    From the shortest to the longest length at which the naive form has both.
    """
    record = fp32(r, "cpu")
    rows = [x for x in held(r, dtype="float32") if x["device"] == record.place]
    peaks = {(x["form"], x["length"]): x["peak_bytes"] for x in rows if "peak_bytes" in x}
    have = record.values["measurements"]
    lengths = sorted(n for form, n in peaks if form == "naive" and f"naive {n}" in have)
    if len(lengths) < 2:
        raise Pending("two lengths of the naive form")
    low, high = lengths[0], lengths[-1]
    each: list[str] = []
    for form in ("naive", "tuned", *FUSED):
        if not {f"{form} {low}", f"{form} {high}"} <= have.keys():
            continue
        pairs = (stats.log_medians(of(record, f"{form} {n}").samples_s) for n in (low, high))
        ratios = [math.exp(long - short) for short, long in zip(*pairs, strict=True)]
        name = f"fused ({FORMS[form]})" if form in FUSED else form
        memory = ""
        if {(form, low), (form, high)} <= peaks.keys():
            memory = f"{stats.number(peaks[form, high] / peaks[form, low])} × the memory and "
        least, most = stats.number(min(ratios)), stats.number(max(ratios))
        each.append(f"{name} takes {memory}{least} to {most} × the time")
    scores = f"{(high // low) ** 2:,} × the scores"
    return f"{high:,} positions against {low:,} ({shape_of(record)}; {scores}): {'; '.join(each)}"


def shape_of(record: Record, positions: int | None = None) -> str:
    """Batch and heads, and of a case of one length its positions too."""
    p = record.case.params
    at = positions or p.get("length")
    return f"batch {p['batch']}, {p['heads']} heads" + (f", {at:,} positions" if at else "")


def said(variant: str) -> str:
    form, _, dtype = variant.partition(" ")
    return f"{form} attention in {DTYPES[dtype]}"


def at_course(r: Records) -> str:
    """How many times as fast fused is at the notebook's shape on the CPU, in words."""
    rows = [row for row in against_naive(r, "dtypes") if row["device"] == "CPU"]
    if not rows:
        raise Pending("both forms at the notebook's shape")
    shape = shape_of(r.of("lab4_attention").one(kind="dtypes", device="cpu"))
    rivals = {"naive": "as fast as naive", "tuned": "as the same formula written out with care"}
    timed = [rival for rival in rivals if all(rival in row for row in rows)]
    ratios = [" and ".join(f"{row[rival] / row['fused']:i}" for rival in timed) for row in rows]
    each = "; ".join(f"{row['dtype']} {said}" for row, said in zip(rows, ratios, strict=True))
    fastest: list[str] = []
    for row in rows:
        form = min(("fused", *timed), key=lambda one: row[one].median_s)
        fastest.append(f"{row[form]} in {row['dtype']} ({form})")
    return (
        f"At the notebook's shape ({shape}) on this CPU, torch's fused attention is so many times "
        f"{', and '.join(rivals[rival] for rival in timed)}: {each}. The fastest form takes "
        f"{', '.join(fastest)} a call"
    )


def fp32(r: Records, device: str) -> Record:
    """The times of all forms in FP32, by length."""
    return r.of("lab4_attention").one(kind="time", device=device, dtype="float32")


def longest(record: Record, *forms: str) -> int:
    """The longest length at which all of these were timed. Raises: Pending: there is none."""
    have = record.values["measurements"]
    lengths = [int(n) for n in str(record.case.params["lengths"]).split()]
    found = [n for n in lengths if all(f"{form} {n}" in have for form in forms)]
    if not found:
        raise Pending(f"{record.place}, {' and '.join(forms)}")
    return found[-1]


def fused_in(record: Record) -> str:
    """The fused form that was timed there. Raises: Pending: there is none."""
    have = {name.partition(" ")[0] for name in record.values["measurements"]}
    if not (found := [form for form in FUSED if form in have]):
        raise Pending(f"{record.place}, a fused form")
    return found[0]


def of_longest(r: Records, device: str, form: str, rival: str) -> Judged:
    """One form against another in FP32 at the longest sequence at which both were timed."""
    record = fp32(r, device)
    form = form if form in FORMS else fused_in(record)
    at = longest(record, form, rival)
    one, other = (of(record, f"{name} {at}", SAID[name]) for name in (form, rival))
    made = faster(one, other, f"in FP32 on the {record.place} ({shape_of(record, at)})")
    between = f"tuned {at}"
    if rival == "naive" and form != "tuned" and between in record.values["measurements"]:
        tuned = of(record, between, SAID["tuned"])
        return made.beside(f"beside them, {tuned.label} takes {tuned}")
    return made


def time_rows(r: Records) -> Iterable[Row]:
    """Times by length, of every device and dtype."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for record in ran(r, "time"):
        panel = f"{record.place}, {DTYPES[str(record.case.params['dtype'])]}"
        for name in record.values["measurements"]:
            form, _, length = name.partition(" ")
            row = rows.setdefault((panel, int(length)), {"panel": panel, "positions": int(length)})
            row[FORMS[form]] = of(record, name)
    return rows.values()


def memory_rows(r: Records) -> Iterable[Row]:
    """Peak memory and its limit by length, of every device and dtype."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for x in held(r):
        panel, length = f"{x['device']}, {DTYPES[x['dtype']]}", x["length"]
        begun = {"panel": panel, "positions": length, "limit": x["limit"] * 2**30}
        row = rows.setdefault((panel, length), begun)
        row[FORMS[x["form"]]] = x.get("peak_bytes")
    return rows.values()


def chosen_rows(r: Records) -> list[Row]:
    """The forms that torch picks, for each device, mask and dtype."""
    rows: list[Row] = []
    for record in ran(r, "correct"):
        picked: list[Row] = record.values["chosen"]
        for mask in dict.fromkeys(one["mask"] for one in picked):
            row: dict[str, Any] = {"device": record.place, "mask": mask}
            for dtype, title in DTYPES.items():
                forms = {o["form"] for o in picked if (o["mask"], o["dtype"]) == (mask, dtype)}
                row[title] = " or ".join(FORMS.get(form, "another") for form in sorted(forms))
            rows.append(row)
    return rows


def by_length(rows: Iterable[Row], y: Axis, *more: Mark) -> Chart:
    """A line a form, a panel a device and dtype; a form that did not run has an empty cell."""
    given = sorted(rows, key=lambda row: row["positions"])
    forms = [t for t in FORMS.values() if any(row.get(t) is not None for row in given)]
    whole = [{**dict.fromkeys(forms), **row} for row in given]
    marks = [*(line(title) for title in forms), *more]
    return Chart(whole, x=doubling("positions"), y=y, marks=marks, facet="panel")


def against_naive(r: Records, kind: str) -> list[Row]:
    """A row for each problem of which both forms ran, and of the tuned form where it did."""
    rows: list[Row] = []
    for record in ran(r, kind):
        have = record.values["measurements"]
        for name in (*DTYPES, *PROBLEMS):
            if f"naive {name}" not in have or f"fused {name}" not in have:
                continue
            forms = [form for form in ("naive", "tuned", "fused") if f"{form} {name}" in have]
            arms = {form: of(record, f"{form} {name}") for form in forms}
            speed_ups = {f"fused over {rival}": arms[rival] / arms["fused"] for rival in forms[:-1]}
            rows.append({"device": record.place, **_problem(record, name), **arms, **speed_ups})
    return rows


def _problem(record: Record, name: str) -> Row:
    """Which problem a variant is, where it is one of several at one shape."""
    if name in DTYPES:
        return {"dtype": DTYPES[name]}
    what, dtype = PROBLEMS[name]
    dtype = DTYPES[dtype or str(record.case.params["dtype"])]
    return {"problem": what, "dtype": dtype, "shape": shape_of(record)}
