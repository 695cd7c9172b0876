"""Question 2.2: compression inside the search objective, with and without training after it.

A candidate is a shape with training sentences of its own, under three schedules of the same steps:
never compressed, compressed at the end, and compressed after half of the training. So a search
scores the same candidates by each of three objectives, and two things can be told apart: what
training after compression does to a shape, and what an objective makes of a search.

Units: sizes in bits of the Linear layers; accuracies as shares.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean

from madl.logbook import searches
from madl.logbook.arms import Arm, best_of, versus
from madl.logbook.charts import Chart, line, linear, percent, points
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import number
from madl.training import baseline

page = Experiment(title="Compression-aware search", needs=("earlier_baseline",))

STEM = "lab2_compression"
PLAIN, AFTER, BETWEEN = OBJECTIVES = ("plain", "compressed", "compressed and trained on")
SHOWN = {PLAIN: "ignores it", AFTER: "compresses", BETWEEN: "compresses, trains on"}
WIDTH, SPARSITY = 8, 0.5  # bits; the share of a layer's weights that is pruned
# as the earlier sweeps chose; read from 1.1's tuning when this study is made anew
FRACTIONS = (8, 4)  # bits behind the point: of weights, of inputs
DRAWS = 1000  # more than a study has trials: no two candidates share a draw
SMALL = 25e6  # bits: of the limits, the largest below this one is in the table
MBIT = 1e-6


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    weights, inputs = FRACTIONS
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
    from experiments.lab2_compression import study

    return study.candidate(params, ctx)


# ---- searches -----------------------------------------------------------------------------------


def candidates(r: Records) -> list[Record]:
    """Every candidate, model by model in the order of the trials."""
    drawn = ("seed", "study", "trial")
    return sorted(r.of(STEM).all(), key=lambda one: [one.case.params[name] for name in drawn])


def searched(r: Records) -> list[list[Record]]:
    """The candidates of each model: its studies, one behind the other, are one search."""
    every = candidates(r)
    seeds = dict.fromkeys(one.case.params["seed"] for one in every)
    return [[one for one in every if one.case.params["seed"] == seed] for seed in seeds]


def judged(found: Iterable[Record], schedule: str, units: str = "candidates") -> Arm:
    """These candidates under a schedule, on test."""
    label = f"{schedule}, {units}"
    return Arm(label=label, records=tuple(found), within=(schedule,), units=units)


def validation(one: Record, schedule: str) -> float:
    """Its accuracy on validation under a schedule, which is what an objective is."""
    return one.values[schedule]["validation_accuracy"]


def size(one: Record) -> float:
    """Bits of its Linear layers, compressed."""
    return one.values[AFTER]["linear_bits"]


def best(found: Iterable[Record], objective: str) -> Record:
    """What a search under this objective chooses: by accuracy, of equal ones by loss."""
    return best_of([judged([one], objective) for one in found]).records[0]


def limits(r: Records) -> list[float]:
    """All sizes that were drawn: each is a limit under which a search can choose."""
    return sorted({size(one) for own in searched(r) for one in own})


def chosen(r: Records, objective: str, within: Sequence[float]) -> list[Record]:
    """What each model's search chooses under each of these size limits."""
    return [
        best([one for one in own if size(one) <= limit], objective)
        for own in searched(r)
        for limit in within
        if any(size(one) <= limit for one in own)
    ]


def choices(
    r: Records, objective: str, schedule: str, within: Sequence[float] | None = None
) -> Arm:
    """The same under a schedule, on test; of all limits where none are given."""
    return judged(chosen(r, objective, within or limits(r)), schedule, "size limits")


# ---- claims -------------------------------------------------------------------------------------


def objectives(a: Arm, b: Arm) -> Contrast:
    """What two objectives choose, A against B: often the same model, so of no sides to exchange."""
    return contrast(versus(a, b), [*a.records, *b.records])


@page.claim(primary=True)
def aware_search_wins(r: Records) -> Contrast:
    """Under the same size limit, and compressed and trained on alike, the choice of a search that
    compresses inside its objective beats the choice of one that ignores compression."""
    return objectives(choices(r, BETWEEN, BETWEEN), choices(r, PLAIN, BETWEEN))


@page.claim(primary=True)
def training_after_helps(r: Records) -> Contrast:
    """At equal training, a shape is more accurate with half of it after compression than with all
    of it before."""
    every = candidates(r)
    return compare(judged(every, BETWEEN), judged(every, AFTER))


@page.claim
def aware_search_untrained(r: Records) -> Contrast:
    """Under the same size limit, compressed last: a search that compresses over one that does
    not."""
    return objectives(choices(r, AFTER, AFTER), choices(r, PLAIN, AFTER))


@page.claim
def aware_search_unlimited(r: Records) -> Contrast:
    """Whatever the size, compressed and trained on: a search that does so inside its objective
    over one that ignores compression."""
    largest = limits(r)[-1:]
    return objectives(choices(r, BETWEEN, BETWEEN, largest), choices(r, PLAIN, BETWEEN, largest))


@page.claim
def whole_way_wins(r: Records) -> Contrast:
    """Under the same size limit: compressing and training on, in objective and model, over
    compressing last in both."""
    return objectives(choices(r, BETWEEN, BETWEEN), choices(r, AFTER, AFTER))


