"""Question 2.2: compression inside the search objective, with and without training after it.

All candidates have one size, a share of the whole model's Linear weights. Three searches of a model
differ in nothing but the objective: it never compresses, compresses last, or compresses half-way
and trains on. What each chooses is trained in full under every one of these schedules. So two
things can be told apart: what an objective makes of a search, and what training after compression
does to a shape. The rates of the full training stand here as constants, chosen by validation loss
on the tuning seed.

Units: sizes in bits of the Linear layers; losses in nats.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean

from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, line, linear, percent, points
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import (
    CONFIRMING_SEEDS,
    CUT,
    TUNING_SEED,
    Context,
    Experiment,
    Plan,
)
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.logbook.stats import Unit, scientific
from madl.training import baseline

page = Experiment(title="Compression-aware search", needs=("baseline",), requires=(CUT,))

STEM = "lab2_compression"
PLAIN, AFTER, BETWEEN = OBJECTIVES = ("plain", "compressed", "compressed and trained on")
SEARCHES = {
    PLAIN: "ignores compression",
    AFTER: "compresses last",
    BETWEEN: "compresses, trains on",
}
SCHEDULES = {PLAIN: "never compressed", AFTER: "compressed last", BETWEEN: "trained on after"}
SIZE = 1 / 3  # of the whole model's Linear weights: what a candidate has
WIDTH, FRACTIONS = 8, (8, 3)  # bits; those after the point of weights, of inputs: 1.1's choice
SPARSITY = 0.6  # of a layer's weights, by L1-norm: in 1.2 the first share that hurts badly at once
SAMPLER = "tpe"  # 2.1's best
# Rates of a full training: never compressed, all of it before the compression, or half after.
TRIED = (5e-5, 1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3)
RATES = {PLAIN: 2e-4, AFTER: 4e-4, BETWEEN: 4e-4}
TIE = 1e-2  # nats of validation loss, less than five hundred sentences tell apart
MBIT = 1e-6


# ---- cases --------------------------------------------------------------------------------------


def candidates(plan: Plan, seed: int, rates: Params) -> Params:
    choose = plan.profile.choose
    weights, inputs = FRACTIONS
    return {
        **baseline.drawn_params(plan, seed),
        "size": SIZE,
        "width": WIDTH,
        "frac_width": weights,
        "input_frac_width": inputs,
        "sparsity": SPARSITY,
        "trial_examples": choose(smoke=32, quick=1024),
        "trial_learning_rate": 2e-4,  # as in 2.1
        "trial_batch_size": 16,
        "full_examples": choose(smoke=32, quick=None),  # None: all
        "full_batch_size": 16,
        **rates,
    }


def at(plain: float, after: float, between: float) -> Params:
    return {"plain_rate": plain, "after_rate": after, "between_rate": between}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    for rate in plan.profile.choose(smoke=TRIED[:1], quick=TRIED):
        base = candidates(plan, TUNING_SEED, at(rate, rate, rate))
        yield {"part": "rate", "shape": "middle", **base}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    rates, trials = at(*RATES.values()), plan.profile.choose(smoke=3, quick=20)
    for objective in OBJECTIVES:
        for seed in plan.seeds:
            study = {"objective": objective, "sampler": SAMPLER, "trials": trials}
            yield {"part": "search", **study, **candidates(plan, seed, rates)}
    for shape in ("shallow", "deep"):
        yield {"part": "candidate", "shape": shape, **candidates(plan, plan.seeds[0], rates)}


@page.quick
def quick(params: Params) -> bool:
    return params["part"] == "candidate"


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab2_compression import study

    return study.run(params, ctx)


# ---- arms and claims ----------------------------------------------------------------------------


def chosen(r: Records, objective: str, schedule: str) -> Arm:
    """What the searches under an objective choose, trained in full under a schedule."""
    label = f"{SEARCHES[objective]}, {SCHEDULES[schedule]}"
    return arm(r.of(STEM), label, schedule, part="search", objective=objective)


def every_choice(r: Records, schedule: str) -> Arm:
    """What all searches choose, three a seed, under a schedule."""
    found = sorted(r.of(STEM).all(part="search"), key=lambda one: int(one.case.params["seed"] or 0))
    label = SCHEDULES[schedule]
    return Arm(label=label, records=tuple(found), within=(schedule,), units="choices")


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


# ---- numbers ------------------------------------------------------------------------------------


def searches_of(r: Records, objective: str) -> Records:
    return r.of(STEM).all(part="search", objective=objective)


def alike(r: Records) -> Counted:
    """Models on which the two searches of the first hypothesis choose the same shape."""
    pairs = list(zip(searches_of(r, PLAIN), searches_of(r, BETWEEN), strict=True))
    same = sum(a.values["chosen"] == b.values["chosen"] for a, b in pairs)
    return counted(same, of=[one for pair in pairs for one in pair])


def losses_of(one: Record) -> dict[tuple[int, ...], float]:
    """Validation loss of every shape that a search tried, under its own objective."""
    tried = (trial for trial in one.values["tried"] if trial is not None)
    return {tuple(trial["shape"]): trial["validation_loss"] for trial in tried}


def rank(r: Records, objective: str, of: Callable[[Sequence[float]], float] = fmean) -> Counted:
    """Spearman's of the shapes that two searches of a model both tried, over the models."""
    pairs = list(zip(searches_of(r, PLAIN), searches_of(r, objective), strict=True))
    found: list[float] = []
    for a, b in pairs:
        plain, other = losses_of(a), losses_of(b)
        both = [(plain[shape], other[shape]) for shape in plain if shape in other]
        found.append(searches.rank_correlation(*zip(*both)) if len(both) > 1 else 0.0)
    return counted(round(of(found), 2), of=[one for pair in pairs for one in pair])


