"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it and is worth its accuracy on
validation sentences. Every study has a draw of its own: the sampler's seed, and the sentences that
its trials train on, with their order. The studies are the units; those of one draw are a pair. What
a study chooses is judged on test sentences, beside the whole model with the same training. How far
a trial ranks sub-networks as a training on all sentences does is measured on points drawn blindly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

from experiments.lab2_samplers.records import SIZES, STEM, shape
from madl.logbook import searches, stats
from madl.logbook.arms import SEED, Arm
from madl.logbook.charts import Chart, category, intervals, level, linear, points
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import Estimate, Unit
from madl.training import baseline

page = Experiment(title="Architecture search: random, grid, TPE", needs=("earlier_baseline",))

SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
WHOLE = "whole model"
DRAWS = 1000  # more than a model has studies: no two studies share a draw
CLOSE = 0.02  # of accuracy: what a search may give away to the whole model


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "space": "coarse",
            "identity": "by kind",
            "trial_examples": choose(smoke=32, quick=1024),
            "trial_learning_rate": 2e-4,
            "trial_batch_size": 16,
            "choose_examples": choose(smoke=32, quick=500),
        }
        if seed == 0:
            yield {**base, "part": "audit"}
        for study in range(choose(smoke=2, quick=5)):
            one = {**base, "study": study, "draw": DRAWS * seed + study}
            for sampler in SAMPLERS:
                trials = choose(smoke=12, quick=30)
                yield {**one, "part": "study", "sampler": sampler, "trials": trials}
            yield {**one, "part": "whole"}
            ranked = {"points": choose(smoke=3, quick=4)}
            ranked |= {"longer_examples": choose(smoke=64, quick=None)}  # None: all
            yield {**one, "part": "ranking", **ranked}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_samplers import study

    return study.run(params, ctx)


# ---- the studies --------------------------------------------------------------------------------


def studies(r: Records, sampler: str) -> Records:
    return r.of(STEM).all(part="study", sampler=sampler)


def found(study: Record) -> float:
    """The best of a study's trials, on validation."""
    return study.values["accuracy"]


def so_far(study: Record) -> list[float]:
    return searches.best_so_far(study.values["values"])


def startup(r: Records) -> int:
    """How many of its first trials TPE draws at random."""
    return studies(r, "tpe")[0].values["settings"]["startup_trials"]


def chosen_point(study: Record) -> dict[str, Any]:
    """The sub-network that a study chose."""
    at = searches.found_at(study.values["values"])
    return dict(zip(study.values["names"], study.values["points"][at - 1], strict=True))


def choices(r: Records, sampler: str) -> Arm:
    """What each study of a sampler chose, on test."""
    return Arm(label=SAMPLERS[sampler], records=tuple(studies(r, sampler)), within=("judged",))


def whole(r: Records) -> Arm:
    """The whole model after the training of each draw's trials, on test."""
    every = tuple(r.of(STEM).all(part="whole"))
    return Arm(label=WHOLE, records=every, within=("judged",))


def untouched(r: Records) -> Arm:
    """The model that is cut, as it was, once for each draw."""
    fp32 = baseline.fp32(r)
    of = {record.case.params[SEED]: record for record in fp32.records}
    every = tuple(of[record.case.params[SEED]] for record in whole(r).records)
    return Arm(label=fp32.label, records=every)


def paired(a: Arm, b: Arm) -> Contrast:
    """A against B on test: studies are the units, two of one draw a pair."""
    sides = [[[outcomes] for outcomes in one.outcomes] for one in (a, b)]
    made = stats.compare_groups(*sides, of=searches.STUDIES)
    return contrast(made, [*a.records, *b.records])


def paired_values(a: Records, b: Records, value: Callable[[Record], float]) -> Contrast:
    """The same of a number that each study has on validation."""
    sides = [list(map(value, one)) for one in (a, b)]
    return contrast(stats.paired_mean(*sides, unit=Unit.POINTS, drawn=searches.STUDIES), [*a, *b])


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def tpe_chooses_better(r: Records) -> Contrast:
    """On test, what TPE's studies choose is more accurate than what Random's choose."""
    return paired(choices(r, "tpe"), choices(r, "random"))


@page.claim(primary=True)
def search_beats_none(r: Records) -> Contrast:
    """On test, what TPE's studies choose is more accurate than the whole model after the same
    training, which takes no search."""
    return paired(choices(r, "tpe"), whole(r))


@page.claim(primary=True)
def tpe_finds_more(r: Records) -> Contrast:
    """On validation, TPE's studies end at a higher accuracy than Random's."""
    return paired_values(studies(r, "tpe"), studies(r, "random"), found)


