"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it and is worth its accuracy on
validation sentences. Every study has a draw of its own: the sampler's seed, and the sentences that
its trials train on, with their order. So the studies on one model are independent but for it. What
a study chooses is judged on test sentences, beside the whole model with the same training. How far
a trial ranks sub-networks as a training on all sentences does is measured on points drawn blindly.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean

from experiments.lab2_samplers import architecture_facts as facts
from madl.logbook import searches, stats
from madl.logbook.arms import Arm
from madl.logbook.charts import Chart, category, intervals, level, percent, points
from madl.logbook.claims import Judged, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.training import architecture_records as found
from madl.training import baseline
from madl.training.architecture_records import (
    SAMPLERS,
    VALIDATION,
    best_value,
    startup,
    studies,
    whole,
)

page = Experiment(title="Architecture search: random, grid, TPE", needs=("baseline",))

DRAWS = 1000  # more than a model has studies: no two studies share a draw


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "space": choose(smoke="coarse", quick="coarse"),
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
    from experiments.lab2_samplers import architectures

    return architectures.run(params, ctx)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def search_beats_the_whole(r: Records) -> Judged:
    """On test, what TPE's studies choose is better than the whole model after their training."""
    return _against(r, "tpe", whole(r), "the whole model after the same training, without a search")


@page.claim(headline=True)
def tpe_chooses_better(r: Records) -> Judged:
    """On test, what TPE's studies choose is better than what Random's choose."""
    return _against(r, "tpe", found.choices(r, "random"), "what Random's choose")


@page.claim
def grid_chooses_better(r: Records) -> Judged:
    """On test, what Grid's studies choose is better than what Random's choose."""
    return _against(r, "grid", found.choices(r, "random"), "what Random's choose")


@page.claim
def search_beats_the_start(r: Records) -> Judged:
    """On test, what TPE's studies choose is better than the model it is cut from, as it was."""
    alone = whole(r) - found.untouched(r)
    rival = (
        "the model that they are cut from, without a search and without more training (which alone "
        f"does {alone:+i} to the whole model)"
    )
    return _against(r, "tpe", found.untouched(r), rival)


def _against(r: Records, sampler: str, b: Arm, rival: str) -> Judged:
    a = found.choices(r, sampler)
    said = f"On test, what {a.label}'s studies choose is"
    return compare(a, b).judge(
        supported=f"{said} {a - b} better than {rival}: {a} against {b}",
        refuted=f"{said} {b - a} worse than {rival}: {a} against {b}",
        undecided=f"On test, what {a.label}'s studies choose has {a}, against {b} for {rival}: "
        f"{a - b:+i}{found.beside(r, a, b)}; whether {a.label}'s are better or worse is not "
        "decided",
    )


@page.claim
def validation_promises_too_much(r: Records) -> Judged:
    """TPE's choices lead the whole model by more on validation, which chose them, than on test."""
    a, b = found.choices(r, "tpe"), whole(r)
    made = searches.promised(a, b, VALIDATION)
    seen, over = searches.lead(a, b, VALIDATION), made.comparison.estimate()
    said = f"TPE's choices stand to the whole model at {seen:+} on validation, {a - b:+} on test"
    return made.judge(
        supported=f"{said}: validation, which chose them, promises {over} too much",
        refuted=f"{said}: validation, which chose them, promises too little, {over:+}",
        undecided=f"{said}, a difference of {over:+i}; whether validation, which chose them, "
        "promises too much is not decided",
    )


@page.claim
def tpe_finds_more(r: Records) -> Judged:
    """On validation, TPE's studies end at a higher accuracy than Random's."""
    made = searches.compare_values(studies(r, "tpe"), studies(r, "random"), best_value)
    a, b = found.mean(r, "tpe", best_value), found.mean(r, "random", best_value)
    said = f"After {studies(r, 'tpe')[0].case.params['trials']} trials"
    return made.judge(
        supported=f"{said} TPE has found more on validation sentences than Random: {a} against {b}",
        refuted=f"{said} TPE has found less on validation sentences than Random: {a} against {b}",
        undecided=f"{said} TPE has found {a} on validation sentences and Random {b}, "
        f"{made.comparison.estimate():+i}; whether they differ is not decided",
    )


