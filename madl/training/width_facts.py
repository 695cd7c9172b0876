"""What the page of the width study counts and tabulates, and how it tells of several models.

Where validation chose, and out of what: the learning rate, QAT's format, and at which widths
weights and inputs were never given fraction widths of their own. A number of models is told as
their mean with every model's own value behind it.

Units: accuracies are shares; widths and fraction widths in bits.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from madl.logbook.arms import Arm, every_arm, of_models, versus
from madl.logbook.claims import Fact
from madl.logbook.records import Pending, Records, Row
from madl.logbook.stats import Estimate, listed, per_cent
from madl.training import widths
from madl.training.baseline import fp32
from madl.training.widths import (
    behind,
    chosen,
    is_shared_only,
    pair_of,
    ptq,
    qat,
    qat_like,
    tried_at,
)

# ---- several models, in words -------------------------------------------------------------------


def apart(a: Arm, b: Arm) -> str:
    """A minus B: "+12.82 points [−1.72, +27.36], by model +19.90, +11.35 and +7.20"."""
    made, each = a - b, [x - y for x, y in zip(a.models, b.models, strict=True)]
    ends = f" [{', '.join(map(_signed, made.interval))}]" if made.interval else ""
    by_model = f", by model {listed([*map(_signed, each)])}" if len(each) > 1 else ""
    return f"{_signed(made)} points{ends}{by_model}"


def _signed(share: Estimate | float) -> str:
    """In points, to two decimals, so that models add up to their mean."""
    return f"{share:+.2%}".removesuffix("%").replace("-", "−")


def beyond(a: Arm) -> str:
    """What a result of so many models has still to be shown for."""
    return of_models(a, "with other models", "on other sentences")


def means(a: Arm) -> str:
    """Behind an arm's accuracy, where it is of several models."""
    return of_models(a, " (mean of {} models)")


def untrained(a: Arm) -> str:
    """An arm of PTQ, and how its format is written."""
    return (
        f"At {a.param('width')} bits without training (PTQ), the classifier has {a} on "
        f"test{means(a)} with {behind(a)} (bits of weights | of inputs)"
    )


def counted(a: Arm) -> str:
    """Of what it is: "2,000 test examples of 3 models"."""
    return f"{a.accuracy.n:,} test examples of {of_models(a, '{} models', '1 model')}"


def as_good(arms: Sequence[Arm], best: Arm) -> str:
    """The other widths that are as accurate on validation as the best, or nothing."""
    tied = [a for a in arms if abs(a.validation - best.validation) < 1e-9]
    others = [a.param("width") for a in tied if a.param("width") != best.param("width")]
    if not others:
        return ""
    return f"; {listed(others)} bits are as accurate on validation, at a higher loss"


def rates_tried(r: Records, a: Arm) -> str:
    """How many learning rates QAT tried in this arm's format, beside the control."""
    place = (a.param("width"), pair_of(a))
    own = {_rate(one) for one in _trained(r) if (one.param("width"), pair_of(one)) == place}
    control = {_rate(one) for one in every_arm(r, swept="control")}
    return (
        f"Its format ({split(a)}) tried {len(own)} of the control's {len(control)} learning rates"
    )


def after(r: Records, a: Arm, b: Arm) -> str:
    """A model after and before, and where its learning rate lies among all that were tried."""
    every = {_rate(one) for one in _trained(r) + every_arm(r, swept="control")}
    own = _rate(a)
    edge = {min(every): "the lowest", max(every): "the highest"}.get(own, "one")
    return f"{a} after {b}{means(b)}, at a learning rate of {own:g}, {edge} of {len(every)} tried"


# ---- facts --------------------------------------------------------------------------------------


