"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and looks at its
validation loss. A study has a draw of its own: the sampler's seed, and the sentences that its
trials train on. What a study chooses is trained in full and judged on test. TPE and Random search
on every draw and are a pair there; Grid searches on the first.

Units: losses in nats.
"""

from collections.abc import Iterable

from experiments.lab2_samplers.records import (
    COMPARED,
    STUDIES,
    choices,
    found,
    studies,
    whole_trained,
)
from madl.logbook import stats
from madl.logbook.arms import SEED, Arm
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import TUNING_SEED, Context, Experiment, Plan
from madl.logbook.records import Params, Records, Values
from madl.logbook.stats import Unit
from madl.training import baseline

page = Experiment(title="Architecture search: random, grid, TPE", needs=("baseline",))

PAIRS = 3  # draws a seed, on which TPE and Random search
DRAWS = 100  # more than a seed has: no two studies share a draw
TRIALS, SHORT = 30, 6  # a study's; the beginning of one, to be run again
CLOSE = 0.02  # of accuracy: what a search may give away to the whole model
TIE = 1e-2  # nats of validation loss, less than five hundred sentences tell apart
# Rates of the training in full: of what is cut, and of the whole model. The smallest that is within
# TIE of the best of both, where there is one, is that of both.
TRIED = {"cut": (3e-5, 1e-4, 3e-4), "whole": (3e-5, 1e-4, 3e-4)}
RATES = {"cut": 1e-4, "whole": 1e-4}
# The whole model that what was chosen is held against is the one of less validation loss on the
# tuning seed: as the search found it (left alone), or trained in full as well.
LEFT_ALONE = True


# ---- cases --------------------------------------------------------------------------------------


def searching(plan: Plan, seed: int, study: int = 0) -> Params:
    """What the trials of a draw share."""
    choose = plan.profile.choose
    return {
        **baseline.drawn_params(plan, seed),
        "space": "coarse",
        "identity": "by kind",
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
    for seed in plan.seeds:
        for study in range(plan.profile.choose(smoke=2, quick=PAIRS)):
            for sampler in COMPARED:
                yield {**searching(plan, seed, study), **study_of(plan, sampler, *rates)}
        yield {**searching(plan, seed), "part": "whole", **in_full(plan, RATES["whole"])}
    yield {**first, **study_of(plan, "grid", *rates)}


@page.quick
def quick(params: Params) -> bool:
    return params["part"] in ("audit", "beginning")


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_samplers import study

    return study.run(params, ctx)


# ---- arms and claims ----------------------------------------------------------------------------


def left_alone(r: Records, beside: Arm) -> Arm:
    """The whole model as the searches found it, once for each study of an arm."""
    return of_each(baseline.fp32(r), beside, "whole model, left alone")


def trained_as_long(r: Records, beside: Arm) -> Arm:
    """The whole model, trained in full as well, once for each study of an arm."""
    whole = whole_trained(r)
    return of_each(whole, beside, whole.label)


def of_each(models: Arm, beside: Arm, label: str) -> Arm:
    """One model a seed, once for each study of an arm."""
    by_seed = {record.case.params[SEED]: record for record in models.records}
    every = tuple(by_seed[record.case.params[SEED]] for record in beside.records)
    return Arm(label=label, records=every, within=models.within, units=STUDIES)


def rival(r: Records, beside: Arm) -> Arm:
    """The whole model that validation loss prefers on the tuning seed."""
    return (left_alone if LEFT_ALONE else trained_as_long)(r, beside)


def over_studies(a: Arm, b: Arm) -> Contrast:
    """A against B on test: the studies are the units, two of one draw a pair."""
    sides = [[[outcomes] for outcomes in one.outcomes] for one in (a, b)]
    return contrast(stats.compare_groups(*sides, of=STUDIES), [*a.records, *b.records])


@page.claim(primary=True)
def tpe_chooses_better(r: Records) -> Contrast:
    """Trained in full, what TPE's studies choose is more accurate than what Random's choose."""
    return over_studies(choices(r, "tpe"), choices(r, "random"))


@page.claim(primary=True)
def tpe_comes_close(r: Records) -> Contrast:
    """What TPE's studies choose, trained in full, is at most two points less accurate than the
    whole model, left alone or trained as long, whichever validation loss prefers."""
    tpe = choices(r, "tpe")
    return compare(tpe, rival(r, tpe)).no_worse(CLOSE)


@page.claim
def tpe_chooses_better_by_model(r: Records) -> Contrast:
    """TPE's choices over Random's, with fine-tuned models as units and studies averaged in each."""
    return compare(choices(r, "tpe"), choices(r, "random"))


@page.claim
def tpe_beside_whole_trained(r: Records) -> Contrast:
    """TPE's choices over the whole model, both trained in full."""
    tpe = choices(r, "tpe")
    return compare(tpe, trained_as_long(r, tpe))


@page.claim
def random_beside_whole(r: Records) -> Contrast:
    """Random's choices over the whole model that TPE's are held against."""
    random = choices(r, "random")
    return compare(random, rival(r, random))


@page.claim
def tpe_finds_less_loss(r: Records) -> Contrast:
    """Validation loss of the best trial: Random's over TPE's."""
    tpe, random = (studies(r, sampler) for sampler in ("tpe", "random"))
    sides = [list(map(found, every)) for every in (random, tpe)]
    made = stats.paired_mean(*sides, unit=Unit.NATS, drawn=STUDIES)
    return contrast(made, [*tpe, *random])