@page.claim
def tpe_comes_close(r: Records) -> Contrast:
    """TPE's choices are at most two points below the whole model after the same training."""
    return search_beats_none(r).no_worse(CLOSE)


@page.claim
def tpe_chooses_better_by_model(r: Records) -> Contrast:
    """TPE's choices over Random's, the fine-tuned models as units, five studies each."""
    sides = (replace(choices(r, one), units=searches.STUDIES) for one in ("tpe", "random"))
    return compare(*sides)


@page.claim
def tpe_over_grid(r: Records) -> Contrast:
    """TPE's choices over Grid's, on test."""
    return paired(choices(r, "tpe"), choices(r, "grid"))


@page.claim
def grid_over_random(r: Records) -> Contrast:
    """Grid's choices over Random's, on test."""
    return paired(choices(r, "grid"), choices(r, "random"))


@page.claim
def tpe_proposes_better(r: Records) -> Contrast:
    """TPE's mean trial after its start-up over Random's, on validation."""
    first = startup(r)

    def later(study: Record) -> float:
        return fmean(study.values["values"][first:])

    return paired_values(studies(r, "tpe"), studies(r, "random"), later)


@page.claim
def search_beats_the_start(r: Records) -> Contrast:
    """TPE's choices over the fine-tuned model without a search or a trial's training, on test."""
    return paired(choices(r, "tpe"), untouched(r))


@page.claim
def trials_rank(r: Records) -> Contrast:
    """Rank correlation between a trial and a training on all sentences, draw by draw."""
    every = r.of(STEM).all(part="ranking")
    each = [searches.rank_correlation(*_twice(one)) for one in every]
    return contrast(stats.mean(each, unit=Unit.CORRELATION, drawn="draws"), every)


def _twice(one: Record) -> tuple[list[float], list[float]]:
    return one.values["trial"], one.values["longer"]


# ---- numbers ------------------------------------------------------------------------------------


def on_validation(r: Records, sampler: str) -> Contrast:
    """What a sampler's studies found, their mean."""
    every = studies(r, sampler)
    made = stats.mean(list(map(found, every)), unit=Unit.PERCENT, drawn=searches.STUDIES)
    return contrast(made, every)


def keeping(r: Records, name: str) -> Counted:
    """How many of TPE's studies choose the largest size there is."""
    every = studies(r, "tpe")
    most = max(point[name] for point in map(chosen_point, every))
    return counted(sum(chosen_point(one)[name] == most for one in every), of=every)


def of_whole_draws(r: Records, best: bool) -> Counted:
    """Validation accuracy of the whole model: an end of its draws."""
    ends = sorted(r.of(STEM).all(part="whole"), key=found)
    one = ends[-1 if best else 0]
    return counted(round(100 * found(one)), "%", of=[one])


def started_alike(r: Records) -> Counted:
    """Points of TPE's start-up that Random draws from the same seed, too."""
    a, b = studies(r, "tpe"), studies(r, "random")
    n = startup(r)
    same = sum(
        x == y
        for one, other in zip(a, b, strict=True)
        for x, y in zip(one.values["points"][:n], other.values["points"][:n], strict=True)
    )
    return counted(same, of=[*a, *b])


def first_alike(r: Records) -> Counted:
    """Draws in which a trial and the longer training put the same point first."""
    every = r.of(STEM).all(part="ranking")
    same = sum(a.index(max(a)) == b.index(max(b)) for a, b in map(_twice, every))
    return counted(same, of=every)


def linear_layers(r: Records, square: bool) -> Counted:
    one = r.of(STEM).one(part="audit")
    layers = dict(one.values["linear_layers"])
    every = layers.pop("all")
    return counted(sum(layers.values()) if square else every, of=[one])