def trained_on(r: Records, at: Sequence[int], control: Arm) -> Fact:
    """PTQ and QAT in one format at these widths, and what the same training does to FP32."""
    before = [ptq(r, width) for width in at]
    after = [qat_like(r, a) for a in before]
    made = [versus(b, a) for a, b in zip(before, after)]
    less = sum(one.effect < 0 for one in made)
    around_zero = sum(one.interval.holds(0) for one in made)
    rates = {_rate(a) for a in after}
    lowest = rates == {min(_rate(a) for a in every_arm(r, swept="control"))}
    rate = f"{'the lowest' if lowest else 'a'} learning rate tried ({_powers(rates)})"
    others = [qat(r, width) for width, a in zip(at, after) if not _alike(qat(r, width), a)]
    own = [f"{a} at {a.param('width')} bits ({split(a)})" for a in others]
    return Fact(
        text=f"At {listed(at)} bits, PTQ has {_shares(before)} on test, and {_shares(after)} when "
        f"trained on in the same format at {rate}: less at {less} of these {len(at)} widths. Zero "
        f"lies inside {around_zero} of the {len(at)} intervals of the differences; the same "
        f"training takes FP32 from {fp32(r)} to {control}, {control - fp32(r):+i}"
        f"{'. In a format of its own QAT has ' + listed(own) if own else ''}",
        of=f"{len(at)} widths, {counted(control)}",
    )


def _shares(arms: Sequence[Arm]) -> str:
    """Their accuracies: "84.2, 84.8 and 84.5 %"."""
    return f"{listed([str(a).removesuffix(' %') for a in arms])} %"


def learning_rates(r: Records, taken: str = "") -> Fact:
    """Out of what the learning rate was chosen, how often each won, and what a page's table has."""
    arms = every_arm(r, swept="control") + every_arm(r, swept="qat")
    by_place: dict[tuple[object, ...], list[Arm]] = {}
    for a in arms:
        params = a.records[0].case.params
        place = [params.get(name) for name in ("width", "frac_width", "input_frac_width")]
        by_place.setdefault(tuple(place), []).append(a)
    rivals = [found for found in by_place.values() if len(found) > 1]
    rates = sorted({_rate(a) for a in arms})
    won = [_rate(widths.best_of(found)) for found in rivals]
    each = listed([f"{widths.power(rate)} at {won.count(rate)}" for rate in rates])
    return Fact(
        text=f"The learning rates tried are {_powers(rates)}, none below {_powers(rates[:1])}. Of "
        f"the {len(rivals)} settings that tried them all, the control and one format at each "
        f"narrow width, validation prefers {each}{taken and f'. {taken}'}",
        of=f"{_configurations(r, ('control', 'qat'))} configurations trained on, {sentences(r)}",
    )


def rates_taken(r: Records, at: Sequence[int], control: Arm) -> str:
    """At what learning rate the table's models were trained, and which of them at another one."""
    arms = {f"QAT at {width} bits": qat(r, width) for width in at}
    arms |= {f"PTQ's format trained on at {w} bits": qat_like(r, ptq(r, w)) for w in at}
    rate = _rate(control)
    others = [f"{name} at {_powers([_rate(a)])}" for name, a in arms.items() if _rate(a) != rate]
    but = f", but for {listed(others)}" if others else ""
    return f"It is {_powers([rate])} for all that the table has trained{but}"


def _configurations(r: Records, of: Sequence[str]) -> int:
    """How many different ones were swept, or judged on test beside the sweeps.

    Raises:
        Pending: one is not there yet.
    """
    planned = [r.where(**{part: name}) for part in ("swept", "method") for name in of]
    found = [record for some in planned if some or some.missing for record in some.all()]
    names = ("operands", "width", "frac_width", "input_frac_width", "tune_learning_rate")
    return len({tuple(record.case.params.get(name) for name in names) for record in found})


def _trained(r: Records) -> list[Arm]:
    """Every arm of QAT, of its sweep and at what was chosen."""
    return every_arm(r, swept="qat") + every_arm(r, method="qat")


def _rate(a: Arm) -> float:
    return float(a.param("tune_learning_rate"))


def _powers(rates: Iterable[float]) -> str:
    return listed([widths.power(rate) for rate in sorted(rates)])


def _alike(a: Arm, b: Arm) -> bool:
    return pair_of(a) == pair_of(b)


