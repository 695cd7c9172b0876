"""Question 2.2: compression inside the search objective, with and without training after it.

All candidates have one size, a share of the whole model's Linear weights. Three searches of a model
differ in nothing but the objective: it never compresses, compresses last, or compresses half-way
and trains on. Their choices are trained in full under each of these three schedules. So two effects
can be told apart: of an objective on a search, and of training after compression on a shape.

Units: sizes in bits of the Linear layers; losses in nats.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from statistics import fmean

from experiments.lab2_compression import design
from experiments.lab2_compression.design import AFTER, BETWEEN, OBJECTIVES, PLAIN
from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, line, linear, percent, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, CUT, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.values import Unit, scientific
from madl.training import baseline

page = Experiment(needs=("baseline",), requires=(CUT,))

STEM = "lab2_compression"
SEARCHES = {
    PLAIN: "ignores compression",
    AFTER: "compresses last",
    BETWEEN: "compresses, trains on",
}
SCHEDULES = {PLAIN: "never compressed", AFTER: "compressed last", BETWEEN: "trained on after"}
MBIT = 1e-6


def candidate_params(plan: Plan, seed: int, rates: Iterable[float]) -> Params:
    """Parameters of all candidates: size, compression, training; `rates` are by `OBJECTIVES`."""
    choose, (weights, inputs) = plan.profile.choose, design.FRACTIONS
    return {
        **baseline.drawn_params(plan, seed),
        "size": design.SIZE,
        "width": design.BITS,
        "frac_width": weights,
        "input_frac_width": inputs,
        "sparsity": design.SPARSITY,
        "trial_examples": choose(smoke=32, quick=design.TRIAL_SENTENCES),
        "trial_learning_rate": design.TRIAL_RATE,
        "trial_batch_size": design.BATCH,
        "full_examples": choose(smoke=32, quick=None),  # None: all
        "full_batch_size": design.BATCH,
        **dict(zip(("plain_rate", "after_rate", "between_rate"), rates)),
    }


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for rate in plan.profile.choose(smoke=design.RATES_TRIED[:1], quick=design.RATES_TRIED):
        base = candidate_params(plan, TUNING_SEED, [rate] * len(OBJECTIVES))
        yield {"part": "rate", "shape": "middle", **base}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    rates, trials = design.RATES.values(), plan.profile.choose(smoke=3, quick=design.TRIALS)
    for objective in OBJECTIVES:
        for seed in plan.seeds:
            study = {"objective": objective, "sampler": design.SAMPLER, "trials": trials}
            yield {"part": "search", **study, **candidate_params(plan, seed, rates)}
    for shape in ("shallow", "deep"):
        yield {"part": "candidate", "shape": shape, **candidate_params(plan, plan.seeds[0], rates)}


page.quick(lambda params: params["part"] == "candidate")


def chosen(r: Records, objective: str, schedule: str) -> Arm:
    """The choices of the searches under an objective, trained in full under a schedule."""
    label = f"{SEARCHES[objective]}, {SCHEDULES[schedule]}"
    return arm(r.of_experiment(STEM), label, schedule, part="search", objective=objective)


def every_choice(r: Records, schedule: str) -> Arm:
    """The choices of all searches, three a seed, trained in full under a schedule."""
    records = sorted(
        r.of_experiment(STEM).all(part="search"),
        key=lambda search: int(search.case.params["seed"] or 0),
    )
    label = SCHEDULES[schedule]
    return Arm(label=label, records=tuple(records), within=(schedule,), units="choices")


@page.claim(primary=True)
def aware_search_wins(r: Records) -> Contrast:
    """At equal size, and compressed and trained on alike, what a search chooses that compresses and
    trains on inside its objective is more accurate than what one chooses that ignores
    compression."""
    return compare(chosen(r, BETWEEN, BETWEEN), chosen(r, PLAIN, BETWEEN))


@page.claim(primary=True)
def training_after_helps(r: Records) -> Contrast:
    """At equal training, a shape is more accurate with half of it after the compression than with
    all of it before."""
    return compare(every_choice(r, BETWEEN), every_choice(r, AFTER))


@page.claim
def aware_search_untrained(r: Records) -> Contrast:
    """Compressed last: a search that does so over one that ignores compression."""
    return compare(chosen(r, AFTER, AFTER), chosen(r, PLAIN, AFTER))


@page.claim
def whole_way(r: Records) -> Contrast:
    """Compressing half-way, in objective and model, over compressing last in both."""
    return compare(chosen(r, BETWEEN, BETWEEN), chosen(r, AFTER, AFTER))


@page.claim
def compression_costs(r: Records) -> Contrast:
    """What all searches choose, compressed last, over the same never compressed."""
    return compare(every_choice(r, AFTER), every_choice(r, PLAIN))


@page.claim
def trained_on_costs(r: Records) -> Contrast:
    """Compressed half-way and trained on, over never compressed."""
    return compare(every_choice(r, BETWEEN), every_choice(r, PLAIN))


def searches_of(r: Records, objective: str) -> Records:
    return r.of_experiment(STEM).all(part="search", objective=objective)


def pairs(r: Records, objective: str) -> list[tuple[Record, Record]]:
    """(search that ignores compression, search under `objective`) of each model."""
    return list(zip(searches_of(r, PLAIN), searches_of(r, objective), strict=True))


def num_equal_choices(r: Records) -> ExactValue:
    """The number of models whose searches under `PLAIN` and `BETWEEN` choose the same shape."""
    both = pairs(r, BETWEEN)
    equal = sum(a.values["chosen"] == b.values["chosen"] for a, b in both)
    return exact(equal, chain.from_iterable(both))


def losses_of(search: Record) -> dict[tuple[int, ...], float]:
    """Shape → validation loss, of all shapes that a search tried, under its own objective."""
    tried = (trial for trial in search.values["tried"] if trial is not None)
    return {tuple(trial["shape"]): trial["validation_loss"] for trial in tried}


def rank(
    r: Records, objective: str, summary: Callable[[Sequence[float]], float] = fmean
) -> ExactValue:
    """Rank correlation of the losses of shapes that two searches of a model, `PLAIN` and
    `objective`, both tried: the `summary` of the models' values."""
    correlations: list[float] = []
    both_searches = pairs(r, objective)
    for a, b in both_searches:
        plain, other = losses_of(a), losses_of(b)
        both = [(plain[shape], other[shape]) for shape in plain if shape in other]
        correlations.append(searches.rank_correlation(*zip(*both)) if len(both) > 1 else 0.0)
    return exact(round(summary(correlations), 2), chain.from_iterable(both_searches))