def smaller(r: Records) -> Counted:
    """How many times smaller compression makes the Linear layers of what was chosen."""
    one = searches_of(r, PLAIN)[0]
    ratio = one.values[PLAIN]["linear_bits"] / one.values[AFTER]["linear_bits"]
    return counted(ratio, "×", of=[one])


def size_of(one: Record) -> float:
    """Bits of the Linear layers of what a search chose, compressed."""
    return one.values[AFTER]["linear_bits"]


def size(r: Records) -> Counted:
    """Of what all searches choose, compressed: the mean."""
    every = r.of(STEM).all(part="search")
    return counted(fmean(map(size_of, every)) * MBIT, "Mbit", of=every)


def apart(r: Records) -> Counted:
    """How much larger the largest choice of all searches is than the smallest."""
    every = r.of(STEM).all(part="search")
    bits = list(map(size_of, every))
    return counted(round(100 * (max(bits) / min(bits) - 1), 1), "%", of=every)


def shape_alone(r: Records, shape: str) -> Arm:
    """A shape as trials see it, compressed half-way and trained on, of the first model."""
    return arm(r.of(STEM), shape, BETWEEN, part="candidate", shape=shape)


def fitting(r: Records) -> Counted:
    """Different shapes that the searches tried, all models together."""
    every = r.of(STEM).all(part="search")
    return counted(len({shape for one in every for shape in losses_of(one)}), of=every)


page.numbers(
    fp32=baseline.fp32,
    after=partial(every_choice, schedule=AFTER),
    between=partial(every_choice, schedule=BETWEEN),
    costs=compression_costs,
    aware_untrained=aware_search_untrained,
    left=trained_on_costs,
    alike=alike,
    rank_after=partial(rank, objective=AFTER),
    rank_between=partial(rank, objective=BETWEEN),
    least_after=partial(rank, objective=AFTER, of=min),
    most_after=partial(rank, objective=AFTER, of=max),
    least_between=partial(rank, objective=BETWEEN, of=min),
    most_between=partial(rank, objective=BETWEEN, of=max),
    shapes=fitting,
    smaller=smaller,
    size=size,
    apart=apart,
    shallow=partial(shape_alone, shape="shallow"),
    deep=partial(shape_alone, shape="deep"),
    startup=lambda r: counted(searches_of(r, PLAIN)[0].values["startup"]),
    steps=lambda r: counted(searches_of(r, PLAIN)[0].values["steps"]),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def accuracy(r: Records) -> Chart:
    """What each search chooses, under every schedule."""
    rows = [
        {"search": name, **{said: chosen(r, objective, s) for s, said in SCHEDULES.items()}}
        for objective, name in SEARCHES.items()
    ]
    return Chart(
        rows,
        x=category("search", "what the search's objective does"),
        y=percent("test accuracy of its choice"),
        marks=[points(said) for said in SCHEDULES.values()],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The least validation loss so far, each search's own; None until a shape has the size."""
    so_far = {
        name: [
            searches.least_so_far(x and x["validation_loss"] for x in one.values["tried"])
            for one in searches_of(r, objective)
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
            "rate": scientific(one.case.params["after_rate"]),
            **{said: f"{one.values[s]['validation_loss']:.4f}" for s, said in SCHEDULES.items()},
        }
        for one in r.tuning.all(part="rate")
    ]


# Of three models of an earlier run, searched and trained shortly: how the effect differs from model
# to model, and from sentence to sentence in the mean over them.
SPREADS = {
    "the objective gains 2 points": (0.02, 0.009, 0.14),
    "training on gains 4 points": (0.04, 0.017, 0.30),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS))