def formats_of_qat(r: Records, at: Sequence[int]) -> Fact:
    """Where QAT's format on this page is not what its own sweep chose, or not PTQ's."""
    if not at:
        raise Pending("widths at which formats were swept for QAT")
    taken = [qat(r, width) for width in at]
    pairs = [(a, chosen(r, "qat", width)) for a, width in zip(taken, at)]
    others = [(a, b) for a, b in pairs if not _alike(a, b)]
    said = [
        f"at {a.param('width')} bits {split(a)} in place of {split(b)} (validation "
        f"{per_cent(a.validation)} against {per_cent(b.validation)}, test {a} against "
        f"{qat_like(r, b)})"
        for a, b in others
    ]
    beside = [(a, ptq(r, width)) for a, width in zip(taken, at)]
    own = [
        f"at {a.param('width')} bits, where {split(a)} gives {a} on test, and PTQ's {split(b)}, "
        f"trained on, {qat_like(r, b)}"
        for a, b in beside
        if not _alike(a, b)
    ]
    differs = f". It is not PTQ's {'; '.join(own)}"
    return Fact(
        text="QAT's format is what validation prefers of its own sweep's choice and PTQ's (of "
        "equals, that of lower loss). A format of PTQ's that the sweep had not tried won at "
        f"{len(others)} of the {len(at)} narrow widths{': ' if said else ''}{'; '.join(said)}"
        f"{differs if own else ''}",
        of=f"{len(at)} widths",
    )


def shared_only(r: Records, at: Sequence[int]) -> Fact:
    """Where nothing but one fraction width for both was tried, and what was left out there."""
    alike = [width for width in at if is_shared_only(r, width)]
    narrower = {wide: chosen(r, "ptq", narrow) for narrow, wide in pairwise(at)}
    left_out = [
        f"{split(a)} at {width}"
        for width, a in narrower.items()
        if width in alike and pair_of(a) not in tried_at(r, width)
    ]
    where = f" ({listed(alike)} bits)" if alike else ""
    better = ": a format with a fraction width each may be better there than what is shown"
    said = (
        f". Not tried there, though preferred at the next narrower width: {listed(left_out)} bits. "
        "A wider format with a narrower one's fraction widths holds all its values"
    )
    return Fact(
        text=f"At {len(alike)} of the {len(at)} widths{where} only one fraction width for both was "
        f"tried{better if alike else ''}{said if left_out else ''}",
        of=f"{len(at)} widths",
    )


def edges(r: Records, at: Sequence[int]) -> Fact:
    """Where a fraction width for each was tried: the choices with a neighbour that was not."""
    own = [chosen(r, "ptq", width) for width in at if not is_shared_only(r, width)]
    if not own:
        raise Pending("widths with a fraction width for each of weights and inputs")
    beside = {a.param("width"): _untried(r, a) for a in own}
    said = [f"{listed(pairs)} at {width}" for width, pairs in beside.items() if pairs]
    return Fact(
        text=f"At {len(own)} widths weights and inputs were tried with a fraction width each. At "
        f"{len(own) - len(said)} of them all that lies one bit from PTQ's choice was tried"
        f"{'; elsewhere not ' if said else ''}{'; '.join(said)}"
        f"{' bits, each of which may be better than what is shown' if said else ''}",
        of=f"{len(own)} widths",
    )


def _untried(r: Records, a: Arm) -> list[str]:
    """The formats one bit from an arm's that no sweep had."""
    (weights, inputs), tried = pair_of(a), tried_at(r, a.param("width"))
    near = [(weights + d, inputs) for d in (-1, 1)] + [(weights, inputs + d) for d in (-1, 1)]
    return ["{} | {}".format(*pair) for pair in near if pair not in tried]


def sentences(r: Records) -> str:
    """What validation is: "500 validation sentences, the mean of 3 models"."""
    base = fp32(r)
    several = of_models(base, ", the mean of {} models")
    return f"{base.value('num_validation'):,} validation sentences{several}"


