"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and looks at its
validation loss. A study has a draw of its own: the sampler's seed, and the sentences that its
trials train on. What a study chooses is trained in full and judged on test. TPE and Random search
on every draw and are a pair there; Grid searches on the first.

Units: losses in nats.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

from experiments.lab2_samplers.records import (
    COMPARED,
    SAMPLERS,
    SIZES,
    STEM,
    STUDIES,
    choices,
    chosen_point,
    found,
    shape,
    studies,
    trials,
    whole_trained,
)
from madl.logbook import searches, stats
from madl.logbook.arms import SEED, Arm
from madl.logbook.charts import Chart, category, intervals, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CONFIRMING_SEEDS, CUT, TUNING_SEED, Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import Unit
from madl.training import baseline

page = Experiment(
    title="Architecture search: random, grid, TPE", needs=("baseline",), requires=(CUT,)
)

PAIRS = 2  # draws a seed, on which TPE and Random search: seven points apart on the tuning seed
DRAWS = 100  # more than a seed has: no two studies share a draw
TRIALS, SHORT = 30, 6  # a study's; the beginning of one, to be run again
CLOSE = 0.02  # of accuracy: what a search may give away to the whole model
TIE = 1e-2  # nats of validation loss, less than five hundred sentences tell apart
# Rates of the training in full: of what is cut (the mean of both choices), and of the whole model.
# The smallest that is within TIE of the best of both, where there is one, is that of both.
TRIED = {"cut": (3e-5, 1e-4, 3e-4, 1e-3), "whole": (3e-5, 1e-4, 3e-4)}
RATES = {"cut": 1e-4, "whole": 1e-4}
PREFERRED = 3e-4  # what Random's choice alone would have
# The whole model that what was chosen is held against is the one of less validation loss on the
# tuning seed: as the search found it (left alone), or trained in full as well.
LEFT_ALONE = True


# ---- cases --------------------------------------------------------------------------------------


def searching(plan: Plan, seed: int, study: int = 0) -> Params:
    """What the trials of a draw share."""
    choose = plan.profile.choose
    return {
        **baseline.drawn_params(plan, seed),
        "trial_draw": DRAWS * seed + study,
        "trial_examples": choose(smoke=32, quick=1024),
        "trial_learning_rate": 2e-4,
        "trial_batch_size": 16,
    }


def in_full(plan: Plan, rate: float) -> Params:
    """A pass over all training sentences."""
    examples = plan.profile.choose(smoke=32, quick=None)
    return {"full_examples": examples, "full_learning_rate": rate, "full_batch_size": 16}