@page.claim(headline=True)
def tpe_proposes_better(r: Records) -> Judged:
    """After its start-up, the mean trial of TPE is better on validation than Random's."""
    first = startup(r)

    def later(record: Record) -> float:
        return fmean(record.values["values"][first:])

    made = searches.compare_values(studies(r, "tpe"), studies(r, "random"), later)
    a, b = found.mean(r, "tpe", later), found.mean(r, "random", later)
    said = "The mean point that TPE proposes after its start-up"
    return made.judge(
        supported=f"{said}, repeats counted, has {a} on validation; the mean point drawn at "
        f"random {b}",
        refuted=f"{said}, repeats counted, has {a} on validation, less than the mean point "
        f"drawn at random, {b}",
        undecided=f"{said}, repeats counted, has {a} on validation and the mean point drawn at "
        f"random {b}; whether they differ is not decided",
    )


@page.claim
def trials_rank(r: Records) -> Judged:
    """Trials rank sub-networks as test sentences do after a training on all, not by chance."""
    made, budgets = found.ranking(r), r.all(part="ranking")[0].case.params
    correlation = f"{made.comparison.estimate():i}".replace(f" {stats.Unit.CORRELATION}", "")
    said = (
        f"the order of sub-networks on validation after a trial's {budgets['trial_examples']} "
        f"sentences and that on test after {budgets['longer_examples'] or 'all'} of them"
    )
    mean = f"mean rank correlation {correlation} within a draw"
    return made.judge(
        supported=f"Between {said} (of the training split) there is a {mean}: a trial says "
        "something, not all",
        refuted=f"Between {said} (of the training split) there is a {mean}: a trial misleads",
        undecided=f"Nothing shows that {said} (of the training split) have to do with each other: "
        f"{mean}",
    )


# ---- facts --------------------------------------------------------------------------------------


page.fact(headline=True)(facts.growth)
for counted in (
    *(facts.chosen, facts.startup_is_random, facts.first_alike),
    *(facts.whole_varies, facts.what_may_be_an_identity, facts.idle_in_bert_config),
):
    page.fact(counted)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="What the studies have found so far, on the validation sentences that they choose by; "
    "bands are intervals over studies or models, the whole model's over sentences too. FP32: as "
    "fine-tuned, without a trial's training. In the shaded trials TPE draws what Random draws. "
    "The highest of noisy values can be too high: what a choice is worth, its test says."
)
def curves(r: Records) -> Chart:
    def so_far(record: Record) -> list[float]:
        return searches.best_so_far(record.values["values"])

    every = {title: studies(r, sampler) for sampler, title in SAMPLERS.items()}
    rows = searches.mean_rows({k: searches.of_units(one, so_far) for k, one in every.items()})
    beside = level(searches.on_validation(whole(r), VALIDATION), whole(r).label)
    before = level(found.untouched(r).validation, found.untouched(r).label)
    label = f"best validation accuracy, means of {found.units(r)}"
    return searches.curves_chart(rows, accuracy=label, startup=startup(r), levels=[beside, before])


@page.chart(
    caption="What there is to learn: the mean validation accuracy of a study's trials with the "
    "value on the axis, whatever else they have, averaged over the studies of Random and Grid. "
    "Bars are intervals."
)
def effects(r: Records) -> Chart:
    score = "validation accuracy"
    x = percent(f"{score}, means of {found.units(r)}", column=score)
    y = category("choice")
    return Chart(found.effect_rows(r), x=x, y=y, marks=[intervals(score)])


@page.chart(
    caption="Sub-networks drawn at random: validation accuracy after a trial's training, and test "
    "accuracy after a training on all sentences. The more the points lie along a rising line, the "
    "more a trial says."
)
def ranks(r: Records) -> Chart:
    rows = [
        {"trial": trial, "longer": longer}
        for one in r.all(part="ranking")
        for trial, longer in zip(one.values["trial"], one.values["longer"], strict=True)
    ]
    x = percent("validation accuracy after a trial", column="trial")
    y = percent("test accuracy after the whole training")
    return Chart(rows, x=x, y=y, marks=[points("longer", "sub-network")])


@page.table
def samplers(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        every, a = studies(r, sampler), found.choices(r, sampler)
        visited = {len(set(map(tuple, record.values["points"]))) for record in every}
        rows.append(
            {
                "sampler": title,
                "points visited": " to ".join(map(str, sorted({min(visited), max(visited)})))
                + f" of {every[0].values['num_points']:,}",
                "found at trial": found.found_at(every),
                "best on validation": found.mean(r, sampler, best_value),
                "choices on test": a,
                "less the whole model": a - whole(r),
            }
        )
    return rows


@page.table
def choices(r: Records) -> Sequence[Row]:
    return found.choice_rows(r)


@page.table
def audit(r: Records) -> Sequence[Row]:
    return found.audit_rows(r)


@page.table
def settings(r: Records) -> Sequence[Row]:
    return found.setting_rows(r)
