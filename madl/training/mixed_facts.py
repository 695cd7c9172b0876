"""What a page shows of the searches for a format for every layer: facts, maps and rows.

Every function takes arms by the name of their space; see `mixed_records` for what these hold.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from madl.logbook import stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, line, linear, percent, points
from madl.logbook.claims import Fact, Judged, contrast
from madl.logbook.records import Records, Row
from madl.logbook.stats import Unit, number, per_cent
from madl.training import mixed_records as records
from madl.training import widths
from madl.training.width_space import Space, block, kind, place

MOST_NAMED = 9  # layers in a sentence
Spaces = Mapping[str, Mapping[str, Arm]]  # of each space, its searches by their sampler


def of_each_space(of: Mapping[str, Arm], said: Callable[[str], str]) -> str:
    """One sentence a space, which begins with the space's name."""
    return " ".join(f"{space.capitalize()}, {said(space)}." for space in of).removesuffix(".")


def sampler_of(a: Arm) -> str:
    """What a sentence calls a search."""
    return {"Random": "random search"}.get(_sampler(a), f"{_sampler(a)}'s search")


def _sampler(a: Arm) -> str:
    """What a list of searches calls it."""
    return a.label.split(",")[0]


def bits(a: Arm) -> str:
    """Of a weight, the mean over the seeds."""
    return f"{fmean(records.bits(record, a.within) for record in a.records):.1f}"


def budget(a: Arm) -> str:
    """Bits per weight."""
    return f"{Space.of(a.records[0].case.params).budget:.1f}"


def of_trials(a: Arm) -> str:
    """How many were over the budget, of how many: what a sentence goes on from."""
    return f"{_over(a)} trials proposed models"


def _over(a: Arm) -> str:
    every = records.num_trials(a)
    return f"{every - len(records.within_budget(a))} of {every}"


def first(spaces: Spaces) -> dict[str, Arm]:
    """One search of each space."""
    return {space: next(iter(arms.values())) for space, arms in spaces.items()}


def rivals(spaces: Spaces, uniform: Mapping[str, Arm]) -> Fact:
    """How many formats on offer, for all layers, do better than every trial."""

    def said(space: str) -> str:
        given = records.alike(uniform[space])
        found = max(records.best_trial(a) for a in spaces[space].values())
        return (
            f"{sum(value > found for value in given)} of the {len(given)} formats on offer within "
            f"the budget, each for all layers, reach more than any trial of a search: the best of "
            f"them {per_cent(max(given))}, the best trial {per_cent(found)}"
        )

    a = next(iter(first(spaces).values()))
    return Fact(text=of_each_space(uniform, said), of=_on_trials(a))


def over_trials(spaces: Spaces) -> Fact:
    """How far the mean best so far comes, after the random trials and in the end."""
    a = next(iter(first(spaces).values()))
    startup = int(a.value("settings")["startup_trials"])

    def said(space: str) -> str:
        told = [
            f"{name}'s best grows {_grown(a, startup)}, and what it chooses has "
            f"{per_cent(a.validation)} on all of validation and {a} on test"
            for name, a in spaces[space].items()
        ]
        return "; ".join(told)

    after = min(startup, a.param("trials"))
    return Fact(
        text=of_each_space(first(spaces), said),
        of=f"the mean over studies after trial {after} and after trial {a.param('trials')}; "
        + _on_trials(a),
    )


def _grown(a: Arm, startup: int) -> str:
    reached = np.array(records.so_far(a))

    def mean_after(trials: int) -> str:
        found = reached[:, trials - 1]
        return "nothing" if np.isnan(found).all() else per_cent(float(np.nanmean(found)))

    trials = reached.shape[1]
    return f"from {mean_after(min(startup, trials))} to {mean_after(trials)}"


def _on_trials(a: Arm) -> str:
    searches = f"{a.param('studies')} searches of {a.param('trials')} trials a sampler"
    return f"{searches}, each trial on {a.param('trial_examples')} validation sentences"


def agreement(searched: Mapping[str, Arm]) -> Fact:
    """Which layers get the same width from all studies."""

    def said(space: str) -> str:
        a = searched[space]
        same, blind = records.agreeing(a)
        named = "; ".join(
            f"{width} bits: {', '.join(layer_name(x) for x in same if same[x] == width)}"
            for width in sorted(set(same.values()))
        )
        return (
            f"{_sampler(a)}'s {a.param('studies')} choices give the same width to "
            f"{len(same)} of {len(a.value('layers'))} layers"
            + (f" ({named})" if len(same) in range(1, MOST_NAMED + 1) else "")
            + f"; dealt out blindly, their widths would meet in about {number(blind)}"
        )

    return Fact(
        text=of_each_space(searched, said), of="the choices of all studies of one trained model"
    )


