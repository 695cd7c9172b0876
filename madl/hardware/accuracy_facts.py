"""What accuracy the units of question 4.4 buy, counted over every format that has a unit."""

from collections.abc import Mapping

from madl.hardware.compared import BF16, FP32, MXINT8, QUANTIZING
from madl.hardware.counts import LANES, cells_of, encoding_of, gates, ratio, side_of
from madl.hardware.unit_records import (
    called,
    finely,
    is_simulated,
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
from madl.training import baseline, format_arms

BLOCK_SCALED = ("mxint", "mxfloat", "block_float", "block_minifloat")  # no powers of two
CONTROL = "FP32 offered the same training"
MEANS: Mapping[str, str] = {  # what few readers know by its name
    "log": "powers of two",
    "block_log": "powers of two",
    "denormal": "floats without an implied one",
    "scaled": "integers under one scale",
    "residual_sign": "several signs a value",
}


def sized(r: Records, unit: Record) -> str:
    """A unit beside MXINT8's and bf16's, and what a quantizer does to MXINT8's."""
    return (
        f"Where values come quantized, a unit for dot products of {LANES} pairs in "
        f"{side_of(unit)} takes {beside_mxint8(r, unit)} and "
        f"{ratio(r, unit_of(unit), BF16)} those of bf16 (MXINT8 itself {ratio(r, MXINT8, BF16)}, "
        f"and {ratio(r, QUANTIZING, BF16)} with its quantizer of activations)"
    )


def beside_mxint8(r: Records, unit: Record) -> str:
    """How many times MXINT8's transistors, and whether the two differ in how they have signs."""
    own, other = encoding_of(unit), encoding_of(gates(r, **MXINT8))
    crossed = "" if own == other else f" ({other} there, {own} here)"
    return f"{ratio(r, unit_of(unit), MXINT8)} the transistors of one of MXINT8{crossed}"


def chosen_by(r: Records, one: Arm) -> str:
    """Validation accuracies of a model and of FP32, and how few sentences lie between them."""
    fp32, n = format_arms.control(r), int(baseline.fp32(r).value("num_validation"))
    apart = abs(round(n * (one.validation - fp32.validation), 1))
    return (
        f"{per_cent(one.validation)} against FP32's {per_cent(fp32.validation)} of n = {n:,} "
        f"sentences, {apart:g} sentence{'s' * (apart != 1)} apart"
    )


def how_many(r: Records) -> str:
    """The units that there are: "of the units of all 36 formats"."""
    once, found = format_arms.once(r), judged(r)
    n = sum(name in found for name in once)
    which = f"all {n} formats" if n == len(once) else f"{n} of {len(once)} formats"
    return f"of the units of {which}"


def against_fp32(one: Arm, fp32: Arm, margin: str) -> str:
    """What can be said of a model that is not shown to be within a margin of FP32, nor outside."""
    less = versus(one, fp32).interval[1] < 0
    return (
        f"is less accurate than {CONTROL}, and whether by less than {margin} is open"
        if less
        else f"is shown neither to be less accurate than {CONTROL} nor to be within {margin}"
    )


def same_training(r: Records) -> Fact:
    """What FP32 was offered, and what validation chose of it."""
    fp32 = format_arms.control(r)
    rates = [f"{rate:g}" for rate in format_arms.by_rate(fp32) if rate]
    taken = [record.values["rate"] for record in fp32.records]
    chose = ", ".join(f"{rate:g}" if rate else "none" for rate in dict.fromkeys(taken))
    return Fact(
        text="FP32, the reference for accuracy, is the model that is not quantized, offered the "
        f"same training as the formats (a learning rate of {' or '.join(rates)}, or none): "
        f"validation chose {chose}",
        of=f"{len(taken)} model{'s' * (len(taken) > 1)}",
    )


def fp32_unit(r: Records) -> Fact:
    """What FP32 takes, in a unit that rounds as FP32 does."""
    return Fact(
        text=f"A unit of FP32 takes {ratio(r, FP32, BF16)} the transistors of bf16. It is built "
        "otherwise, each product and each partial sum rounded to FP32, so no figure shows its area",
        of=cells_of(r, FP32, BF16),
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
    far = [explained(name, unit) for name, unit, effect in larger if abs(effect) > margin]
    blocks = [e for _, unit, e in smaller if unit.case.params["unit"] in BLOCK_SCALED]
    others = [e for _, unit, e in smaller if unit.case.params["unit"] not in BLOCK_SCALED]
    if not near or not blocks or not others:
        raise Pending("formats with larger and with smaller units")
    outside = f", the others being {', '.join(far)}" if far else ""
    within = shown_margin(margin, Unit.POINTS)
    return Fact(
        text=f"As measured on test, {len(near)} of {len(larger)} formats with larger units than "
        f"{side_of(chosen)} lie within {within} of FP32, from {points(min(near))} to "
        f"{points(max(near))} points{outside}. Of those with smaller units, the {len(blocks)} "
        f"floats and integers with a block's scale lie from {points(min(blocks))} to "
        f"{points(max(blocks))} points, the other {len(others)} from {points(min(others))} to "
        f"{points(max(others))}",
        of=f"{len(rows)} formats with a unit, each at the position that validation prefers, "
        f"{fp32.accuracy.n:,} test examples of 1 model each, no test",
    )


def explained(name: str, unit: Record) -> str:
    """A unit's name, and in words what it multiplies where the name does not say it."""
    means = MEANS.get(str(unit.case.params["unit"]))
    return f"{name} ({means})" if means else name


def every_format(r: Records) -> Fact:
    """How many formats of question 3.2 have a unit, and which of few bits validation prefers."""
    once, found = format_arms.once(r), judged(r)
    left = [f"`{one.label}`" for name, one in once.items() if name not in found]
    sizes = {unit.case.key for _, unit in found.values()}
    said = f"All {len(once)} formats of question 3.2 have a unit here, {len(sizes)} units in all"
    if left:
        said = f"{len(left)} of the {len(once)} formats of question 3.2 have no unit here: "
        said += ", ".join(left)
    kept, chosen = smallest(r, 0)
    best = best_of([one for one in once.values() if one.value("bits") <= kept.value("bits")])
    own = next((unit for one, unit in found.values() if one.label == best.label), None)
    area = "it has no unit"
    if own:
        area = f"its unit takes {ratio(r, unit_of(own), unit_of(chosen))} the transistors"
    return Fact(
        text=f"{said}. In no more bits than {side_of(chosen)}, validation prefers "
        f"{format_arms.said(best)}, with {chosen_by(r, best)}; "
        f"{area}, and on test its model is {finely(best, format_arms.control(r))} from FP32 "
        f"({share(best)})",
        of=f"{len(once)} formats, each at the position that validation prefers",
    )


def has_what(r: Records) -> Fact:
    """Of the widths and blocks that have an area, how many have an error and an accuracy."""
    widths, blocks = swept(r, "width", block=32), swept(r, "block", width=8)
    models = [
        unit.case.params for _, unit in judged(r).values() if unit.case.params["unit"] == "mxint"
    ]
    said = [
        f"of {len(rows)} {what} all have an area, {sum(map(is_simulated, rows))} an "
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
