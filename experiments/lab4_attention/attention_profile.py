"""Where a call of attention spends its time: its steps, pages faulted in, and a roofline.

A roofline holds each form against what the machine reached when it did nothing else: its rate of
products, or its rate of copying times the operations that a form has for each byte it moves. Both
are read from the records of the experiment `machine`, the fastest sample of each.

Source: Williams, Waterman, Patterson 2009, CACM 52:65. Units: Gop/s; operations a byte.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from experiments.lab4_attention.attention_problem import Problem
from experiments.lab4_attention.attention_times import FORMS, fp32, fused_in, longest, of, shape_of
from madl.execution.ceilings import rates
from madl.logbook.charts import Chart, line, log, points
from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import number, per_cent

STEPS = ("first product", "scale", "softmax", "second product")
PRODUCTS = ("first product", "second product")
NOT_COUNTED = "–"  # on a GPU, whose memory the system does not map page by page
MEANS = "geometric means, over processes, of medians"
INTENSITY, SPEED, CEILING = "operations a byte", "reached", "the machine's ceilings"


# ---- the roofline -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What a device reaches at most."""

    copy: float  # GB/s
    product: float  # Gop/s

    @property
    def ridge(self) -> float:
        """Operations a byte from which on products are the limit."""
        return self.product / self.copy

    def at(self, intensity: float) -> float:
        """Gop/s."""
        return min(self.product, self.copy * intensity)


def roof_of(r: Records, device: str) -> Roof:
    """Raises: Pending: this machine's ceilings are not measured."""
    machine = r.of("machine").one(device=device)
    copy, product = (max(rates(machine, work)) / 1e9 for work in ("copy", "fp32"))
    return Roof(copy=copy, product=product)


def reached(record: Record, form: str, length: int) -> tuple[float, float]:
    """Operations a byte that the form has there, and the Gop/s it does."""
    p: Any = record.case.params
    problem = Problem(
        batch=p["batch"], heads=p["heads"], length=length, head_dim=p["head_dim"], dtype=p["dtype"]
    )
    seconds = of(record, f"{form} {length}").median_s
    return problem.flops / problem.moved_bytes(form), problem.flops / seconds / 1e9


def roofline(r: Records) -> Chart:
    """A point a form and length, under the two ceilings; a panel a device that has both."""
    rows = _roof_rows(r, "cpu")
    with suppress(Pending):
        rows += _roof_rows(r, "cuda")
    return Chart(
        rows,
        x=log(INTENSITY),
        y=log(label="speed", unit="Gop/s"),
        marks=[line(CEILING, markers=False), points(SPEED, text="positions", by="form")],
        facet="device" if len({row["device"] for row in rows}) > 1 else None,
    )


def _roof_rows(r: Records, device: str) -> list[dict[str, Any]]:
    """Raises: Pending: the device's ceilings are not measured, or no form."""
    record, roof = fp32(r, device), roof_of(r, device)
    have, of_it = record.values["measurements"], {"device": record.place}
    rows: list[dict[str, Any]] = []
    for form in ("naive", "tuned", fused_in(record)):
        for n in map(int, str(record.case.params["lengths"]).split()):
            if f"{form} {n}" in have:
                intensity, speed = reached(record, form, n)
                row = {**of_it, "form": FORMS[form], "positions": f"{n:,}"}
                rows.append({**row, INTENSITY: intensity, SPEED: speed})
    if not rows:
        raise Pending(f"{record.place}, any form")
    every = [row[INTENSITY] for row in rows]
    ends = {min(*every, roof.ridge), roof.ridge, max(*every, roof.ridge)}
    return rows + [{**of_it, INTENSITY: x, CEILING: roof.at(x)} for x in sorted(ends)]


def of_the_roof(r: Records, device: str) -> str:
    """How much of what the ceilings allow each form reaches at the longest sequence, in words."""
    record, roof = fp32(r, device), roof_of(r, device)
    forms = ("naive", "tuned", fused_in(record))
    at = longest(record, *forms)
    each: list[str] = []
    for form in forms:
        intensity, speed = reached(record, form, at)
        each.append(
            f"{FORMS[form]} has {number(intensity)} operations a byte and reaches "
            f"{number(speed)} Gop/s, {per_cent(speed / roof.at(intensity))} of what they allow it"
        )
    return (
        f"In FP32 on the {record.place} ({shape_of(record, at)}), whose ceilings are "
        f"{number(roof.product)} Gop/s of products and {number(roof.copy)} GB/s of copying and "
        f"meet at {number(roof.ridge)} operations a byte: {'; '.join(each)}"
    )


# ---- the steps of the naive form ----------------------------------------------------------------


def step_rows(r: Records) -> list[Row]:
    """Each step of the naive form alone, and the whole; of all devices that were taken apart."""
    rows: list[Row] = []
    for record in r.of("lab4_attention").where(kind="profile"):
        have, faults = record.values["measurements"], record.values["faults"]
        for name in (*STEPS, "naive"):
            if name in have:
                arm = of(record, name)
                share = arm.median_s / of(record, "naive").median_s
                row: dict[str, Any] = {"device": record.place, "shape": shape_of(record)}
                row["step"] = "all of it" if name == "naive" else name
                row |= {"time": arm, "of a whole call": per_cent(share)}
                rows.append({**row, "pages faulted in": faults.get(name, NOT_COUNTED)})
    if not rows:
        raise Pending("a naive form taken apart")
    return rows


def taken_apart(r: Records) -> Record:
    """The case of the CPU. Raises: Pending: the naive form did not run there."""
    record = r.of("lab4_attention").one(kind="profile", device="cpu")
    if "naive" not in record.values["measurements"]:
        raise Pending("the naive form")
    return record


def where_time_goes(r: Records) -> str:
    """What share of a naive call its products take, and what lies between them, in words."""
    record = taken_apart(r)
    whole = of(record, "naive").median_s
    products, others = (
        sum(of(record, step).median_s for step in STEPS if (step in PRODUCTS) is inside) / whole
        for inside in (True, False)
    )
    return (
        f"In FP32 on this CPU ({shape_of(record)}), the steps of a naive call timed alone: its two "
        f"products take {per_cent(products)} of the call, scale and softmax between them "
        f"{per_cent(others)}"
    )


def faulted(r: Records) -> str:
    """What each form has the system hand out anew in one call, in words."""
    record = taken_apart(r)
    page, faults = record.values["page_bytes"], record.values["faults"]
    each = [
        f"{form} {faults[form]:,} ({number(faults[form] * page / 1e6)} MB)"
        for form in ("naive", "tuned", "fused")
        if form in faults
    ]
    return (
        f"In FP32 on this CPU ({shape_of(record)}), pages of {page:,} bytes that the system maps "
        f"anew during one call: {', '.join(each)}"
    )