def which_are_narrow(sensitive: Arm, rivals: Sequence[Arm]) -> Fact:
    """The layers of a model of two formats, and how it and its rivals stand on validation."""
    given = {layer: choice[0] for layer, choice in sensitive.value("choices").items()}
    taken = {layer for layer, width in given.items() if width == min(given.values())}
    by_block: dict[str, list[str]] = {}
    for layer in given:
        by_block.setdefault(place(layer) if block(layer) is not None else layer, []).append(layer)
    whole = [name for name, of in by_block.items() if len(of) > 1 and taken.issuperset(of)]
    inside = {layer for name in whole for layer in by_block[name]}
    named = [*(f"all of {name}" for name in whole), *map(layer_name, sorted(taken - inside))]
    beside = ", ".join(f"{a.label} {per_cent(a.validation)}" for a in rivals)
    return Fact(
        text=f"The model put together by sensitivity has {min(given.values())} bits in "
        f"{', '.join(named)}, and {max(given.values())} in all others. On validation, where no "
        f"finding holds it against others, it has {per_cent(sensitive.validation)}; {beside}",
        of="layers of the first trained model; the whole validation split",
    )


def blind_orders(r: Records) -> Fact:
    """How the model put together by sensitivity and every blind order stand on validation."""
    made, dealt = arm(r, part="sensitivity"), arm(r, part="blind")
    tried: Sequence[Mapping[str, float]] = dealt.value("tried")
    losses = sorted(one["validation_loss"] for one in tried)
    shares = sorted(one["validation_accuracy"] for one in tried)
    loss, share = made.value("validation_loss"), made.value("validation_accuracy")
    place = 1 + losses.index(dealt.value("validation_loss"))
    return Fact(
        text=f"On validation, {sum(one < loss for one in losses)} of {len(tried)} blind orders "
        f"beat the order by sensitivity in loss ({number(losses[0])} to {number(losses[-1])} "
        f"against {number(loss)}), and {sum(one > share for one in shares)} in accuracy "
        f"({per_cent(shares[0])} to {per_cent(shares[-1])} against {per_cent(share)}). The one "
        f"that met the test split is first by accuracy and number {place} by loss; the others "
        "were not tested",
        of="models of the first seed; the whole validation split",
    )


def layer_name(layer: str) -> str:
    """`query of block 0`."""
    return kind(layer) if block(layer) is None else f"{kind(layer)} of {place(layer)}"


def furthest(alone: Arm, sensitive: Arm, most: int = 3) -> Fact:
    """Which layers move a loss furthest, by what is done to them alone."""

    def led(of: Arm, *within: str) -> str:
        moves = _thousandths(of, *within)
        order = sorted(moves, key=lambda layer: -moves[layer])[:most]
        return ", ".join(f"{layer_name(layer)} ({moves[layer]})" for layer in order)

    offered = [f"{change(alone, other)}: {led(alone, 'alone', other)}" for other in others(alone)]
    return Fact(
        text=f"Alone among layers of {format_name(alone.param('base'))}, these layers move a loss "
        f"furthest with {'; with '.join(offered)}. Narrower, they are {led(sensitive)}",
        of=f"all {len(alone.value('layers'))} layers; in thousandths of a nat, the mean over "
        f"{alone.param('sentences')} validation sentences, narrower over all",
    )


def others(alone: Arm) -> list[str]:
    """The formats that were tried in single layers."""
    return str(alone.param("others")).split(", ")


def change(alone: Arm, other: str) -> str:
    """What a format changes of the base: `fraction width 2`, or a width with its fraction width."""
    was, now = (tuple(map(int, text.split())) for text in (alone.param("base"), other))
    fraction = f"fraction width {now[1]}"
    return fraction if now[0] == was[0] else f"{now[0]} bits, {fraction}"


def format_name(choice: str) -> str:
    """`16 bits with fraction width 8`."""
    width, fraction, _ = choice.split()
    return f"{width} bits with fraction width {fraction}"


def further(a: Arm, one: Any, other: Any, here: str, there: str) -> Judged:
    """Whether a narrow layer moves a sentence's loss further in one place than in another.

    Shapes: one and other (sentences), in nats; of several models, their mean.
    """
    drawn = "validation sentences of 1 model" if len(a.records) == 1 else "sentences"
    made = stats.paired_mean(one.tolist(), other.tolist(), unit=Unit.NATS, drawn=drawn)
    said = "In the narrower space, a narrow layer moves a loss by"
    mine, others = (number(float(side.mean())) for side in (one, other))
    return contrast(made, a.records).judge(
        supported=f"{said} {mine} nats {here}, and by {others} {there}",
        refuted=f"{said} only {mine} nats {here}, and by {others} {there}",
        undecided=f"{said} {mine} nats {here}, which cannot be told from {others} {there}",
    )


def evaluations(spaces: Mapping[str, Arm], sensitive: Arm) -> Fact:
    """What the searches and the sensitivity cost."""

    def said(space: str) -> str:
        a = spaces[space]
        return f"{sampler_of(a)} takes {records.search_evaluations(a):,}"

    return Fact(
        text=f"{of_each_space(spaces, said)}; the model put together by sensitivity takes "
        f"{records.evaluations(sensitive):,}",
        of="evaluations of a validation sentence by all blocks, all that were made to choose "
        "for one trained model; without what the width study had chosen before",
    )