# ---- numbers ------------------------------------------------------------------------------------


def _once(r: Records, name: str) -> float:
    """What all candidates share: how much every schedule trains."""
    (found,) = {one.values[name] for one in candidates(r)}
    return found


def _rank(r: Records, schedule: str) -> float:
    """Spearman's of candidates without compression and with it: the mean over the models."""
    pairs = [
        [[validation(one, o) for one in own] for o in (PLAIN, schedule)] for own in searched(r)
    ]
    return round(fmean(searches.rank_correlation(*sides) for sides in pairs), 2)


def _mean(r: Records, schedule: str) -> Counted:
    share = fmean(validation(one, schedule) for one in candidates(r))
    return counted(round(100 * share, 1), "%", of=candidates(r))


def _saved(r: Records) -> Counted:
    """How many times smaller compression makes the Linear layers of the largest shape."""
    one = max(candidates(r), key=size)
    return counted(one.values[PLAIN]["linear_bits"] / size(one), "×", of=[one])


def _alike(r: Records) -> Counted:
    """Limits under which two objectives choose the same candidate, of all models."""
    pairs = zip(*(chosen(r, o, limits(r)) for o in (PLAIN, BETWEEN)), strict=True)
    return counted(sum(a is b for a, b in pairs), of=candidates(r))


page.numbers(
    drawn=lambda r: counted(len(searched(r)[0]), of=candidates(r)),
    models=lambda r: counted(len(searched(r)), of=candidates(r)),
    shapes=lambda r: counted(len({tuple(one.values["point"]) for one in candidates(r)})),
    num_limits=lambda r: counted(len(limits(r)), of=candidates(r)),
    choices_made=lambda r: counted(len(chosen(r, PLAIN, limits(r))), of=candidates(r)),
    alike=_alike,
    rank_after=partial(_rank, schedule=AFTER),
    rank_between=partial(_rank, schedule=BETWEEN),
    mean_plain=partial(_mean, schedule=PLAIN),
    mean_after=partial(_mean, schedule=AFTER),
    mean_between=partial(_mean, schedule=BETWEEN),
    smaller=_saved,
    steps=lambda r: _once(r, "steps"),
    rates=lambda r: round(_once(r, "rates"), 6),
    rates_undivided=lambda r: round(_once(r, "rates_undivided"), 6),
    fp32=baseline.fp32,
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def front(r: Records) -> Chart:
    """What each search chooses under a size limit, compressed and trained on alike, on test."""
    every = searched(r)
    rows = [
        {
            "limit": limit,
            **{name: choices(r, objective, BETWEEN, [limit]) for objective, name in SHOWN.items()},
        }
        for limit in limits(r)
        if all(min(map(size, own)) <= limit for own in every)
    ]
    return Chart(
        rows,
        x=linear("limit", "size limit of the compressed Linear layers", "Mbit", factor=MBIT),
        y=percent("test accuracy, compressed and trained on"),
        marks=[line(name) for name in SHOWN.values()],
    )


@page.chart
def curves(r: Records) -> Chart:
    """After every trial, what each search would choose is worth, compressed and trained on."""

    def so_far(own: Sequence[Record], objective: str) -> list[float]:
        picked = [best(own[: i + 1], objective) for i in range(len(own))]
        return [validation(one, BETWEEN) for one in picked]

    rows = searches.mean_rows(
        {name: [so_far(own, objective) for own in searched(r)] for objective, name in SHOWN.items()}
    )
    return searches.curves_chart(rows, accuracy="validation accuracy of the choice so far")


@page.chart
def ranks(r: Records) -> Chart:
    return Chart(
        [{o: validation(one, o) for o in OBJECTIVES} for one in candidates(r)],
        x=percent("validation accuracy without compression", column=PLAIN),
        y=percent("validation accuracy, compressed"),
        marks=[points(AFTER), points(BETWEEN)],
    )


@page.table
def by_limit(r: Records) -> Sequence[Row]:
    """What the searches choose under a small limit and under none."""
    every = limits(r)
    small = max((limit for limit in every if limit <= SMALL), default=every[0])
    rows: list[Row] = []
    for limit in (small, every[-1]):
        for objective, name in SHOWN.items():
            found = chosen(r, objective, [limit])
            rows.append(
                {
                    "size limit": "none" if limit == every[-1] else f"{number(limit * MBIT)} Mbit",
                    "search": name,
                    "size, mean": f"{number(fmean(map(size, found)) * MBIT)} Mbit",
                    "compressed": choices(r, objective, AFTER, [limit]),
                    "and trained on": choices(r, objective, BETWEEN, [limit]),
                }
            )
    return rows


@page.table
def every_choice(r: Records) -> Sequence[Row]:
    """Every model's choice without a limit."""
    return [
        {
            "model": one.case.params["seed"],
            "search": name,
            "shape": " · ".join(map(str, one.values["point"])),
            "size": f"{number(size(one) * MBIT)} Mbit",
            "compressed": judged([one], AFTER),
            "and trained on": judged([one], BETWEEN),
        }
        for objective, name in SHOWN.items()
        for one in chosen(r, objective, limits(r)[-1:])
    ]
