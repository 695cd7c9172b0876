"""What accuracy the units of question 4.4 buy, counted over every format that has a unit."""

from collections.abc import Mapping

from madl.hardware.compared import BF16, FP32, MOVED, MXINT8
from madl.hardware.counts import (
    LANES,
    cells_of,
    encoding_of,
    gates,
    ratio_range,
    side_of,
)
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
from madl.logbook.arms import Arm, best_of, of_models, versus
from madl.logbook.claims import Fact, shown_margin
from madl.logbook.records import Pending, Record, Records
from madl.logbook.stats import Unit, counted, per_cent
from madl.training import baseline, format_arms
from madl.training.families import moved_of

CONTROL = "FP32 offered the same training"
NAMED = 3  # formats that a sentence names; of more it gives the range
MEANS: Mapping[str, str] = {  # what few readers know by its name
    "log": "powers of two",
    "block_log": "powers of two",
    "denormal": "floats without an implied one",
    "scaled": "integers under one scale",
    "residual_sign": "several signs a value",
}
WORDS: Mapping[str, str] = {  # parameters of a unit
    "width": "{} bits",
    "exponent": "{} bits of exponent",
    "mantissa": "{} bits of mantissa",
    "block": "a scale for {} values",
}


def smallest_unit(r: Records, unit: Record) -> str:
    """Which unit is the smallest that loses nothing on validation."""
    return (
        f"For dot products of {LANES} pairs the smallest unit whose format is no less accurate "
        f"than FP32 on validation is, {how_many(r)} and unpipelined, that of {spelled(unit)}"
    )


def sized(r: Records, unit: Record) -> str:
    """A unit beside MXINT8's and bf16's."""
    return (
        f"Where values come quantized, the unit takes {ratio_range(r, unit_of(unit), BF16)} × the "
        f"transistors of bf16's and {beside_mxint8(r, unit)}"
    )


def beside_mxint8(r: Records, unit: Record) -> str:
    """How many times MXINT8's transistors, and whether the two differ in how they have signs."""
    encoding = encoding_of(gates(r, **MXINT8))
    crossed = "" if encoding_of(unit) == encoding else f", whose integers are in {encoding}"
    return f"{ratio_range(r, unit_of(unit), MXINT8)} × those of MXINT8's{crossed}"


def spelled(unit: Record) -> str:
    """A unit's format, and of how many bits it is: "MXINT8 (8 bits, a scale for 32 values)"."""
    params = unit.case.params
    said = [words.format(params[name]) for name, words in WORDS.items() if name in params]
    return f"{side_of(unit)} ({', '.join(said)})" if said else side_of(unit)


def chosen_by(r: Records, one: Arm) -> str:
    """Validation accuracies of a model and of FP32, and how few sentences lie between them."""
    fp32, n = format_arms.control(r), int(baseline.fp32(r).value("num_validation"))
    apart = abs(round(n * (one.validation - fp32.validation), 1))
    return (
        f"{per_cent(one.validation)} against FP32's {per_cent(fp32.validation)} of n = {n:,} "
        f"sentences, {apart:g} sentence{'s' * (apart != 1)} apart"
        + of_models(one, " in the mean of {} models")
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
        of=counted(len(taken), "model"),
    )


def fp32_unit(r: Records) -> Fact:
    """What FP32 takes, in a unit that rounds as FP32 does."""
    return Fact(
        text=f"A unit of FP32 takes {ratio_range(r, FP32, BF16)} × the transistors of bf16. It is "
        "built otherwise, each product and each partial sum rounded to FP32, so no figure shows "
        "its area",
        of=cells_of(r, FP32, BF16),
    )


def area_buys(r: Records, margin: float) -> Fact:
    """What formats with smaller units than the smallest accurate one have, and larger ones."""
    _, chosen = smallest(r, 0)
    size, fp32 = chosen.values["transistors"], format_arms.control(r)
    once = format_arms.once(r)
    rows = [
        (unit.values["transistors"] - size, explained(name, unit), versus(one, fp32).effect)
        for name, (one, unit) in judged(r).items()
        if name in once
    ]
    smaller = {name: effect for more, name, effect in rows if more < 0}
    larger = {name: effect for more, name, effect in rows if more > 0}
    if not smaller or not larger:
        raise Pending("formats with larger and with smaller units")
    near, far = zip(*(split(effects, margin) for effects in (smaller, larger)), strict=True)
    return Fact(
        text=f"Within {shown_margin(margin, Unit.POINTS)} of FP32 on test are, as measured, "
        f"{len(near[0])} of the {len(smaller)} formats whose units are smaller than "
        f"{side_of(chosen)}'s{listed(near[0])} and {len(near[1])} of the {len(larger)} whose "
        f"units are larger{listed(near[1])}; the others are "
        f"{len(far[0])} with smaller units{listed(far[0])} and {len(far[1])} with larger "
        f"ones{listed(far[1])}",
        of=f"{len(rows)} formats with a unit, each at its default position or as question 3.2 "
        f"moved it, {fp32.accuracy.n:,} test examples"
        f"{of_models(fp32, ', the mean of {} models each', ' of 1 model each')}, no test",
    )