def coarse_heads(blind: Arm, fractions: Sequence[int]) -> Fact:
    """How often a blind draw is coarse in the head, and what that is worth."""
    coarsest = min(fractions)
    with_it = [trial["head"] == coarsest for trial in records.within_budget(blind)]
    reached = {head: records.best_trial(blind, head) for head in fractions}
    others = max(value for head, value in reached.items() if head != coarsest)
    return Fact(
        text=f"{sum(with_it)} of Random's {len(with_it)} trials give the pooler or the classifier "
        f"the coarsest fraction width. The best of them reaches {per_cent(reached[coarsest])}, the "
        f"best of the others {per_cent(others)}",
        of="Random's trials within the budget as asked for, on a trial's sentences",
    )


def apart(low: float, high: float, reviews: int) -> Fact:
    """When two accuracies on the same reviews differ by more than chance: McNemar's test.

    With a difference of d reviews and m on which the two disagree, z is d / sqrt(m).
    """
    count = round((high - low) * reviews)
    interval = stats.wilson(high, reviews)
    return Fact(
        text=f"{100 * low:.2f} % and {100 * high:.2f} % are {count} reviews apart: chance "
        "gives that to two models that are as good as each other, unless they disagree on fewer "
        f"than {int((count / stats.Z) ** 2) + 1} reviews. By itself each is known to within about "
        f"{100 * fmean((high - interval.low, interval.high - high)):.1f} points",
        of=f"{reviews:,} test reviews, McNemar's test in its normal approximation, at 5 %",
    )


# ---- pictures and tables ------------------------------------------------------------------------


def choices_map(asked: Arm, *others: Arm) -> Chart:
    """The widths of each layer; as asked for, also the bits behind the point."""
    shown = [(f"{a.label}: bits", a, 0) for a in (asked, *others)]
    shown.insert(1, (f"{asked.label}: behind the point", asked, 1))
    every = [(title, a.value("choices").items(), i) for title, a, i in shown]
    return records.layer_map(
        (title, x, choice[i]) for title, given, i in every for x, choice in given
    )


def front(
    judged: Mapping[str, Sequence[Mapping[str, Any]]], sentences: int, samplers: Iterable[str]
) -> Chart:
    """Validation accuracy against bits: lines, and points of what each sampler found."""
    found = [*samplers, "blind order"]
    lines = [line(name) for name in judged if name not in found]
    return Chart(
        records.by_bits(judged, sentences),
        x=linear("bits", "bits per weight"),
        y=percent("validation accuracy"),
        marks=[*lines, *map(points, found)],
    )


def moved_map(alone: Arm, sensitive: Arm) -> Chart:
    """How far each layer alone moves a loss: by each format as asked for, and narrower."""
    sides: list[tuple[Arm, tuple[str, ...]]] = [(alone, ("alone", x)) for x in others(alone)]
    rows = [
        (f"{a.param('space')}: {change(a, path[-1]) if path else 'narrow'}", layer, moves)
        for a, path in (*sides, (sensitive, ()))
        for layer, moves in _thousandths(a, *path).items()
    ]
    return records.layer_map(rows)


def _thousandths(a: Arm, *within: str) -> dict[str, int]:
    found = records.moved(a, lambda layer: layer, *within)
    return {layer: round(1e3 * float(by.mean())) for layer, by in found.items()}


def wide_points(r: Records, most: float) -> list[Mapping[str, Any]]:
    """The first models of these, at their bits."""
    found = wide_formats(r, most)
    return [{"bits": a.param("width"), **a.records[0].values} for a in found]


def wide_formats(r: Records, most: float) -> list[Arm]:
    """One format for all layers of up to so many bits, as 1.1 chose and judged them."""
    return [widths.ptq(r, x) for x in r.where(method="qat").each("width") if x <= most]


def model_row(space: str, name: str, a: Arm, sentences: int) -> Row:
    """A row of the table of models that met the test split."""
    counted = "studies" in a.records[0].values
    return {
        "space": space,
        "model": ", ".join([name, *_format_of(a)]),
        "budget, bits": budget(a) if space else "",
        "bits a weight": bits(a),
        "trials over it": _over(a) if counted else "",
        "validation": records.on_validation(a.validation, sentences),
        "test": a,
    }


def _format_of(a: Arm) -> list[str]:
    """What all layers take, as this page and 1.1 say it; nothing of a mixed model."""
    params = a.records[0].case.params
    if a.within:
        width, weights, inputs = a.value("choice")
    elif "frac_width" in params:
        width, weights, inputs = (
            params[name] for name in ("width", "frac_width", "input_frac_width")
        )
    else:
        return []
    formats = dict.fromkeys((f"fixed({width},{weights})", f"fixed({width},{inputs})"))
    return [" and for inputs ".join(formats)]
