"""Question 2.2: compression inside the search objective, with and without training after it.

Every candidate of a search is a shape with training sentences of its own, and is trained under
three schedules of the same steps: without compression, compressed at the end, and compressed after
half of the training (`madl/training/schedules.py`). So each study scores the same candidates by
each of three objectives, and two things can be told apart: what training after compression does to
a shape, and what an objective makes of a search.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, versus
from madl.logbook.charts import Chart, level, log, percent, points
from madl.logbook.claims import Fact, Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import number, per_cent
from madl.training import baseline, widths

NAME = "lab2_compression"
page = Experiment(title="Compression-aware search", needs=("baseline", "lab1_fractions"))

PLAIN, AFTER, BETWEEN = OBJECTIVES = ("plain", "compressed", "compressed and trained on")
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
    from madl.training import schedules

    return schedules.candidate(params, ctx)


# ---- candidates, and what a search chooses among them -------------------------------------------


def candidates(r: Records, schedule: str) -> Arm:
    """Every candidate of every study under a schedule, on test."""
    return judged(everyone(r), schedule, units="candidates")


def everyone(r: Records) -> list[Record]:
    return [one for found in studies(r) for one in found]


def judged(found: Sequence[Record], schedule: str, *, units: str = "") -> Arm:
    return Arm(label=schedule, records=tuple(found), within=(schedule,), units=units)


def studies(r: Records) -> list[list[Record]]:
    """The candidates of each study, in the order of its trials."""
    every = sorted(r.of(NAME).all(), key=lambda one: (_study(one), one.case.params["trial"]))
    return [list(found) for _, found in groupby(every, _study)]


def _study(record: Record) -> tuple[Any, Any]:
    return record.case.params["seed"], record.case.params["study"]


def validation(candidate: Record, schedule: str) -> float:
    """Its accuracy on validation under a schedule, which is what an objective is."""
    return candidate.values[schedule]["validation_accuracy"]


def best(found: Sequence[Record], objective: str) -> Record:
    """What a study under this objective chooses: by accuracy, of equal ones by loss."""
    return max(
        found,
        key=lambda one: (validation(one, objective), -one.values[objective]["validation_loss"]),
    )


def chosen(r: Records, objective: str, schedule: str) -> Arm:
    """What each study under an objective chooses, under a schedule, on test."""
    return judged([best(found, objective) for found in studies(r)], schedule, units="studies")


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
        undecided=f"{said} are not shown to be better or worse {how}: {means}, {gap:+i}",
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
    rival = (
        f"than one that ignores compression, both of the same {len(studies(r)[0])} random shapes"
    )
    return made.judge(
        supported=f"{said} models {gap} better {rival}: {a} against {b}",
        refuted=f"{said} worse models {rival}, by {gap:+}: {a} against {b}",
        undecided=f"Whether a search gains by compressing inside its objective is open: {alike}, "
        f"its choices have {a} on test, and those of a search that ignores compression, of the "
        f"same {len(studies(r)[0])} random shapes, {b}, {gap:+i}",
    )


@page.claim(headline=True)
def training_after_delivers_more(r: Records) -> Judged:
    """A search with training after compression delivers better models than one without it."""
    a, b = chosen(r, BETWEEN, BETWEEN), chosen(r, AFTER, AFTER)
    made = compare(a, b)
    gap = made.comparison.estimate()
    said = "What a compression-aware search delivers with training after compression"
    return made.judge(
        supported=f"{said} is {gap} better than without it: {a} against {b}",
        refuted=f"{said} is worse than without it, by {gap:+}: {a} after {b}",
        undecided=f"{said} is not shown to differ from what it delivers without it: {a} and {b}, "
        f"{gap:+i}",
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
    said = "On validation sentences, compression with half of the training after it"
    of = f"{means[0]} against {means[1]}, at equal training"
    return made.judge(
        supported=f"{said} costs the same shapes {gap}: {of}",
        refuted=f"{said} changes the same shapes for the better, {gap:+}: {of}",
        undecided=f"{said} is not shown to cost the same shapes anything: {of}, {gap:+i}",
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact
def training_is_equal(r: Records) -> Fact:
    every = [one.values for one in everyone(r)]
    amounts = {(values["steps"], values["rates"], values["rates_undivided"]) for values in every}
    assert len(amounts) == 1, amounts
    steps, rates, undivided = amounts.pop()
    return Fact(
        text=f"Every schedule takes {steps} steps whose learning rates add up to {number(rates)} "
        f"times the highest; as many steps of one undivided schedule would add up to "
        f"{number(undivided)} times",
        of=f"{len(every)} candidates under three schedules each",
    )


@page.fact
def choices_coincide(r: Records) -> Fact:
    every = studies(r)
    same = {o: sum(best(x, o) is best(x, PLAIN) for x in every) for o in (AFTER, BETWEEN)}
    return Fact(
        text=f"The candidate that the plain objective chooses is also the choice of the objective "
        f"“{AFTER}” in {same[AFTER]} of the studies, and of “{BETWEEN}” in {same[BETWEEN]}",
        of=f"{len(every)} studies",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="Every candidate, compressed, on test, under two schedules; a shape may be drawn more "
    "than once. Bars are intervals. A line joins those that no smaller one reaches on validation, "
    "for each schedule apart. FP32: the uncut model, without the candidates' training."
)
def front(r: Records) -> Chart:
    rows: list[Row] = [
        {
            "schedule": schedule,
            "size": one.values[schedule]["linear_bits"],
            "test accuracy": judged([one], schedule),
            "validation": validation(one, schedule),
        }
        for one in everyone(r.where(seed=0))
        for schedule in (AFTER, BETWEEN)
    ]
    return searches.front_chart(
        rows,
        size=log("size", "size of the compressed Linear layers", "Mbit", factor=1e-6),
        value="test accuracy",
        front_by="validation",
        by="schedule",
        levels=[level(baseline.fp32(r))],
    )


@page.chart(
    caption="What each search would choose after so many trials, on the validation sentences that "
    "it chooses by: before compression, and compressed. Means over the studies with intervals; "
    "the highest of noisy values can be too high."
)
def curves(r: Records) -> Chart:
    lines = {
        "plain": (PLAIN, PLAIN),
        "compressed": (AFTER, AFTER),
        "compressed and trained on": (BETWEEN, BETWEEN),
        "plain search's choice, compressed": (PLAIN, AFTER),
        "plain search's choice, trained on": (PLAIN, BETWEEN),
    }
    shown = {
        title: [chosen_so_far(found, objective, schedule) for found in studies(r)]
        for title, (objective, schedule) in lines.items()
    }
    rows = searches.mean_rows(shown)
    return searches.curves_chart(rows, accuracy="validation accuracy of the choice")


def chosen_so_far(found: Sequence[Record], objective: str, schedule: str) -> list[float]:
    """After every trial, what the study would choose is worth under a schedule, on validation."""
    picked = [best(found[: i + 1], objective) for i in range(len(found))]
    return [validation(one, schedule) for one in picked]


@page.chart(
    caption="Every candidate on the validation sentences: how accurate it is without compression, "
    "and what compression leaves of it. A search without compression is enough where higher means "
    "further to the right."
)
def ranks(r: Records) -> Chart:
    return Chart(
        [{o: validation(one, o) for o in OBJECTIVES} for one in everyone(r)],
        x=percent("accuracy without compression", column=PLAIN),
        y=percent("accuracy compressed"),
        marks=[points(AFTER), points(BETWEEN)],
    )


@page.table
def choices(r: Records) -> Sequence[Row]:
    """What the studies of the first trained model chose."""
    return [
        {
            "study": str(i),
            "objective": objective,
            "shape": " · ".join(map(str, (one := best(found, objective)).values["point"])),
            "Linear, Mbit": one.values[AFTER]["linear_bits"] / 1e6,
            "validation": per_cent(validation(one, objective)),
            **{f"test, {schedule}": judged([one], schedule) for schedule in (AFTER, BETWEEN)},
        }
        for i, found in enumerate(studies(r.where(seed=0)), 1)
        for objective in OBJECTIVES
    ]
