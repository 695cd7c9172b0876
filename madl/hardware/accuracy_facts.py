"""What accuracy the units of question 4.4 buy, counted over every format that has a unit."""

from madl.hardware.compared import BF16, MXINT8
from madl.hardware.counts import ratio, side_of
from madl.hardware.unit_records import (
    ERROR,
    called,
    finely,
    judged,
    points,
    share,
    smallest,
    swept,
    unit_of,
)
from madl.logbook.arms import Arm, best_of, versus
from madl.logbook.claims import Fact, shown_margin
from madl.logbook.records import Pending, Record, Records
from madl.logbook.stats import Unit, per_cent
from madl.training import format_arms

BLOCK_SCALED = ("mxint", "mxfloat", "block_float", "block_minifloat")  # no powers of two


def sized(r: Records, unit: Record) -> str:
    """A unit beside MXINT8's and bf16's."""
    made = unit_of(unit)
    return (
        f"A dot-product unit of {side_of(unit)} takes {ratio(r, made, MXINT8)} the transistors of "
        f"one of MXINT8 and {ratio(r, made, BF16)} those of bf16"
    )


def against_fp32(one: Arm, fp32: Arm, margin: str) -> str:
    """What can be said of a model that is not shown to be within a margin of FP32, nor outside."""
    less = versus(one, fp32).interval[1] < 0
    return (
        f"is less accurate than FP32 tuned alike, and whether by less than {margin} is open"
        if less
        else f"is shown neither to be less accurate than FP32 tuned alike nor to be within {margin}"
    )


def area_buys(r: Records, margin: float) -> Fact:
    """What larger units, and smaller ones, do to accuracy."""
    _, chosen = smallest(r, 0)
    size, fp32 = chosen.values["transistors"], format_arms.control(r)
    once, found = format_arms.once(r), judged(r)
    rows = [
        (called(name, unit), unit, versus(one, fp32).effect)
        for name, (one, unit) in found.items()
        if name in once
    ]
    larger = [row for row in rows if row[1].values["transistors"] > size]
    smaller = [row for row in rows if row[1].values["transistors"] < size]
    near = [effect for _, _, effect in larger if abs(effect) <= margin]
    far = [name for name, _, effect in larger if abs(effect) > margin]
    blocks = [e for _, unit, e in smaller if unit.case.params["unit"] in BLOCK_SCALED]
    others = [e for _, unit, e in smaller if unit.case.params["unit"] not in BLOCK_SCALED]
    if not near or not blocks or not others:
        raise Pending("formats with larger and with smaller units")
    outside = f" (not {', '.join(far)})" if far else ""
    within = shown_margin(margin, Unit.POINTS)
    return Fact(
        text=f"On test, {len(near)} of {len(larger)} formats with larger units than "
        f"{side_of(chosen)} lie within {within} of FP32, from {points(min(near))} to "
        f"{points(max(near))} points{outside}. Of those with smaller units, the {len(blocks)} "
        f"floats and integers with a block's scale lie from {points(min(blocks))} to "
        f"{points(max(blocks))} points, the other {len(others)} from {points(min(others))} to "
        f"{points(max(others))}",
        of=f"{len(rows)} formats with a unit, each at the position that validation prefers, "
        f"{fp32.accuracy.n:,} test examples of 1 model each",
    )


def without_unit(r: Records) -> Fact:
    """The formats of question 3.2 that no unit was built for."""
    once, found = format_arms.once(r), judged(r)
    left = {name: one for name, one in once.items() if name not in found}
    said = f"{len(left)} of the {len(once)} formats of question 3.2 have no unit here: "
    said += ", ".join(f"`{one.label}`" for one in left.values())
    _, chosen = smallest(r, 0)
    bits = next(one.value("bits") for one, unit in found.values() if unit is chosen)
    narrow = [one for one in left.values() if one.value("bits") <= bits]
    if narrow:
        best, fp32 = best_of(narrow), format_arms.control(r)
        said += (
            f". Of those in no more bits than {side_of(chosen)}, validation prefers "
            f"{format_arms.said(best)}, {finely(best, fp32)} from FP32 on test ({share(best)})"
        )
    return Fact(text=said, of=f"{len(once)} formats, each at the position that validation prefers")


def has_what(r: Records) -> Fact:
    """Of the widths and blocks that have an area, how many have an error and an accuracy."""
    widths, blocks = swept(r, "width", block=32), swept(r, "block", width=8)
    models = [
        unit.case.params for _, unit in judged(r).values() if unit.case.params["unit"] == "mxint"
    ]
    said = [
        f"of {len(rows)} {what} all have an area, {sum(row[ERROR] is not None for row in rows)} an "
        f"error too, and {sum(one[fixed] == at for one in models)} the accuracy of a model"
        for what, rows, fixed, at in (
            ("mantissa widths", widths, "block", MXINT8["block"]),
            ("block sizes", blocks, "width", MXINT8["width"]),
        )
    ]
    return Fact(
        text=f"Of the MXINT units, {'; '.join(said)}",
        of=f"{len(widths) + len(blocks) - 1} MXINT units",
    )


def one_class(r: Records) -> Fact:
    """What a model gets that has learned nothing."""
    found = format_arms.larger_class(r)
    return Fact(
        text="Always answering with the larger class is right for "
        f"{per_cent(found)} of the test sentences: a format with that accuracy is no better",
        of=f"{format_arms.control(r).accuracy.n:,} test sentences",
    )
