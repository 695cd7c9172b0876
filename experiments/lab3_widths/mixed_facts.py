"""What a page says of the searches for a format for every layer: facts, and words of findings.

Every function takes arms by the name of their space; see `mixed_records` for what these hold.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from experiments.lab3_widths import mixed_records as records
from madl.logbook import stats
from madl.logbook.arms import Arm, arm, every_arm, of_models
from madl.logbook.claims import Fact, Judged, contrast
from madl.logbook.records import Records
from madl.logbook.stats import Unit, listed, number, numbers, per_cent, span
from madl.training import baseline, widths
from madl.training.width_facts import counted
from madl.training.width_space import Space, block, kind, place

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


def rival(a: Arm, other: str) -> str:
    """A claim's rival as its finding says it; of blind orders, what was chosen among them."""
    if "tried" not in a.records[0].values:
        return other
    orders = f"the best, on validation, of {a.param('draws')} blind orders of the same two formats"
    return f"{orders} at {bits(a)} bits, {a}"


def agreed(r: Records) -> Fact:
    """To how many layers all studies of a sampler give the same, on all models."""
    found = every_arm(r, part="search")
    width, fraction = (max(records.agreeing_on_all(a, part) for a in found) for part in (0, 1))
    studies = [study for of_one in records.chosen(found[0]) for study in of_one]
    return Fact(
        text=f"Of {len(studies[0])} layers, at most {width} {'has' if width == 1 else 'have'} the "
        f"same width in all studies of a sampler in a space, and at most {fraction} the same "
        "fraction width",
        of=f"{len(studies)} studies of each sampler in each space"
        f"{of_models(found[0], ', on {} models')}",
    )


def spaces(r: Records) -> Fact:
    """What a layer may take, and within what a model has to stay."""
    asked, narrower = (arm(r, part="uniform", space=x) for x in ("as asked for", "narrower"))
    wide, small = (Space.of(a.records[0].case.params) for a in (asked, narrower))
    return Fact(
        text=f"On offer to a layer, as asked for: {listed(wide.widths)} bits with "
        f"{listed(wide.fractions)} behind the point, for weight and input alike; within "
        f"{budget(asked)} bits a weight on average. Narrower: {listed(small.widths)} bits with "
        f"{listed(small.fractions)} behind the point of the weight and {listed(small.inputs)} of "
        f"the input; within {budget(narrower)}",
        of="the budget is the average of the widths on offer",
    )


def ends(r: Records) -> Fact:
    """Between which widths the narrower formats lie, and what one format for all has at these."""
    sensitive = arm(r, part="sensitivity")
    narrow, wide = (int(str(sensitive.param(end)).split()[0]) for end in ("narrow", "wide"))
    at = {bits: widths.chosen(r, "ptq", bits) for bits in (narrow, wide)}
    said = [f"{per_cent(a.validation)} at {bits} bits" for bits, a in at.items()]
    full = baseline.fp32(r)
    return Fact(
        text=f"The two widths are {narrow} and {wide} bits, set by hand: no rule on accuracy chose "
        f"them. One format for all layers has {listed(said)} on validation, FP32 "
        f"{per_cent(full.validation)}",
        of="the whole validation split, by which the format of each width was chosen"
        f"{of_models(at[wide], ', means of {} models')}",
    )


def eight_bits(chosen: Arm, offered: Arm, full: Arm) -> Fact:
    """One width for all layers that the question asks for, and what its fraction width does."""
    return Fact(
        text=f"Uniform {chosen.param('width')} bits have {chosen} on test with the fraction widths "
        f"that the study of one width for all chose, and {offered} with the best of those on offer "
        f"as asked for; FP32 has {full}",
        of=counted(chosen),
    )


def over_budget(a: Arm) -> str:
    """How many trials were over the budget, of how many."""
    every = records.num_trials(a)
    return f"{every - len(records.within_budget(a))} of {every}"


def first(spaces: Spaces) -> dict[str, Arm]:
    """One search of each space."""
    return {space: next(iter(arms.values())) for space, arms in spaces.items()}


