"""What the page of the width study counts and tabulates, and how it tells of several models.

Where validation chose, and out of what: the learning rate, QAT's format, and at which widths
weights and inputs were never given fraction widths of their own. A number of models is told as
their mean with every model's own value behind it.

Units: accuracies are shares; widths and fraction widths in bits.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from madl.logbook.arms import Arm, every_arm, versus
from madl.logbook.claims import Fact
from madl.logbook.records import Records, Row
from madl.logbook.stats import per_cent
from madl.training import widths
from madl.training.baseline import fp32
from madl.training.widths import chosen, pair_of, ptq, qat, qat_like

# ---- several models, in words -------------------------------------------------------------------


def apart(a: Arm, b: Arm) -> str:
    """A minus B: "+12.8 points [−1.7, +27.4], by model +19.9, +11.4 and +7.2"."""
    each = [f"{x - y:+}".removesuffix(" points") for x, y in zip(a.models, b.models, strict=True)]
    return f"{a - b:+i}" + (f", by model {listed(each)}" if len(each) > 1 else "")


def beyond(a: Arm) -> str:
    """What a result of so many models has still to be shown for."""
    return "another model" if len(a.records) > 1 else "other sentences"


def counted(a: Arm) -> str:
    """Of what it is: "2,000 test examples of 3 models"."""
    plural = "s" if len(a.records) > 1 else ""
    return f"{a.accuracy.n:,} test examples of {len(a.records)} model{plural}"


def listed(names: Sequence[object]) -> str:
    """In a sentence: "a, b and c"."""
    *most, last = [*map(str, names)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def as_good(arms: Sequence[Arm], best: Arm) -> str:
    """The other widths that are as accurate on validation as the best, or nothing."""
    tied = [a for a in arms if abs(a.validation - best.validation) < 1e-9]
    others = [a.param("width") for a in tied if a.param("width") != best.param("width")]
    if not others:
        return ""
    return f"; {listed(others)} bits are as accurate on validation, at a higher loss"


# ---- facts --------------------------------------------------------------------------------------


def trained_on(r: Records, at: Sequence[int], control: Arm) -> Fact:
    """PTQ and QAT in one format at these widths, and what the same training does to FP32."""
    before = [ptq(r, width) for width in at]
    after = [qat_like(r, a) for a in before]
    made = [versus(b, a) for a, b in zip(before, after)]
    less = sum(one.effect < 0 for one in made)
    around_zero = sum(one.interval.low <= 0 <= one.interval.high for one in made)
    return Fact(
        text=f"At {listed(at)} bits, PTQ has {_shares(before)} on test, and {_shares(after)} when "
        f"trained on in the same format: less at {less} of these {len(at)} widths. Zero lies "
        f"inside {around_zero} of the {len(at)} intervals of the differences. The same training "
        f"takes FP32 from {fp32(r)} to {control}, {control - fp32(r):+i}",
        of=f"{len(at)} widths, {counted(control)}",
    )


def _shares(arms: Sequence[Arm]) -> str:
    """Their accuracies: "84.2, 84.8 and 84.5 %"."""
    return f"{listed([str(a).removesuffix(' %') for a in arms])} %"


def learning_rates(r: Records) -> Fact:
    """Out of what the learning rate was chosen, and how often its lowest value won."""
    arms = every_arm(r, swept="control") + every_arm(r, swept="qat")
    by_place: dict[tuple[object, ...], list[Arm]] = {}
    for a in arms:
        params = a.records[0].case.params
        place = [params.get(name) for name in ("width", "frac_width", "input_frac_width")]
        by_place.setdefault(tuple(place), []).append(a)
    rivals = [found for found in by_place.values() if len(found) > 1]
    rates = sorted({_rate(a) for a in arms})
    won = [_rate(widths.best_of(found)) for found in rivals]
    names = {rate: widths.power(rate) for rate in rates}
    each = listed([f"{name} at {won.count(rate)}" for rate, name in names.items()])
    return Fact(
        text=f"The learning rates tried are {listed([*names.values()])}. Of the {len(rivals)} "
        "settings that tried them all, the control and one format at each narrow width, validation "
        f"prefers {each}. None below {names[rates[0]]} was tried",
        of=f"{len(arms)} configurations trained on, {sentences(r)}",
    )


def _rate(a: Arm) -> float:
    return float(a.param("tune_learning_rate"))


def formats_of_qat(r: Records, at: Sequence[int]) -> Fact:
    """Where QAT's format on this page is not what its own sweep chose."""
    pairs = [(qat(r, width), chosen(r, "qat", width)) for width in at]
    others = [(a, b) for a, b in pairs if pair_of(a) != pair_of(b)]
    said = [
        f"at {a.param('width')} bits {split(a)} in place of {split(b)} (validation "
        f"{per_cent(a.validation)} against {per_cent(b.validation)}, test {a} against "
        f"{qat_like(r, b)})"
        for a, b in others
    ]
    return Fact(
        text="QAT's format is the one that validation prefers, and of equals the one of lower "
        "loss, among what its own sweep chose and what PTQ chose. "
        f"PTQ's, which the sweep had not tried, was taken at {len(others)} of the {len(at)} narrow "
        f"widths{': ' if said else ''}{'; '.join(said)}",
        of=f"{len(at)} widths",
    )


