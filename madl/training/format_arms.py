"""The arms of question 3.2, for its page and for others: what was judged, and what was searched.

An experiment that has `lab3_formats` among its needs takes a format's model from here:
`trained(r, "mxint8")`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from madl.logbook import searches
from madl.logbook.arms import Arm, arm, best_of, of_models, versus
from madl.logbook.claims import Fact
from madl.logbook.records import Pending, Records, Row
from madl.logbook.stats import ALPHA, Estimate, Interval, listed, number, per_cent, superscript
from madl.training import baseline, families, width_space
from madl.training.families import EVERY, MOVED, NAMES, group_of, is_log, moved_of, short

EXPERIMENT = "lab3_formats"  # that trains and judges them
UNTRAINED, TAKEN = "untrained, validation", "as taken, validation"
BEST, LEFT_ALONE = "best so far", "all layers left in FP32"
larger_class = baseline.larger_class  # under this name a claim is held against it


def names(r: Records) -> list[str]:
    """Every format that is planned for all layers, presets first.

    Raises:
        Pending: none is planned.
    """
    planned = {str(name) for name in r.of(EXPERIMENT).each("format")}
    found = [name for name in EVERY if name in planned]
    if not found:
        raise Pending("formats")
    return found


def trained(r: Records, name: str) -> Arm:
    """The model with that format on all layers, trained on in it or not, as validation prefers.

    A moved format's label has its positions, of weights and of inputs, model by model:
    `log(4) at 8 and 3 or 9 and 3`.
    """
    of = r.of(EXPERIMENT)
    if name not in MOVED:
        return arm(of, short(name), part="uniform", format=name)
    found = of.all(part="moved", format=name)
    places = (f"{one.values['weights_at']} and {one.values['inputs_at']}" for one in found)
    label = f"{name.removesuffix(' moved')} at {' or '.join(dict.fromkeys(places))}"
    return arm(of, label, part="moved", format=name)


def once(r: Records) -> dict[str, Arm]:
    """Every format once: at its own position or moved, as validation prefers."""
    planned, found = names(r), dict[str, Arm]()
    for name in NAMES:
        arms = {one: trained(r, one) for one in (name, moved_of(name) or name) if one in planned}
        if arms:
            best = best_of(list(arms.values()))
            found |= {one: a for one, a in arms.items() if a is best}
    return found


def control(r: Records) -> Arm:
    """FP32, trained on like the formats."""
    return arm(r.of(EXPERIMENT), "FP32 tuned alike", part="control")


def strongest(
    r: Records,
    most_bits: float,
    keep: Callable[[str], bool] = lambda name: True,
    *,
    least_bits: float = 0,
) -> Arm:
    """Of the formats of so many bits that `keep` leaves, the one that validation prefers."""
    found = [trained(r, name) for name in names(r) if keep(name)]
    return best_of([a for a in found if least_bits <= a.value("bits") <= most_bits])


def strongest_beside(r: Records, other: Arm) -> Arm:
    """For each model of the other arm, the format of no more bits that validation prefers."""
    found = [
        strongest(r.where(seed=model.param("seed")), model.value("bits")) for model in other.models
    ]
    taken = Counter(map(said, found))
    several = len(taken) > 1
    each = [
        f"{one}{f' in {count} of {len(found)} models' * several}" for one, count in taken.items()
    ]
    records = tuple(record for a in found for record in a.records)
    return replace(found[0], label=" or ".join(each), records=records)


def said(a: Arm) -> str:
    """A format with its bits, and where it is moved, with its positions in words."""
    bits, (name, _, places) = a.value("bits"), a.label.partition(" at ")
    size = f"{number(bits)} bit{'s' if bits != 1 else ''}"
    if places:
        what = "fraction width" if name.startswith("fixed") else "exponent bias"
        sides = zip(*(map(int, one.split(" and ")) for one in places.split(" or ")), strict=True)
        weights, inputs = (" or ".join(map(str, sorted(set(side)))) for side in sides)
        size += f"; {what} {weights} for weights, {inputs} for inputs"
    elif moved_of(name):
        size += "; at its default position"
    return f"`{name}` ({size})"


def by_rate(a: Arm) -> dict[float, tuple[float, float]]:
    """Validation accuracy and loss by learning rate; zero is untrained. The means over seeds."""
    found: dict[float, list[tuple[float, float]]] = {}
    for record in a.records:
        for rate, values in record.values["by_rate"].items():
            pair = values["validation_accuracy"], values["validation_loss"]
            found.setdefault(float(rate), []).append(pair)
    return {rate: (fmean(x for x, _ in of), fmean(y for _, y in of)) for rate, of in found.items()}


def untrained(a: Arm) -> float:
    """Validation accuracy right after quantization."""
    return by_rate(a)[0.0][0]


def against(r: Records, arms: Mapping[str, Arm]) -> dict[str, tuple[Estimate, Interval]]:
    """What each has more than FP32 tuned alike, with an interval that holds for all of them.

    Bonferroni: with chance 95 %, every one of the intervals holds its true difference.
    """
    full, level = control(r), 1 - ALPHA / max(len(arms), 1)
    found: dict[str, tuple[Estimate, Interval]] = {}
    for name, one in arms.items():
        made = versus(one, full)
        interval = made.interval_at(level)
        found[name] = Estimate(made.effect, interval, made.unit, one.accuracy.n), interval
    return found


def verdicts(r: Records, margin: float) -> dict[str, str]:
    """Format, each once → whether it stays within the margin of FP32 tuned alike.

    By where its interval of `against` lies.
    """
    found: dict[str, str] = {}
    for name, (_, (low, high)) in against(r, once(r)).items():
        found[name] = "keeps" if low > -margin else "loses" if high < -margin else "not decided"
    return found


# ---- what was searched --------------------------------------------------------------------------


def combined(r: Records) -> Arm:
    """What the search over all formats chose, trained on."""
    return arm(r.of(EXPERIMENT), "found by the search over all", part="combined")


def searched(r: Records) -> dict[str, Arm]:
    """Family → its search.

    Raises:
        Pending: none is planned.
    """
    planned = set(r.of(EXPERIMENT).each("family"))
    found = {
        name: arm(r.of(EXPERIMENT), name, part="family", family=name)
        for name in families.FAMILIES
        if name in planned
    }
    if not found:
        raise Pending("family")
    return found


def scores(a: Arm) -> list[list[float]]:
    """Of the trials of a search, seed by seed."""
    return [[trial["score"] for trial in trials] for trials in a.each("trials")]


def found_at(a: Arm) -> list[int]:
    """The trial at which a search came by its best, from 1, seed by seed."""
    return [searches.found_at(one) for one in scores(a)]


def best(a: Arm, name: str) -> float:
    """What a search's best trial has under this name, the mean over seeds."""
    return fmean(float(found[name]) for found in a.each("best"))