def rivals(spaces: Spaces, uniform: Mapping[str, Arm]) -> Fact:
    """How many formats on offer, for all layers, do better than every trial on the same model."""
    a = next(iter(first(spaces).values()))

    def said(space: str) -> str:
        given = [records.alike(one) for one in uniform[space].models]
        by_sampler = (one.models for one in spaces[space].values())
        found = [max(map(records.best_trial, same)) for same in zip(*by_sampler, strict=True)]
        above = sum(value > best for values, best in zip(given, found) for value in values)
        return (
            f"{above} of the {sum(map(len, given))} formats on offer within the budget"
            f"{of_models(a, f' ({len(given[0])} for each of {{}} models)')}, each for all layers, "
            f"reach more than any trial of a search{of_models(a, ' on the same model')}: the best "
            f"of them {per_cent(fmean(map(max, given)))}, the best trial {per_cent(fmean(found))}"
        )

    means = of_models(a, "; the best are means over models")
    return Fact(text=of_each_space(uniform, said), of=_on_trials(a) + means)


def rival_formats(r: Records) -> Fact:
    """Among how many formats the one for all layers was chosen, and how many a search offered."""
    a = arm(r, part="uniform", space="narrower")
    width = int(a.param("tested"))
    tried = [x["choice"] for x in a.records[0].values["trials"] if x["choice"][0] == width]
    offered = [one for one in Space.of(a.records[0].case.params).uniform() if one[0] == width]
    chosen = [tuple(at[str(width)]["choice"]) for at in a.each("at")]

    def behind(formats: Iterable[Sequence[int]]) -> str:
        weights, inputs = ([one[i] for one in formats] for i in (1, 2))
        return f"{span(weights)} for weights, {span(inputs)} for inputs"

    known = sum(one in offered for one in chosen)
    return Fact(
        text=f"Narrower, the best format for all layers is one of {len(tried)} formats of "
        f"{width} bits (behind the point: {behind(tried)}). A search offers a layer "
        f"{len(offered)} of these ({behind(offered)}); what was chosen for {known} of "
        f"{stats.counted(len(chosen), 'model')} is among them",
        of="all that were tried at that width, the widest within the budget",
    )


def over_trials(spaces: Spaces, uniform: Mapping[str, Arm]) -> Fact:
    """How far the mean best so far comes, and what is left of it on all of validation."""
    a = next(iter(first(spaces).values()))
    startup = int(a.value("settings")["startup_trials"])

    def said(space: str) -> str:
        told = [
            f"{name}'s best grows {_grown(a, startup)} and has {per_cent(records.on_all(a))} on "
            "all of validation"
            for name, a in spaces[space].items()
        ]
        if both := records.best_on_both(uniform[space]):
            told.append("one format for all layers has {} and {}".format(*map(per_cent, both)))
        return "; ".join(told)

    after = min(startup, a.param("trials"))
    return Fact(
        text=of_each_space(first(spaces), said),
        of=f"the mean over all studies after trial {after} and after trial {a.param('trials')}; "
        f"{_on_trials(a)}; a format for all layers is the best on the same sentences of those "
        f"tried on both{of_models(a, ', chosen for each of {} models, the mean over them')}; of "
        "equals the first",
    )


def _grown(a: Arm, startup: int) -> str:
    reached = np.array(records.so_far(a))

    def mean_after(trials: int) -> str:
        found = reached[:, trials - 1]
        return "nothing" if np.isnan(found).all() else per_cent(float(np.nanmean(found)))

    trials = reached.shape[1]
    return f"from {mean_after(min(startup, trials))} to {mean_after(trials)}"


def _on_trials(a: Arm) -> str:
    studies = f"{a.param('studies') * len(a.records)} studies"
    by_model = of_models(a, f" ({a.param('studies')} on each of {{}} models)")
    return (
        f"{studies} of {a.param('trials')} trials a sampler{by_model}, each trial on "
        f"{a.param('trial_examples')} validation sentences"
    )