def next_smaller(r: Records) -> Fact:
    """The largest of the units that are smaller than the chosen one, and why it was excluded."""
    found, (kept, chosen) = judged(r), smallest(r, 0)
    size, fp32 = chosen.values["transistors"], format_arms.control(r)
    below = {
        name: (one, unit)
        for name, (one, unit) in found.items()
        if unit.values["transistors"] < size
    }
    if not below:
        raise Pending("formats with smaller units")
    name = max(below, key=lambda x: (below[x][1].values["transistors"], below[x][0].validation))
    own = next(name for name, (one, _) in found.items() if one.label == kept.label)
    (one, unit), n = below[name], int(baseline.fp32(r).value("num_validation"))
    less = round(n * (fp32.validation - one.validation), 1)
    its_name = called(own, chosen) + "," * (own in MOVED)
    said = (
        f"On validation {its_name} has {finer(kept.validation)} and FP32 "
        f"{finer(fp32.validation)}. The format of the next smaller unit, {called(name, unit)} "
        f"({unit.values['transistors']:,} transistors against {size:,}), has "
        f"{finer(one.validation)}: {less:g} sentence{'s' * (less != 1)} of {n:,} excluded it"
    )
    if own in MOVED and moved_of(name) is None:
        said += (
            f". Moved: question 3.2 chose its positions too on validation sentences, beside a "
            f"learning rate; {side_of(unit)} has none to choose"
        )
    return Fact(text=said, of=f"the whole validation split{of_models(one, ', mean of {} models')}")


def finer(share: float) -> str:
    """To a hundredth of a point."""
    return f"{100 * share:.2f} %"


def split(effects: Mapping[str, float], margin: float) -> tuple[dict[str, float], dict[str, float]]:
    """Those within a margin of zero, and the others."""
    near = {name: effect for name, effect in effects.items() if abs(effect) <= margin}
    return near, {name: effect for name, effect in effects.items() if name not in near}


def listed(effects: Mapping[str, float]) -> str:
    """Differences of accuracy in points: of few formats each, of many the range."""
    if len(effects) > NAMED:
        values = effects.values()
        return f" (from {points(min(values))} to {points(max(values))} points)"
    said = "; ".join(f"{name}: {points(effect)}" for name, effect in effects.items())
    return f" ({said})" if said else ""


def explained(name: str, unit: Record) -> str:
    """A unit's name, and in words what it multiplies where the name does not say it."""
    means = MEANS.get(str(unit.case.params["unit"]))
    return ", ".join([called(name, unit), *([means] if means else [])])


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
    name, area = format_arms.said(best), "it has no unit"
    for own, (one, unit) in found.items():
        if one.label == best.label:
            name = f"{called(own, unit)}, which is {name}"
            area = "its unit is that very one"
            if unit.case.key != chosen.case.key:
                area = f"its unit takes {ratio_range(r, unit_of(unit), unit_of(chosen))} × the "
                area += f"transistors of {side_of(chosen)}'s"
    return Fact(
        text=f"{said}. In no more bits than {side_of(chosen)}, validation prefers {name}, with "
        f"{chosen_by(r, best)}; {area}, and on test its model is "
        f"{finely(best, format_arms.control(r))} from FP32 ({share(best)})",
        of=f"{len(once)} formats, each at its default position or as question 3.2 moved it",
    )


def mantissas_have(r: Records) -> Fact:
    """Of the widths of a mantissa, how many have more than an area."""
    return _have(r, "width", "block", "mantissa widths")


def blocks_have(r: Records) -> Fact:
    """Of the sizes of a block, how many have more than an area."""
    return _have(r, "block", "width", "block sizes")


def _have(r: Records, by: str, fixed: str, what: str) -> Fact:
    rows = swept(r, by, **{fixed: MXINT8[fixed]})
    units = [unit.case.params for _, unit in judged(r).values()]
    models = {
        str(one[by]) for one in units if one["unit"] == "mxint" and one[fixed] == MXINT8[fixed]
    }
    named = f" ({' and '.join(sorted(models, key=int))})" if models else ""
    return Fact(
        text=f"Of MXINT units of {len(rows)} {what} all have an area, "
        f"{sum(map(is_simulated, rows))} an error too, and {len(models)}{named} the accuracy of a "
        "model",
        of=f"{len(rows)} MXINT units",
    )


def one_class(r: Records) -> Fact:
    """What a model gets that has learned nothing."""
    found = baseline.larger_class(r)
    return Fact(
        text="Always answering with the larger class is right for "
        f"{per_cent(found)} of the test sentences: a format with that accuracy is no better",
        of=f"{format_arms.control(r).accuracy.n:,} test sentences",
    )