def shared_only(r: Records, at: Sequence[int]) -> Fact:
    """Where nothing but one fraction width for both was tried, and what was left out there."""
    alike = [width for width in at if is_shared_only(r, width)]
    narrower = {wide: chosen(r, "ptq", narrow) for narrow, wide in pairwise(at)}
    left_out = [
        f"{split(a)} at {width}"
        for width, a in narrower.items()
        if width in alike and pair_of(a) not in _tried(r, width)
    ]
    where = f" ({listed(alike)} bits)" if alike else ""
    said = (
        f"Not tried there, though preferred at the next narrower width: {listed(left_out)} bits. "
    )
    return Fact(
        text=f"At {len(alike)} of the {len(at)} widths{where} only one fraction width for both was "
        "tried: the highest accuracy there is the highest of those. "
        f"{said if left_out else ''}A wider format with a narrower one's fraction widths holds all "
        "its values",
        of=f"{len(at)} widths",
    )


def is_shared_only(r: Records, width: int) -> bool:
    return all(weights == inputs for weights, inputs in _tried(r, width))


def _tried(r: Records, width: int) -> set[widths.Pair]:
    return {pair_of(a) for a in every_arm(r, swept="ptq", width=width, operands="both")}


def sentences(r: Records) -> str:
    """What validation is: "500 validation sentences, the mean of 3 models"."""
    base = fp32(r)
    several = f", the mean of {len(base.records)} models" if len(base.records) > 1 else ""
    return f"{base.value('num_validation'):,} validation sentences{several}"


def chosen_on(r: Records) -> Fact:
    """What choices and validation figures rest on."""
    arms = [*every_arm(r, swept="ptq"), *every_arm(r, swept="qat"), *every_arm(r, swept="control")]
    return Fact(
        text=f"Every choice and every validation accuracy here is of {sentences(r)}",
        of=f"{len(arms)} configurations tried",
    )


# ---- rows ---------------------------------------------------------------------------------------


def split(a: Arm) -> str:
    """Bits behind the point, of weights | of inputs."""
    return "{} | {}".format(*pair_of(a))


def lost(arms: Sequence[Arm]) -> list[Row]:
    """What formats do to the values, means over the models, beside each model's accuracy."""
    return [_lost(a) for a in arms]


def _lost(a: Arm) -> Row:
    found = a.each("shares")
    row: dict[str, object] = {"format": f"{a.param('width')} bits, {split(a)}"}
    if len(found) > 1:
        row |= {"test accuracy, mean": str(a), "of each model": _shares(a.models)}
    else:
        row["test accuracy"] = a
    for part in ("weight", "input"):
        for loss, what in (("zeroed", "to zero"), ("saturated", "clipped")):
            share = fmean(shares[f"{part}_{loss}"] for shares in found)
            row[f"{part}s {what}"] = per_cent(share)
    return row


def points(r: Records, at: Sequence[int]) -> list[Row]:
    """A row a width: both models with their formats; an asterisk where they had to share one."""
    rows: list[Row] = []
    for width in at:
        a, b = ptq(r, width), qat(r, width)
        mark = " *" if is_shared_only(r, width) else ""
        rows.append(
            {
                "model": f"{width} bits",
                "PTQ": a,
                "PTQ: behind the point": split(a) + mark,
                "QAT": b,
                "QAT: behind the point": split(b) + mark,
                "QAT − PTQ, in PTQ's format": f"{qat_like(r, a) - a:+i}".replace(" ", "\u00a0"),
            }
        )
    return rows