def which_are_narrow(sensitive: Arm, rivals: Mapping[str, Arm]) -> Fact:
    """The layers that models of two formats make narrow, and how they stand on validation."""
    given = [{x: choice[0] for x, choice in one.items()} for one in sensitive.each("choices")]
    few, many = min(given[0].values()), max(given[0].values())
    narrow = [{layer for layer, width in one.items() if width == few} for one in given]
    same, counts = set.intersection(*narrow), sorted({len(one) for one in narrow})
    others = Counter(layer for one in narrow for layer in one - same)
    beside = ", ".join(f"{name} {per_cent(a.validation)}" for name, a in rivals.items())
    every = f"{span(counts)} of {len(given[0])} layers"
    named = _in_blocks(given[0], same)
    some = ", ".join(f"{layer_name(x)} ({n} of {len(narrow)} models)" for x, n in others.items())
    alike = f"{every}: the same {len(same)} on all {{}} models ({named})"
    alike += f", and {some}" if some else ""
    return Fact(
        text=f"A model put together by sensitivity gives {few} bits to "
        f"{of_models(sensitive, alike, f'{every} ({named})')}. The others have {many}. On "
        f"validation such a model has {per_cent(sensitive.validation)}; {beside}",
        of=f"the whole validation split{of_models(sensitive, ', the mean over {} models')}",
    )


def _in_blocks(layers: Iterable[str], taken: set[str]) -> str:
    """The layers that were taken; a block of which all were, as a whole."""
    by_block: dict[str, list[str]] = {}
    for layer in layers:
        by_block.setdefault(place(layer) if block(layer) is not None else layer, []).append(layer)
    whole = [name for name, of in by_block.items() if len(of) > 1 and taken.issuperset(of)]
    inside = {layer for name in whole for layer in by_block[name]}
    return ", ".join(
        [*(f"all of {name}" for name in whole), *map(layer_name, sorted(taken - inside))]
    )


def blind_orders(r: Records) -> Fact:
    """How models put together by sensitivity and every blind order stand on validation."""
    made, dealt = arm(r, part="sensitivity"), arm(r, part="blind")

    def less(name: str) -> list[float]:
        return [
            one[name] - own
            for own, tried in zip(made.each(name), dealt.each("tried"), strict=True)
            for one in tried
        ]

    losses, shares = less("validation_loss"), less("validation_accuracy")
    places = [
        1 + sum(one["validation_loss"] < loss for one in tried)
        for loss, tried in zip(dealt.each("validation_loss"), dealt.each("tried"), strict=True)
    ]
    low, high = numbers([min(losses), max(losses)], sign=True, places=3)
    least, most = numbers([100 * min(shares), 100 * max(shares)], sign=True, places=1)
    tested = of_models(
        made,
        "Those that met the test split are the first by accuracy of the orders of their model, and "
        f"numbers {', '.join(map(str, places))} by loss",
        f"The one that met the test split is first by accuracy and number {places[0]} by loss",
    )
    return Fact(
        text=f"On validation, {sum(x < 0 for x in losses)} of {len(losses)} blind orders beat the "
        f"order by sensitivity{of_models(made, ' of their model')} in loss ({low} to {high} nats "
        f"from it), and {sum(x > 0 for x in shares)} in accuracy ({least} to {most} points from "
        f"it). {tested}; the others were not tested",
        of="the whole validation split"
        + of_models(made, f"; {len(losses) // len(places)} orders on each of {{}} models"),
    )


def layer_name(layer: str) -> str:
    """`query of block 0`."""
    return kind(layer) if block(layer) is None else f"{kind(layer)} of {place(layer)}"


def furthest(r: Records, most: int = 3) -> Fact:
    """Which layers move a loss furthest, by what is done to them alone."""
    alone, sensitive = arm(r, part="alone"), arm(r, part="sensitivity")

    def led(of: Arm, *within: str) -> str:
        moves = records.thousandths(of, *within)
        order = records.order(of, *within)[:most]
        alike = sum(records.order(one, *within)[:most] == order for one in of.models)
        said = ", ".join(f"{layer_name(layer)} ({moves[layer]})" for layer in order)
        return said + of_models(of, f", in this order on {alike} of {{}} models")

    offered = [f"{change(alone, x)} in {led(alone, 'alone', x)}" for x in others(alone)]
    same = "".join(
        f". With {change(alone, other)}, {layer_name(one)} and {layer_name(two)} change the loss "
        "of each sentence by the same"
        for other in others(alone)
        for one, two in records.same_changes(alone, "alone", other)
    )
    return Fact(
        text=f"Where all layers but one have {format_name(alone.param('base'))}, a loss moves "
        f"furthest with {'; with '.join(offered)}. Narrower, it moves furthest with the narrow "
        f"format in "
        f"{led(sensitive)}{same}",
        of=f"all {len(alone.value('layers'))} layers; in thousandths of a nat, the mean over "
        f"{alone.param('sentences')} validation sentences, narrower over all"
        f"{of_models(alone, ', and over {} models')}",
    )