def score(a: Arm) -> float:
    """What a search was told of its best trial, the mean over seeds."""
    return best(a, "score")


def _gain(a: Arm) -> float:
    """Of a search's best trial over all layers left in FP32, on the same weights."""
    return score(a) - a.mean("nothing")


def _points(share: float) -> str:
    return f"{number(100 * share, sign=True)} points"


def curve(a: Arm) -> list[Row]:
    """A row a trial: the best score so far, and that of a model that is left in FP32."""
    return [
        {"search": a.label, **row, LEFT_ALONE: a.mean("nothing")}
        for row in searches.curve_rows({BEST: scores(a)})
    ]


# ---- facts --------------------------------------------------------------------------------------


def log_loses_to(r: Records, narrow: int, wide: int) -> Fact:
    """Whether it is its position or its steps that makes a logarithmic format lose."""
    zeroed = {
        name: per_cent(trained(r, name).mean("weight_zeroed"))
        for name in (f"log({narrow})", f"log({narrow}) moved", f"log({wide})")
    }
    at_default, moved, wider = zeroed.values()
    return Fact(
        text=f"`log({narrow})` at its default position rounds {at_default} of the weights to zero, "
        f"moved to where they lie {moved}: there the position makes it look ineffective. "
        f"`log({wide})` rounds {wider} of them to zero: what it loses, its steps lose",
        of="weights of all Linear layers",
    )


def log_against_others(r: Records, bits: float) -> Fact:
    """The best logarithmic format of exactly so many bits and the best other one."""
    at = {"most_bits": bits, "least_bits": bits}
    found = strongest(r, keep=is_log, **at)
    rival = strongest(r, keep=lambda name: not is_log(name), **at)
    return Fact(
        text=f"At exactly {number(bits)} bits, a block's scale counted, {said(found)} has {found} "
        f"on test and {said(rival)} {rival}, {rival - found:+i}",
        of="of each kind the one that validation prefers; the interval is not corrected",
    )


