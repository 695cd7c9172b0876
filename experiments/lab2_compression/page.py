"""Question 2.2: compression inside the search objective, with and without training after it.

Every candidate of a search is a shape with training sentences of its own, and is trained under
three schedules of the same steps: without compression, compressed at the end, and compressed after
half of the training (`schedules.py`). So each study scores the same candidates by
each of three objectives, and two things can be told apart: what training after compression does to
a shape, and what an objective makes of a search.
"""

from collections.abc import Iterable

from experiments.lab2_compression import candidate_records
from experiments.lab2_compression.candidate_records import (
    AFTER,
    BETWEEN,
    NAME,
    OBJECTIVES,
    PLAIN,
    candidates,
    chosen,
    everyone,
    mbit,
    same_choice,
    studies,
    validation,
)
from madl.logbook import searches, stats
from madl.logbook.arms import versus
from madl.logbook.charts import Chart, level, log, percent, points
from madl.logbook.claims import Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Values
from madl.training import baseline, widths

page = Experiment(title="Compression-aware search", needs=("baseline", "lab1_fractions"))

WIDTH, SPARSITY = 8, 0.5  # bits; the share of a layer's weights that is pruned
DRAWS = 1000  # more than a study has trials: no two candidates share a draw


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    weights, inputs = widths.pair_of(widths.chosen(plan.records("lab1_fractions"), "ptq", WIDTH))
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "objectives": ", ".join(OBJECTIVES),
            "space": choose(smoke="compact", quick="compact"),
            "trial_examples": choose(smoke=32, quick=1024),
            "trial_learning_rate": 1e-4,
            "trial_batch_size": 16,
            "width": WIDTH,
            "frac_width": weights,
            "input_frac_width": inputs,
            "sparsity": SPARSITY,
        }
        for study in range(choose(smoke=2, quick=3)):
            for trial in range(choose(smoke=2, quick=6)):
                draw = (seed * DRAWS + study) * DRAWS + trial
                yield {**base, "study": study, "trial": trial, "draw": draw}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_compression import schedules

    return schedules.candidate(params, ctx)


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def aware_search_delivers_more(r: Records) -> Judged:
    """Compressed and trained on alike, an aware search's choice beats that of a plain search."""
    return _objectives(r, BETWEEN, "compressed and trained on alike")


@page.claim(headline=True)
def training_after_helps_a_shape(r: Records) -> Judged:
    """At equal training, a shape is more accurate with half of it after compression than before."""
    a, b = candidates(r, BETWEEN), candidates(r, AFTER)
    made = compare(a, b)
    gap, count = made.comparison.estimate(), len(a.records)
    said = f"At equal training, shapes whose Linear layers have {WIDTH} bits and half their weights"
    how = "with half of the training after compression than with all of it before"
    means = f"{a} against {b}, means of {count} candidates on test"
    return made.judge(
        supported=f"{said} are {gap} better {how}: {means}",
        refuted=f"{said} are worse {how}, by {gap:+}: {means}",
        undecided=f"{said} have {a} with half of the training after compression and {b} with all "
        f"of it before, means of {count} candidates on test, {gap:+i}; whether either is better is "
        "not decided",
    )


@page.claim(headline=True)
def aware_search_without_training(r: Records) -> Judged:
    """Compressed alike, the choice of a search that compresses beats that of a plain search."""
    return _objectives(r, AFTER, "compressed alike, without training after it")


def _objectives(r: Records, schedule: str, alike: str) -> Judged:
    a, b = chosen(r, schedule, schedule), chosen(r, PLAIN, schedule)
    made = contrast(versus(a, b), everyone(r))  # two objectives may choose the same model
    gap = made.comparison.estimate()
    said = f"A search that compresses inside its objective chooses, {alike},"
    rival = f"than one that ignores compression, on the same {len(studies(r)[0])} shapes a study"
    same = f"(the same model in {same_choice(r, schedule)}; {mbit(a)} against {mbit(b)})"
    return made.judge(
        supported=f"{said} models {gap} better {rival} {same}: {a} against {b}",
        refuted=f"{said} worse models {rival} {same}, by {gap:+}: {a} against {b}",
        undecided=f"{alike.capitalize()}, the choices of a search that compresses inside its "
        f"objective have {a} on test, and those of one that ignores compression {b} {same}, "
        f"{gap:+i}; whether the search gains is not decided",
    )