def kinds(r: Records) -> Fact:
    """Every kind of layer where the first one is tested, in all blocks and in the early ones."""
    a = arm(r, part="sensitivity")
    is_early = records.early(a)
    every, alone = records.moved(a, kind), records.moved(a, lambda layer: layer)
    order = sorted(every, key=lambda name: -float(every[name][::2].mean()))
    moves, single, early = (
        {name: float(by[1::2].mean()) for name, by in found.items()}
        for found in (every, alone, records.moved(a, lambda x: kind(x) if is_early(x) else None))
    )
    ahead = [
        f"{layer_name(x)} ({number(by)})"
        for x, by in single.items()
        if kind(x) != order[0] and by > moves[order[0]]
    ]

    def told(found: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {number(found[name])}" for name in order if name in found)

    strongest = max(order[1:], key=lambda name: moves[name])
    return Fact(
        text=f"Where {order[0]} was chosen as the first, {order[1]} was second; on the sentences "
        f"that test it, the strongest of the others is {strongest} ({number(moves[strongest])}). "
        f"By kind: {told(moves)}. In the first half of the blocks alone: {told(early)}. "
        f"Single layers of another kind above {number(moves[order[0]])}: "
        f"{', '.join(ahead) or 'none'}",
        of="in nats, on the sentences that test the finding, narrower; of a kind in the blocks, "
        f"the mean of a layer a block{of_models(a, ', and over {} models')}; the pooler and the "
        "classifier are one layer each",
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
    drawn = f"validation sentences {of_models(a, 'in the mean of {} models', 'of 1 model')}"
    made = stats.paired_mean(one.tolist(), other.tolist(), unit=Unit.NATS, drawn=drawn)
    said = "In the narrower space, a narrow layer moves a loss by"
    mine, others = (number(float(side.mean())) for side in (one, other))
    return contrast(made, a.records).judge(
        supported=f"{said} {mine} nats {here}, and by {others} {there}",
        refuted=f"{said} only {mine} nats {here}, and by {others} {there}",
        undecided=f"{said} {mine} nats {here}, and by {others} {there}: a difference that is not "
        "decided",
    )


def evaluations(spaces: Spaces, preferred: Mapping[str, Arm], sensitive: Arm) -> Fact:
    """What the searches and the sensitivity cost."""

    def said(space: str) -> str:
        both = sum(map(records.search_evaluations, spaces[space].values()))
        a = preferred[space]
        return (
            f"{sampler_of(a)} takes {records.search_evaluations(a):,} evaluations ({both:,} with "
            "the sampler that validation preferred it to)"
        )

    return Fact(
        text=f"{of_each_space(preferred, said)}; the model put together by sensitivity takes "
        f"{records.evaluations(sensitive):,}",
        of="an evaluation is of one validation sentence by all blocks; all that were made for "
        f"{of_models(sensitive, 'a model, the mean over {} models', 'one model')}, without what "
        "the width study had chosen before",
    )


def coarse_heads(r: Records) -> Fact:
    """How often a blind draw is coarse in the head, and what that is worth."""
    blind, guided = (
        arm(r, part="search", space="as asked for", sampler=x) for x in ("random", "tpe")
    )
    uniform = arm(r, part="uniform", space="as asked for")
    fractions = Space.of(blind.records[0].case.params).fractions
    coarsest = min(fractions)
    with_it = [trial["head"] == coarsest for trial in records.within_budget(blind)]
    finer = [head for head in fractions if head != coarsest]
    best = fmean(records.best_trial(one, coarsest) for one in blind.models)
    others = fmean(max(records.best_trial(one, x) for x in finer) for one in blind.models)
    return Fact(
        text=f"Over the budget, and never evaluated, are {over_budget(blind)} trials that Random "
        f"proposed and {over_budget(guided)} that TPE proposed. Of the {len(with_it)} left of "
        f"Random's, {sum(with_it)} give the pooler or the classifier the coarsest fraction "
        f"width. The best of these reaches {per_cent(best)}, the best of the others "
        f"{per_cent(others)}; the best format on offer for all layers has "
        f"{per_cent(records.best_alike(uniform))}",
        of="as asked for, on a trial's sentences"
        f"{of_models(blind, '; trials of all {} models, the best of each and their means')}",
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