def smaller(r: Records) -> ExactValue:
    """How many times smaller compression makes the Linear layers of the first plain choice."""
    search = searches_of(r, PLAIN)[0]
    ratio = search.values[PLAIN]["linear_bits"] / search.values[AFTER]["linear_bits"]
    return exact(ratio, [search], "×")


def compressed_size(r: Records, *, spread: bool = False) -> ExactValue:
    """The mean size of the Linear layers of all choices, compressed, in Mbit; or with `spread`, by
    how much the largest is larger than the smallest, in %."""
    every_search = r.of_experiment(STEM).all(part="search")
    bits = [search.values[AFTER]["linear_bits"] for search in every_search]
    if spread:
        return exact(round(100 * (max(bits) / min(bits) - 1), 1), every_search, "%")
    return exact(fmean(bits) * MBIT, every_search, "Mbit")


def shape_alone(r: Records, shape: str) -> Arm:
    """A given shape of the first model, trained as in a trial: compressed half-way, trained on."""
    return arm(r.of_experiment(STEM), shape, BETWEEN, part="candidate", shape=shape)


def num_shapes(r: Records) -> ExactValue:
    """The number of different shapes that the searches tried, all models together."""
    every_search = r.of_experiment(STEM).all(part="search")
    shapes = {shape for search in every_search for shape in losses_of(search)}
    return exact(len(shapes), every_search)


page.numbers(
    fp32=baseline.fp32,
    after=partial(every_choice, schedule=AFTER),
    between=partial(every_choice, schedule=BETWEEN),
    costs=compression_costs,
    aware_untrained=aware_search_untrained,
    left=trained_on_costs,
    alike=num_equal_choices,
    rank_after=partial(rank, objective=AFTER),
    rank_between=partial(rank, objective=BETWEEN),
    least_after=partial(rank, objective=AFTER, summary=min),
    most_after=partial(rank, objective=AFTER, summary=max),
    least_between=partial(rank, objective=BETWEEN, summary=min),
    most_between=partial(rank, objective=BETWEEN, summary=max),
    shapes=num_shapes,
    smaller=smaller,
    size=compressed_size,
    apart=partial(compressed_size, spread=True),
    shallow=partial(shape_alone, shape="shallow"),
    deep=partial(shape_alone, shape="deep"),
    startup=lambda r: exact(searches_of(r, PLAIN)[0].values["startup"]),
    steps=lambda r: exact(searches_of(r, PLAIN)[0].values["steps"]),
)


@page.chart
def accuracy(r: Records) -> Chart:
    """Test accuracy of the choices of each search, trained in full under every schedule."""
    rows = [
        {"search": name, **{title: chosen(r, objective, s) for s, title in SCHEDULES.items()}}
        for objective, name in SEARCHES.items()
    ]
    return Chart(
        rows,
        x=category("search", "what the search's objective does"),
        y=percent("test accuracy of its choice"),
        marks=[points(title) for title in SCHEDULES.values()],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The least validation loss up to each trial, mean over searches; None until a shape fits."""
    so_far = {
        name: [
            searches.least_so_far(t and t["validation_loss"] for t in search.values["tried"])
            for search in searches_of(r, objective)
        ]
        for objective, name in SEARCHES.items()
    }
    return Chart(
        searches.mean_rows(so_far, Unit.NATS),
        x=linear("trial", "trials"),
        y=linear(label="least validation loss so far", unit="nats"),
        marks=[line(name, markers=False) for name in so_far],
    )


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a full training, by rate."""
    return [
        {
            "rate": scientific(rate.case.params["after_rate"]),
            **{title: f"{rate.values[s]['validation_loss']:.4f}" for s, title in SCHEDULES.items()},
        }
        for rate in r.tuning.all(part="rate")
    ]


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS))