def study_of(plan: Plan, sampler: str, cut: float, whole: float) -> Params:
    """A study, and the rates of what it chooses: a cut, or the whole model."""
    trials = plan.profile.choose(smoke=12, quick=TRIALS)
    rates = {**in_full(plan, cut), "whole_learning_rate": whole}
    return {"part": "study", "sampler": sampler, "trials": trials, **rates}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, searching(plan, TUNING_SEED)
    yield {**base, "part": "left alone"}
    for rate in choose(smoke=TRIED["whole"][:1], quick=TRIED["whole"]):
        yield {**base, "part": "whole", **in_full(plan, rate)}
    for rate in choose(smoke=TRIED["cut"][:1], quick=TRIED["cut"]):
        for sampler in COMPARED:
            yield {**base, **study_of(plan, sampler, rate, rate)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    first, rates = searching(plan, plan.seeds[0]), (RATES["cut"], RATES["whole"])
    yield {**first, "part": "audit"}
    yield {**first, "part": "beginning", "sampler": "random", "trials": SHORT}
    pairs = range(plan.profile.choose(smoke=2, quick=PAIRS))
    draws = [(seed, study) for seed in plan.seeds for study in pairs]
    for draw in draws:
        for sampler in COMPARED:
            yield {**searching(plan, *draw), **study_of(plan, sampler, *rates)}
    for seed in plan.seeds:
        yield {**searching(plan, seed), "part": "whole", **in_full(plan, RATES["whole"])}
    yield {**first, **study_of(plan, "grid", *rates)}
    for draw in draws:  # last: what the same searches found, trained at another rate
        preferred = study_of(plan, "random", PREFERRED, RATES["whole"])
        yield {**searching(plan, *draw), **preferred, "part": "preferred rate"}


@page.quick
def quick(params: Params) -> bool:
    return params["part"] in ("audit", "beginning")


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_samplers import study

    return study.run(params, ctx)


# ---- arms and claims ----------------------------------------------------------------------------


def whole(r: Records) -> Arm:
    """The uncut model that validation loss prefers on the tuning seed, once a seed."""
    return replace(baseline.fp32(r) if LEFT_ALONE else whole_trained(r), label="uncut model")


def beside(models: Arm, chosen: Arm) -> Arm:
    """One model a seed, once for each study of an arm."""
    by_seed = {record.case.params[SEED]: record for record in models.records}
    again = tuple(by_seed[record.case.params[SEED]] for record in chosen.records)
    return replace(models, records=again, units=STUDIES)


def over_studies(a: Arm, b: Arm) -> Contrast:
    """A against B on test: the studies are the units, two of one draw a pair."""
    sides = [[[outcomes] for outcomes in one.outcomes] for one in (a, b)]
    return contrast(stats.compare_groups(*sides, of=STUDIES), [*a.records, *b.records])


@page.claim(primary=True)
def tpe_chooses_better(r: Records) -> Contrast:
    """Trained in full, what TPE's studies choose is more accurate than what Random's choose."""
    return over_studies(choices(r, "tpe"), choices(r, "random"))


@page.claim
def tpe_comes_close(r: Records) -> Contrast:
    """What TPE's studies choose, trained in full, is at most two points less accurate than the
    whole model, left alone or trained as long, whichever validation loss prefers."""
    tpe = choices(r, "tpe")
    return compare(tpe, beside(whole(r), tpe)).no_worse(CLOSE)


@page.claim
def tpe_chooses_better_by_model(r: Records) -> Contrast:
    """TPE's choices over Random's, with fine-tuned models as units and studies averaged in each."""
    return compare(choices(r, "tpe"), choices(r, "random"))


@page.claim
def tpe_beside_random_at_its_rate(r: Records) -> Contrast:
    """TPE's choices over Random's, trained at the rate that Random's prefers on the tuning seed."""
    again = tuple(r.of(STEM).all(part="preferred rate"))
    return over_studies(choices(r, "tpe"), replace(choices(r, "random"), records=again))


@page.claim
def tpe_beside_whole_trained(r: Records) -> Contrast:
    """TPE's choices over the whole model, both trained in full."""
    tpe = choices(r, "tpe")
    return compare(tpe, beside(whole_trained(r), tpe))


@page.claim
def random_beside_whole(r: Records) -> Contrast:
    """Random's choices over the whole model that TPE's are held against."""
    random = choices(r, "random")
    return compare(random, beside(whole(r), random))


@page.claim
def tpe_finds_less_loss(r: Records) -> Contrast:
    """Validation loss of the best trial: Random's over TPE's."""
    tpe, random = (studies(r, sampler) for sampler in ("tpe", "random"))
    sides = [list(map(found, every)) for every in (random, tpe)]
    made = stats.paired_mean(*sides, unit=Unit.NATS, drawn=STUDIES)
    return contrast(made, [*tpe, *random])


# ---- numbers ------------------------------------------------------------------------------------


def startup(r: Records) -> int:
    """How many of its first trials TPE draws at random."""
    return studies(r, "tpe")[0].values["settings"]["startup_trials"]


def so_far(study: Record) -> list[float]:
    """After every trial, the validation accuracy of the one of the least loss until then."""
    losses, accuracies = study.values["losses"], study.values["accuracies"]
    best = (min(range(i + 1), key=losses.__getitem__) for i in range(len(losses)))
    return [accuracies[i] for i in best]


def found_at(study: Record) -> int:
    """The trial that a study chose."""
    return study.values["losses"].index(found(study)) + 1


def kept(every: Iterable[Record]) -> Counted:
    """Of the whole model's parameters, those of what these studies chose: the mean."""
    some = list(every)
    share = fmean(one.values["parameters"] / one.values["whole"]["parameters"] for one in some)
    return counted(round(100 * share), "%", of=some)


def number_with(r: Records, is_so: Callable[[Record], bool]) -> Counted:
    """How many of TPE's studies are so."""
    every = studies(r, "tpe")
    return counted(sum(map(is_so, every)), of=every)


def keeps_all(r: Records, name: str, sampler: str = "tpe") -> Counted:
    """How many of a sampler's studies choose the largest size that any of TPE's does."""
    largest: Any = max(chosen_point(one)[name] for one in studies(r, "tpe"))  # type: ignore[type-var]
    every = studies(r, sampler)
    return counted(sum(chosen_point(one)[name] == largest for one in every), of=every)


def lead(r: Records, share: float) -> Contrast:
    """TPE over Random by the validation accuracy of the best trial, after a share of the trials."""
    tpe, random = studies(r, "tpe"), studies(r, "random")
    best = [list(map(so_far, every)) for every in (tpe, random)]
    sides = [[one[round(share * len(one)) - 1] for one in every] for every in best]
    made = stats.paired_mean(*sides, unit=Unit.POINTS, drawn=STUDIES)
    return contrast(made, [*tpe, *random])


def below_whole(r: Records) -> Contrast:
    """The uncut model over TPE's choices."""
    tpe = choices(r, "tpe")
    return compare(beside(whole(r), tpe), tpe)


def on_grids_draw(r: Records) -> Arm:
    """What Random chose on the draw that Grid searched."""
    draw = studies(r, "grid")[0].case.params["trial_draw"]
    return choices(r.where(trial_draw=draw), "random")


def trials_agree(r: Records) -> Counted:
    """Draws on which the sampler of the better trial also has the better model, on test."""
    tpe, random = studies(r, "tpe"), studies(r, "random")
    on_test = tpe_chooses_better(r).comparison.by_unit
    pairs = zip(tpe, random, on_test, strict=True)
    same = sum((found(b) - found(a)) * by > 0 for a, b, by in pairs)
    return counted(same, of=[*tpe, *random])


page.numbers(
    tpe=partial(choices, sampler="tpe"),
    random=partial(choices, sampler="random"),
    whole=whole,
    kept=lambda r: kept(studies(r, "tpe")),
    trials=lambda r: counted(len(so_far(studies(r, "tpe")[0])), of=studies(r, "tpe")),
    startup=lambda r: counted(startup(r), of=studies(r, "tpe")),
    studies=lambda r: number_with(r, lambda one: True),
    grid_size=lambda r: counted(studies(r, "grid")[0].values["num_points"], of=studies(r, "grid")),
    deep=partial(keeps_all, name="num_hidden_layers"),
    wide=partial(keeps_all, name="hidden_size"),
    random_deep=partial(keeps_all, name="num_hidden_layers", sampler="random"),
    random_wide=partial(keeps_all, name="hidden_size", sampler="random"),
    below_whole=below_whole,
    half_lead=partial(lead, share=0.5),
    full_lead=partial(lead, share=1.0),
    grid=partial(choices, sampler="grid"),
    random_there=on_grids_draw,
    beyond_whole=lambda r: number_with(
        r, lambda one: found(one) < one.values["whole"]["validation_loss"]
    ),
    trials_agree=trials_agree,
    at_one_rate=tpe_chooses_better,
    at_its_rate=tpe_beside_random_at_its_rate,
    by_trial=tpe_finds_less_loss,
    num_test=lambda r: counted(baseline.fp32(r).accuracy.n, of=baseline.fp32(r).records),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    """Validation accuracy of the trial of the least loss so far."""
    curves = {name: list(map(so_far, studies(r, sampler))) for sampler, name in SAMPLERS.items()}
    trial = fmean(one.values["whole"]["validation_accuracy"] for one in studies(r, "tpe"))
    blind = span(0.5, startup(r) + 0.5, "drawn at random")
    lines = (line(name, markers=False) for name in curves)
    return Chart(
        searches.mean_rows(curves),
        x=linear("trial", "trials"),
        y=percent("validation accuracy, best so far"),
        marks=[blind, level(trial, "uncut model, one trial"), *lines],
    )


@page.chart
def cuts(r: Records) -> Chart:
    """What the smallest value of each choice does to the mean of Random's trials.

    Their mean with the smallest value less that with the largest, draw by draw.
    """
    rows: list[Row] = []
    for effect in r.of(STEM).one(part="audit").values["space"]:
        name, values = effect["name"], effect["values"]
        ends = ("identity", "linear") if "linear" in values else (values[0], values[-1])
        each = [[scores(one, name, value) for value in ends] for one in studies(r, "random")]
        change = [fmean(small) - fmean(large) for small, large in each if small and large]
        cut = SIZES[name].format(ends[0]) if name in SIZES else f"{name}: identity"
        row = {"cut": cut.replace("_", " "), "change": searches.mean_estimate(change, Unit.POINTS)}
        rows.append(row)
    return Chart(
        rows,
        x=linear("change", "validation accuracy of a mean trial", "points", factor=100),
        y=category("cut", ""),
        marks=[intervals("change")],
    )


def scores(study: Record, name: str, value: Any) -> list[float]:
    """Validation accuracies of the trials that have this value."""
    pairs = zip(trials(study), study.values["accuracies"], strict=True)
    return [accuracy for (_, point), accuracy in pairs if point[name] == value]


@page.table
def samplers(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler in ("tpe", "random", "grid"):
        every = studies(r, sampler)
        row = {
            "sampler": SAMPLERS[sampler],
            "studies": len(every),
            "best trial, on validation": searches.mean_estimate([so_far(x)[-1] for x in every]),
            "found at trial": f"{median(map(found_at, every)):g}",
            "parameters kept": f"{kept(every).value:g} %",
            "trained in full, on test": choices(r, sampler),
        }
        rows.append(row)
    for name, one in (("left alone", baseline.fp32(r)), ("trained as long", whole_trained(r))):
        rows.append({"sampler": f"uncut, {name}", "trained in full, on test": one})
    return rows


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """What every study chose, draw by draw, on test; the shape of TPE's."""
    arms = [choices(r, "tpe"), choices(r, "random")]
    arms.append(beside(whole(r), arms[0]))
    return [
        {
            "model": one.case.params[SEED],
            "draw": one.case.params["trial_draw"],
            "TPE's choice": shape(chosen_point(one)),
            **{a.label: str(a.models[i]) for a in arms},
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


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training in full, by learning rate."""
    what: dict[str, Params] = {
        "uncut model": {"part": "whole"},
        "TPE's choice": {"part": "study", "sampler": "tpe"},
        "Random's choice": {"part": "study", "sampler": "random"},
    }
    alone = r.tuning.one(part="left alone").values["validation_loss"]
    first: Row = {"model": "uncut model, left alone", "no training": f"{alone:.4f}"}
    return [first, *searches.rate_rows(r.tuning, what, "full_learning_rate", "judged")]


# How an effect differs from unit to unit, and from sentence to sentence in the mean over them: of
# fifteen pairs of studies of an earlier run, whose choices were trained as in a trial.
SPREADS = {
    "TPE's choices lead by 2 points": (0.02, 0.031, 0.137),
    "TPE's choices lead by 3 points": (0.03, 0.031, 0.137),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS) * PAIRS)