def block_log(r: Records) -> Fact:
    """Powers of two under a scale that each block takes from the data, beside their default."""
    found = [trained(r, name) for name in (*families.FAMILIES["block log"], "log(4)")]
    shown = listed([f"{said(a)} {a}" for a in found])
    return Fact(
        text=f"On test {shown}; always answering with the larger class gives "
        f"{per_cent(larger_class(r))}",
        of=f"{found[0].accuracy.n:,} test sentences{of_models(found[0], ', {} models each')}",
    )


def nearly_good(r: Records, slack: float) -> Fact:
    """What is narrower than the formats that validation puts at most `slack` below FP32."""
    every, line = list(_every(r).values()), control(r).validation - slack
    good = [a for a in every if a.validation >= line] or [best_of(every)]
    least = min(a.value("bits") for a in good)
    below = [a for a in every if a.value("bits") < least]
    if not below:
        raise Pending("formats of fewer bits than the narrowest that is good enough")
    nearest, n = best_of(below), int(baseline.fp32(r).value("num_validation"))
    short = number(n * (line - nearest.validation))
    return Fact(
        text=f"Of formats of fewer than {number(least)} bits, validation prefers {said(nearest)}: "
        f"it answers {short} sentence{'s' * (short != '1')} of {n:,} too few to be good enough",
        of=f"{len(below)} formats, on the whole validation split"
        f"{of_models(nearest, ', means of {} models')}",
    )


def settled(r: Records, margin: float) -> Fact:
    """How many formats keep FP32's accuracy, and how many lose it."""
    found = list(verdicts(r, margin).values())
    keeps, loses, open_ = (found.count(what) for what in ("keeps", "loses", "not decided"))
    full = control(r)
    return Fact(
        text=f"{keeps} formats are shown to stay within {100 * margin:g} points of {full.label} "
        f"({full}), {loses} to lose more, and {open_} are not decided",
        of=f"{len(found)} formats, each on all layers, at the position where its descent "
        "ended, with intervals that hold for all of them at once and so are wider than a finding's "
        "alone",
    )


def training_pays(r: Records) -> Fact:
    """How many formats validation leaves untrained."""
    every, full = _every(r), control(r)
    taken = [rate for a in every.values() for rate in a.each("rate")]
    moved, rates = sum(name in MOVED for name in every), [f"{x:g}" for x in by_rate(full) if x]
    return Fact(
        text=f"Validation ({baseline.fp32(r).value('num_validation'):,} sentences) prefers "
        f"{taken.count(0)} of {len(taken)} quantized models as quantization leaves them (of "
        f"equally accurate ones by loss), the others trained on, {taken.count(max(taken))} at the "
        "largest rate on offer",
        of=f"{len(every) - moved} formats and {moved} of them moved, on {_models(full)}; "
        f"learning rates {' and '.join(rates)}, or none",
    )


def _models(a: Arm) -> str:
    return of_models(a, "each of {} models", "1 model")


def ends(r: Records) -> Fact:
    """Where the searches end, and where their own FP32 lies."""
    found = searched(r)
    low, high = min(found.values(), key=score), max(found.values(), key=score)
    mixed = combined(r)
    least, most = (pick(found.values(), key=_gain) for pick in (min, max))
    every = [(at, a.value("startup")) for a in (*found.values(), mixed) for at in found_at(a)]
    blind = sum(at <= startup for at, startup in every)
    return Fact(
        text=f"The families' searches end with scores from {per_cent(score(low))} to "
        f"{per_cent(score(high))}: {_points(_gain(least))} ({least.label}) to "
        f"{_points(_gain(most))} ({most.label}) from what all layers in FP32 score on the same "
        f"weights, {_points(_gain(mixed))} for the search over all formats. {blind} of "
        f"the {len(every)} searches found their best among the trials drawn at random that TPE "
        "begins with",
        of=f"{len(found)} families of {low.param('trials')} trials and one search of "
        f"{mixed.param('trials')} on {_models(mixed)}, on {low.param('probe_examples')} "
        "validation sentences",
    )