page.numbers(
    tpe_found=partial(on_validation, sampler="tpe"),
    random_found=partial(on_validation, sampler="random"),
    tpe=partial(choices, sampler="tpe"),
    whole=whole,
    startup=lambda r: counted(startup(r), of=studies(r, "tpe")),
    started_alike=started_alike,
    studies=lambda r: counted(len(studies(r, "tpe")), of=studies(r, "tpe")),
    grid_size=lambda r: counted(studies(r, "grid")[0].values["num_points"], of=studies(r, "grid")),
    deep=partial(keeping, name="num_hidden_layers"),
    wide=partial(keeping, name="hidden_size"),
    rank=trials_rank,
    first_alike=first_alike,
    draws=lambda r: counted(len(r.of(STEM).all(part="ranking")), of=r.of(STEM).all(part="ranking")),
    whole_low=partial(of_whole_draws, best=False),
    whole_high=partial(of_whole_draws, best=True),
    square=partial(linear_layers, square=True),
    linears=partial(linear_layers, square=False),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    rows = searches.mean_rows(
        {title: list(map(so_far, studies(r, sampler))) for sampler, title in SAMPLERS.items()}
    )
    beside = level(fmean(map(found, r.of(STEM).all(part="whole"))), WHOLE)
    return searches.curves_chart(
        rows, accuracy="best validation accuracy so far", startup=startup(r), levels=[beside]
    )


@page.chart
def lead(r: Records) -> Chart:
    """Each study's choice less the whole model of the same draw, on test; without intervals."""
    pairs = [(name, a, b) for name in SAMPLERS for a, b in _pairs(choices(r, name), whole(r))]
    rows = [{"sampler": SAMPLERS[n], "study": replace(a - b, interval=None)} for n, a, b in pairs]
    return Chart(
        rows,
        x=category("sampler"),
        y=linear(label="test accuracy less the whole model", unit="points", factor=100),
        marks=[level(0.0, WHOLE), points("study", by="sampler")],
    )


def _pairs(a: Arm, b: Arm) -> list[tuple[Arm, Arm]]:
    return list(zip(a.models, b.models, strict=True))


@page.chart
def cuts(r: Records) -> Chart:
    """What the smallest value of each choice does to the mean of blindly drawn trials.

    The mean of the trials with the smallest value less that of those with the largest, draw by
    draw; trials of Random and Grid.
    """
    blind = list(zip(studies(r, "random"), studies(r, "grid"), strict=True))
    rows: list[Row] = []
    for effect in r.of(STEM).one(part="audit").values["space"]:
        name, ends = effect["name"], sorted(effect["values"], key=lambda v: (v == "linear", v))
        each = [[_scores(pair, name, value) for value in (ends[0], ends[-1])] for pair in blind]
        change = [fmean(small) - fmean(large) for small, large in each if small and large]
        rows.append(
            {"cut": _cut(name, ends), "change": searches.mean_estimate(change, Unit.POINTS)}
        )
    return Chart(
        rows,
        x=linear("change", "validation accuracy of a mean trial", "points", factor=100),
        y=category("cut", ""),
        marks=[intervals("change")],
    )


def _scores(pair: Sequence[Record], name: str, value: Any) -> list[float]:
    """Of the trials of these studies that have this value."""
    return [
        score
        for one in pair
        for point, score in zip(one.values["points"], one.values["values"], strict=True)
        if point[one.values["names"].index(name)] == value
    ]


def _cut(name: str, ends: Sequence[Any]) -> str:
    if name not in SIZES:
        return f"{name.replace('_', ' ')}: identity"
    return f"{SIZES[name].format(ends[0])}, not {ends[-1]}"


@page.table
def samplers(r: Records) -> Sequence[Row]:
    first = startup(r)
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        every, a = studies(r, sampler), choices(r, sampler)
        curve = list(map(so_far, every))
        at = median(searches.found_at(one.values["values"]) for one in every)
        rows.append(
            {
                "sampler": title,
                f"after {first} trials": _mean([one[first - 1] for one in curve]),
                f"after {len(curve[0])} trials": _mean([one[-1] for one in curve]),
                "found at trial": f"{at:g}",
                "choices on test": a,
                "less the whole model": a - whole(r),
            }
        )
    return [*rows, {"sampler": f"{WHOLE}, no search", "choices on test": whole(r)}]


def _mean(values: Sequence[float]) -> Estimate:
    return searches.mean_estimate(values)


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """What every study chose, draw by draw, on test; the shape of TPE's."""
    arms = [*(choices(r, sampler) for sampler in SAMPLERS), whole(r)]
    return [
        {
            "model and draw": f"{one.case.params[SEED]}, {one.case.params['study']}",
            "TPE's shape": shape(chosen_point(one)),
            **{arm.label: str(arm.models[i]) for arm in arms},
        }
        for i, one in enumerate(studies(r, "tpe"))
    ]


@page.table
def audit(r: Records) -> Sequence[Row]:
    """What each parameter changes of what is built, here and in a `BertConfig`."""
    values = r.of(STEM).one(part="audit").values
    return [
        {
            "parameter": f"`{effect['name']}`",
            "set": where,
            "values": ", ".join(map(str, effect["values"])),
            "changes": " and ".join(effect["changes"]) or "nothing",
        }
        for where, key in (("searched here", "space"), ("in `BertConfig`", "course"))
        for effect in values[key]
    ]