@page.claim(headline=True)
def training_after_delivers_more(r: Records) -> Judged:
    """A search with training after compression delivers better models than one without it."""
    a, b = chosen(r, BETWEEN, BETWEEN), chosen(r, AFTER, AFTER)
    made = compare(a, b)
    gap = made.comparison.estimate()
    plain = chosen(r, PLAIN, BETWEEN) - chosen(r, PLAIN, AFTER)
    said = "What a compression-aware search delivers with training after compression"
    beside = (
        f"sizes {mbit(a)} and {mbit(b)}; the choices of a search that ignores compression change "
        f"by {plain:+} alike"
    )
    return made.judge(
        supported=f"{said} is {gap} better than without it: {a} against {b}; {beside}",
        refuted=f"{said} is worse than without it, by {gap:+}: {a} after {b}; {beside}",
        undecided=f"{said} has {a} on test, and what it delivers without it {b}, {gap:+i}; whether "
        f"it gains is not decided; {beside}",
    )


@page.claim
def compression_costs_a_shape(r: Records) -> Judged:
    """Even with half of the training after it, compression costs a shape accuracy."""
    every = r.of(NAME).all()
    plain, between = (
        searches.of_units(every, lambda one, o=o: validation(one, o)) for o in (PLAIN, BETWEEN)
    )
    drawn = "candidates of 1 model" if len(every.each("seed")) == 1 else "trained models"
    made = contrast(stats.paired_mean(plain, between, unit=stats.Unit.POINTS, drawn=drawn), every)
    gap, means = made.comparison.estimate(), [searches.mean_estimate(x) for x in (between, plain)]
    sentences = baseline.fp32(r).value("num_validation")
    said = f"On {sentences:,} validation sentences, compression with half of the training after it"
    of = f"{means[1]} without compression and {means[0]} with it, at equal training"
    return made.judge(
        supported=f"{said} costs the same shapes {gap}: {of}",
        refuted=f"{said} changes the same shapes for the better, a cost of {gap:+}: {of}",
        undecided=f"On {sentences:,} validation sentences, the same shapes have {of}, half of it "
        f"after compression: a cost of {gap:+i}; whether compression costs them anything is not "
        "decided",
    )


# ---- facts --------------------------------------------------------------------------------------


page.fact(candidate_records.drawn)
page.fact(candidate_records.training_is_equal)
page.fact(candidate_records.choices_coincide)
page.fact(candidate_records.ranks_agree)
page.fact(candidate_records.largest)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="What a search by each objective would choose after so many trials, on validation "
    "sentences: left, the choices are compressed, right, compressed and trained on. Dotted: what "
    "the plain search chooses by. Bands are intervals. The highest of noisy values can be too high."
)
def curves(r: Records) -> Chart:
    return candidate_records.curves_chart(r)


@page.chart(
    caption="Every candidate, compressed, on test, under two schedules, of several models the "
    "mean; a shape may be drawn more than once. Bars are intervals. A line joins those that no "
    "smaller one reaches on validation, for each schedule apart. FP32: the uncut and uncompressed "
    "model, without the candidates' training; its size is beyond this axis."
)
def front(r: Records) -> Chart:
    return searches.front_chart(
        candidate_records.front_rows(r),
        size=log("size", "size of the compressed Linear layers", "Mbit", factor=1e-6),
        value="test accuracy",
        front_by="validation",
        by="schedule",
        levels=[level(baseline.fp32(r))],
    )


@page.chart(
    caption="Every candidate of every model on the validation sentences: how accurate it is "
    "without compression, and what compression leaves of it. The more one rises with the other, "
    "the less there is to gain by compressing inside the objective."
)
def ranks(r: Records) -> Chart:
    return Chart(
        [{o: validation(one, o) for o in OBJECTIVES} for one in everyone(r)],
        x=percent("accuracy without compression", column=PLAIN),
        y=percent("accuracy compressed"),
        marks=[points(AFTER), points(BETWEEN)],
    )


page.table(candidate_records.by_model)
page.table(candidate_records.choices)