# ---- rows ---------------------------------------------------------------------------------------


def front_rows(r: Records) -> list[Row]:
    """Every model that was trained on; those that validation places on the front are named."""
    mixed = combined(r)
    drawn = [(group_of(name), trained(r, name)) for name in names(r)] + [(mixed.label, mixed)]
    bits, accuracies = [a.mean("bits") for _, a in drawn], [a.validation for _, a in drawn]
    on_front = searches.front(bits, accuracies)
    return [
        {
            "format": one.label,
            "formats": group,
            "bits": one.mean("bits"),
            "validation": one.validation,
            "test accuracy": one,
            "named": one.label if i in on_front else None,
        }
        for i, (group, one) in enumerate(drawn)
    ]


def format_rows(r: Records, margin: float) -> list[Row]:
    """Every format, the narrow ones first: before and after training, and the verdict."""
    full, decided, counted = control(r), verdicts(r, margin), once(r)
    differences = against(r, counted)
    rows: list[Row] = []
    for name, one in sorted(_every(r).items(), key=lambda pair: pair[1].value("bits")):
        rows.append(
            {
                "format": f"`{one.label}`",
                "bits": one.value("bits"),
                UNTRAINED: per_cent(untrained(one)),
                TAKEN: per_cent(one.validation),
                "rate taken": _rate(one),
                "test": one,
                "against FP32": differences[name][0] if name in counted else "see moved",
                "FP32's accuracy": decided.get(name, "see moved"),
            }
        )
    validation = {UNTRAINED: per_cent(untrained(full)), TAKEN: per_cent(full.validation)}
    last = {"format": "FP32", "bits": 32, **validation}
    return [*rows, {**last, "rate taken": _rate(full), "test": full}]


def _every(r: Records) -> dict[str, Arm]:
    return {name: trained(r, name) for name in names(r)}


def _rate(a: Arm) -> str:
    """What validation takes, and of how many models where they differ."""
    taken = Counter(f"{rate:g}" if rate else "untrained" for rate in sorted(a.each("rate")))
    if len(taken) == 1:
        return next(iter(taken))
    return ", ".join(f"{rate} ({count})" for rate, count in taken.items())


def untrained_rows(r: Records) -> list[Row]:
    """Every format right after quantization, on validation."""
    return [
        {
            "format": one.label,
            "formats": group_of(name),
            "zeroed": one.mean("weight_zeroed"),
            "validation accuracy": untrained(one),
        }
        for name, one in _every(r).items()
    ]


def search_rows(r: Records) -> list[Row]:
    """Every search: how large its space is, and what it found."""
    return [
        {
            "search": one.label,
            "choices a layer": one.param("choices"),
            "points": _rounded(one.value("points")),
            "trials": one.param("trials"),
            "best found at": ", ".join(map(str, found_at(one))),
            "best score": per_cent(score(one)),
            "its bits": best(one, "bits"),
            "kinds of layer in FP32": _in_fp32(one),
        }
        for one in (*searched(r).values(), combined(r))
    ]


def _in_fp32(a: Arm) -> str:
    """How many kinds of layer the best trial of each model leaves as they are."""
    left = [list(found["choices"].values()).count("fp32") for found in a.each("best")]
    return f"{', '.join(map(str, left))} of {len(a.value('kinds'))}"


def _rounded(count: int) -> str:
    """A count, or a large one in powers of ten: "about 3.5 × 10¹²"."""
    if count < 10**6:
        return f"{count:,}"
    digits, exponent = f"{count:.1e}".split("e")
    return f"about {digits} × 10{superscript(int(exponent))}"


def taken_rows(r: Records) -> list[Row]:
    """Which kind of layer took which format in the best model of each search over all formats."""
    found = combined(r)
    models = {f"seed {model.param('seed')}": model for model in found.models}
    chosen = {seed: one.value("best")["choices"] for seed, one in models.items()}
    rows = [
        {
            "layers": width_space.kind(kind),
            **{seed: f"`{short(given[kind])}`" for seed, given in chosen.items()},
        }
        for kind in found.value("kinds")
    ]
    bits = {seed: number(one.value("bits")) for seed, one in models.items()}
    tests = {seed: f"{one}" for seed, one in models.items()}
    return [*rows, {"layers": "bits per value", **bits}, {"layers": "test accuracy", **tests}]