def chosen_on(r: Records) -> Fact:
    """What choices and validation figures rest on."""
    return Fact(
        text=f"Every choice and every validation accuracy here is of {sentences(r)}",
        of=f"{_configurations(r, ('ptq', 'qat', 'control'))} configurations tried",
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


def steps(r: Records) -> list[list[Arm]]:
    """PTQ with one step for both operands over the widths, the two steps that most widths have."""
    by_fraction: dict[int, list[Arm]] = {}
    for a in every_arm(r, method="ptq", operands="both"):
        weights, inputs = pair_of(a)
        if weights == inputs and not _is_partial(r, a):
            by_fraction.setdefault(weights, []).append(a)
    found = sorted(by_fraction.values(), key=len, reverse=True)[:2]
    return [sorted(arms, key=lambda a: a.param("width")) for arms in found]


def _is_partial(r: Records, a: Arm) -> bool:
    return len(a.records) < len(fp32(r).records)


def collapse(r: Records) -> Fact:
    """What the width alone changes: one step over the widths, and another one."""
    return clipped_alone(*steps(r))


def clipped_alone(fine: Sequence[Arm], coarse: Sequence[Arm] = ()) -> Fact:
    rows = [_lost(a) for a in fine]
    clipped = [f"{row['inputs clipped']} at {a.param('width')}" for a, row in zip(fine, rows)]
    said = (
        f"With {pair_of(fine[0])[0]} bits behind the point for both, {_all_of(fine)} of the "
        f"weights become zero. The width changes how many inputs are clipped, "
        f"{listed(clipped)} bits; on test these have {_shares(fine)}"
    )
    if coarse:
        at = listed([a.param("width") for a in coarse])
        said += (
            f". With {pair_of(coarse[0])[0]} behind it, {_all_of(coarse)} of the weights become "
            f"zero, and {at} bits have {_shares(coarse)}"
        )
    arms = [*fine, *coarse]
    return Fact(text=said, of=f"{len(arms)} formats, {counted(fine[0])}")


def _all_of(arms: Sequence[Arm]) -> str:
    """Which share of the weights becomes zero: of formats with one step, the same or nearly."""
    shares = sorted(fmean(one["weight_zeroed"] for one in a.each("shares")) for a in arms)
    low, high = per_cent(shares[0]), per_cent(shares[-1])
    return low if low == high else f"{low} to {high}"


def highest(r: Records, at: Sequence[int], control: Arm) -> Fact:
    """The accuracy at each width, as the question asks for it."""
    each = [
        " / ".join(f"{a}".removesuffix(" %") for a in (ptq(r, width), qat(r, width)))
        for width in at
    ]
    widest = "; ".join(f"{width} bits: {both}" for width, both in zip(at, each))
    return Fact(
        text=f"Per cent right on test, PTQ / QAT. {widest}. FP32 has {fp32(r)}, after the same "
        f"training {control}",
        of=f"{len(at)} widths, {counted(control)}",
    )


def points(r: Records, at: Sequence[int], control: Arm) -> list[Row]:
    """A row a width: both models with their formats; an asterisk where they had to share one.

    Before them FP32, as it is and after the same training.
    """
    rows: list[Row] = []
    for width in at:
        a, b = ptq(r, width), qat(r, width)
        mark = "\u00a0*" if is_shared_only(r, width) else ""
        rows.append(
            {
                "model": f"{width} bits",
                "PTQ": a,
                "PTQ: validation": per_cent(a.validation),
                "PTQ: behind the point": split(a) + mark,
                "QAT": b,
                "QAT: validation": per_cent(b.validation),
                "QAT: behind the point": split(b) + mark,
                "QAT − PTQ, in PTQ's format": f"{qat_like(r, a) - a:+i}",
            }
        )
    empty, base = dict.fromkeys(rows[0], ""), fp32(r)
    trained = {"QAT": control, "QAT: validation": per_cent(control.validation)}
    return [
        {**empty, "model": "FP32", "PTQ": base, "PTQ: validation": per_cent(base.validation)},
        {**empty, "model": "FP32 + same training", **trained},
        *rows,
    ]
