"""What is counted over the studies of the architecture search, and cannot come out otherwise."""

from collections import Counter
from statistics import fmean

from madl.logbook import searches, stats
from madl.logbook.claims import Fact
from madl.logbook.records import Records
from madl.training.architecture_records import (
    SAMPLERS,
    best_value,
    chosen_point,
    counted,
    named,
    startup,
    studies,
    untouched,
    whole,
)


def growth(r: Records) -> Fact:
    """What the question asks: the best so far after some numbers of trials."""
    first, last = startup(r), len(studies(r, "tpe")[0].values["values"])
    looked = (first, (first + last) // 2, last)

    def told(sampler: str) -> str:
        curves = [searches.best_so_far(one.values["values"]) for one in studies(r, sampler)]
        means = [stats.per_cent(fmean(one[at - 1] for one in curves)) for at in looked]
        return f"{stats.listed(means)} under {SAMPLERS[sampler]}"

    beside = stats.per_cent(fmean(best_value(one) for one in whole(r).records))
    as_it_was = stats.per_cent(untouched(r).validation)
    return Fact(
        text=f"After {stats.listed(looked)} trials, the best so far on validation is "
        f"{', '.join(map(told, SAMPLERS))}; the {whole(r).label}, has {beside}, and "
        f"the same model without that training, as it was fine-tuned, {as_it_was}",
        of=f"means of {counted(studies(r, 'tpe'))}",
    )


def startup_is_random(r: Records) -> Fact:
    """What of TPE is not TPE."""
    first = startup(r)
    pairs = [
        (a, b)
        for x, y in zip(studies(r, "random"), studies(r, "tpe"), strict=True)
        for a, b in zip(x.values["points"][:first], y.values["points"][:first], strict=True)
    ]
    return Fact(
        text=f"Of the points in the first {first} trials of TPE's studies, "
        f"{sum(a == b for a, b in pairs)} are those that Random draws from the same seed",
        of=f"{len(pairs)} points",
    )


def chosen(r: Records) -> Fact:
    """What most of TPE's choices have in common, choice by choice."""
    every = [chosen_point(one) for one in studies(r, "tpe")]
    said: list[str] = []
    for name in every[0]:
        (value, times), *_ = Counter(point[name] for point in every).most_common(1)
        said.append(f"{named(name, value)} ({times})")
    return Fact(
        text=f"Choice by choice, TPE's studies choose most often {stats.listed(said)}",
        of=f"{len(every)} choices",
    )


def first_alike(r: Records) -> Fact:
    """How often a trial and a longer training put the same point first."""
    every = [(one.values["trial"], one.values["longer"]) for one in r.all(part="ranking")]
    same = sum(trial.index(max(trial)) == longer.index(max(longer)) for trial, longer in every)
    points = len(every[0][0])
    return Fact(
        text="Of the points drawn at random, the one that a trial puts first is first on test "
        f"after the longer training in {same} of {len(every)} draws; by chance it would be in one "
        f"of {points}",
        of=f"{points} points a draw",
    )


def whole_varies(r: Records) -> Fact:
    """How far a draw alone moves the searches' rival."""
    lowest, *others = map(stats.per_cent, sorted(map(best_value, whole(r).records)))
    return Fact(
        text=f"The {whole(r).label}, has {lowest} on validation after one draw's training and "
        f"{others[0]} to {others[-1]} after the others'",
        of=f"{1 + len(others)} trainings",
    )


def what_may_be_an_identity(r: Records) -> Fact:
    """Which layers are square."""
    square = dict(r.one(part="audit").values["linear_layers"])
    every = square.pop("all")
    return Fact(
        text=f"{sum(square.values())} Linear layers have as many outputs as inputs, and so may be "
        f"an identity: {', '.join(name.replace('_', ' ') for name in square)}; the others, those "
        "of the FFN and the classifier, have not",
        of=f"{every} Linear layers of the whole model",
    )


def idle_in_bert_config(r: Records) -> Fact:
    """Names that a search could set in vain."""
    course = r.one(part="audit").values["course"]
    idle = [f"`{effect['name']}`" for effect in course if not effect["changes"]]
    return Fact(
        text=f"Setting {' or '.join(idle) or 'none of these names'} in a `BertConfig` changes "
        "nothing of the model that is built",
        of=f"{len(course)} names were tried",
    )
