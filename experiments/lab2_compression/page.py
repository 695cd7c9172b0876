"""Question 2.2: compression inside the search objective, with and without training after it.

All candidates have one size, a share of the whole model's Linear weights. Three searches of a model
differ in nothing but the objective: it never compresses, compresses last, or compresses half-way
and trains on. Their choices are trained in full under each of these three schedules. So two effects
can be told apart: of an objective on a search, and of training after compression on a shape.

Two controls say how much there is to find: a shape of each model that was drawn blindly, and, on
the tuning seed, every shape of the space.

Units: sizes in bits of the Linear layers, or in parameters of the whole model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from experiments.lab2_compression import design
from experiments.lab2_compression.design import AFTER, BETWEEN, OBJECTIVES, PLAIN
from experiments.lab2_samplers.records import STEM as SAMPLERS
from experiments.lab2_samplers.records import trials
from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, line, linear, percent, points
from madl.logbook.claims import MARGIN, Contrast, compare
from madl.logbook.experiment import CUT, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, of_all
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.values import number
from madl.training import baseline

page = Experiment(needs=("baseline", SAMPLERS), requires=(CUT,))

STEM = "lab2_compression"
SEARCHES = {
    PLAIN: "ignores compression",
    AFTER: "compresses last",
    BETWEEN: "compresses, trains on",
}
SCHEDULES = {PLAIN: "never compressed", AFTER: "compressed last", BETWEEN: "trained on after"}
BLIND, UNLIMITED = "no search, drawn blindly", "no compression, any size (2.1)"
MBIT = 1e-6

Trial = Mapping[str, Any]  # its shape, and objective → judgement


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
    """Rates of a full training, then rates of a trial, then every shape at the chosen rates."""
    choose, tried = plan.profile.choose, design.RATES_TRIED
    for rate in choose(smoke=tried[:1], quick=tried):
        base = candidate_params(plan, TUNING_SEED, [rate] * len(OBJECTIVES))
        yield {"part": "rate", "shape": "middle", **base}
    base, tried = candidate_params(plan, TUNING_SEED, chosen_rates()), design.TRIAL_RATES_TRIED
    for shape, rate in product(design.SHAPES, choose(smoke=tried[:1], quick=tried)):
        yield {"part": "trial rate", "shape": shape, **base, "trial_learning_rate": rate}
    known = [tuple(shape.values()) for shape in design.SHAPES.values()]
    every = list(product(*design.SIZES_SEARCHED.values()))
    for parts in choose(smoke=known, quick=every):
        shares = {f"{name}_part": part for name, part in zip(design.SIZES_SEARCHED, parts)}
        yield {"part": "every shape", **shares, **base}


def chosen_rates() -> list[float]:
    """Rates of a full training, by `OBJECTIVES`."""
    return [design.RATES[objective] for objective in OBJECTIVES]


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    num_trials = plan.profile.choose(smoke=3, quick=design.TRIALS)
    base = {seed: candidate_params(plan, seed, chosen_rates()) for seed in plan.seeds}
    for objective in OBJECTIVES:
        for seed in plan.seeds:
            study = {"objective": objective, "sampler": design.SAMPLER, "trials": num_trials}
            yield {"part": "search", **study, **base[seed]}
    for seed in plan.seeds:
        study = {"objective": PLAIN, "sampler": design.SAMPLER, "trials": 1}
        yield {"part": "blind", **study, **base[seed]}
    for shape in ("shallow", "deep"):
        yield {"part": "candidate", "shape": shape, **base[plan.seeds[0]]}


page.quick(lambda params: params["part"] == "candidate")


def chosen(r: Records, objective: str, schedule: str) -> Arm:
    """The choices of the searches under an objective, trained in full under a schedule."""
    label = f"{SEARCHES[objective]}, {SCHEDULES[schedule]}"
    return arm(r.of_experiment(STEM), label, schedule, part="search", objective=objective)


def blind(r: Records, schedule: str) -> Arm:
    """The first shape that each model's search drew, blindly, trained in full under a schedule."""
    label = f"{BLIND}, {SCHEDULES[schedule]}"
    return arm(r.of_experiment(STEM), label, schedule, part="blind")


def every_choice(r: Records, schedule: str) -> Arm:
    """The choices of all searches, three a seed, trained in full under a schedule."""
    records = sorted(
        r.of_experiment(STEM).all(part="search"),
        key=lambda search: int(search.case.params["seed"] or 0),
    )
    label = SCHEDULES[schedule]
    return Arm(label=label, records=tuple(records), within=(schedule,), units="choices")


@page.claim(primary=True)
def training_on_gains(r: Records) -> Contrast:
    """Compressing and training on inside a search gains more than a point of accuracy: at equal
    size of the Linear layers, what such a search chooses over what one chooses that ignores
    compression, both compressed and trained on."""
    return compare(chosen(r, BETWEEN, BETWEEN), chosen(r, PLAIN, BETWEEN)).more_than(MARGIN)


@page.claim
def compressing_last(r: Records) -> Contrast:
    """What a search chooses that compresses last over what one chooses that ignores compression,
    both compressed last."""
    return compare(chosen(r, AFTER, AFTER), chosen(r, PLAIN, AFTER))


@page.claim
def training_after(r: Records) -> Contrast:
    """At equal training, shapes with half of it after the compression over the same with all of it
    before."""
    return compare(every_choice(r, BETWEEN), every_choice(r, AFTER))


@page.claim
def search_adds(r: Records) -> Contrast:
    """Never compressed: the choice of a search that ignores compression over a shape drawn
    blindly."""
    return compare(chosen(r, PLAIN, PLAIN), blind(r, PLAIN))


@page.claim
def training_on_adds(r: Records) -> Contrast:
    """Compressed and trained on: the choice of a search that does so over a shape drawn blindly."""
    return compare(chosen(r, BETWEEN, BETWEEN), blind(r, BETWEEN))


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


# ---- searches and their trials ------------------------------------------------------------------


def searches_of(r: Records, objective: str) -> Records:
    return r.of_experiment(STEM).all(part="search", objective=objective)


def every_search(r: Records) -> Records:
    return r.of_experiment(STEM).all(part="search")


def by_model(r: Records) -> list[tuple[Record, ...]]:
    """The searches of each model, in the order of `OBJECTIVES`."""
    return list(zip(*(searches_of(r, objective) for objective in OBJECTIVES), strict=True))


def equal_choices(r: Records) -> list[bool]:
    """For each model whether its searches under `PLAIN` and `BETWEEN` choose the same shape."""
    plain, between = (searches_of(r, objective) for objective in (PLAIN, BETWEEN))
    pairs = zip(plain, between, strict=True)
    return [a.values["chosen"] == b.values["chosen"] for a, b in pairs]


def tried(of_model: Iterable[Record]) -> dict[tuple[int, ...], Trial]:
    """Shape → its trial, of all shapes that these searches of a model tried."""
    return {tuple(trial["shape"]): trial for search in of_model for trial in search.values["tried"]}


def accuracies(judged: Iterable[Trial], objective: str) -> list[float]:
    """Validation accuracies under an objective."""
    return [judgement[objective]["validation_accuracy"] for judgement in judged]


def rank(
    r: Records, objective: str, summary: Callable[[Sequence[float]], float] = fmean
) -> ExactValue:
    """Rank correlation of the trial accuracies under `PLAIN` and `objective`, over all shapes that
    the searches of a model tried: the `summary` of the models' values."""
    shapes = [tried(of_model).values() for of_model in by_model(r)]
    correlations = [
        searches.rank_correlation(accuracies(judged, PLAIN), accuracies(judged, objective))
        for judged in shapes
    ]
    return exact(round(summary(correlations), 2), every_search(r))


def num_shapes(r: Records) -> ExactValue:
    """The number of different shapes that the searches tried, all models together."""
    return exact(len(tried(every_search(r))), every_search(r))


def num_misfits(r: Records) -> ExactValue:
    """The number of draws of all searches that could not have the size."""
    return exact(sum(search.values["misfits"] for search in every_search(r)), every_search(r))


# ---- sizes --------------------------------------------------------------------------------------


def smaller(r: Records) -> ExactValue:
    """How many times smaller compression makes the Linear layers of the first plain choice."""
    search = searches_of(r, PLAIN)[0]
    ratio = search.values[PLAIN]["linear_bits"] / search.values[AFTER]["linear_bits"]
    return exact(ratio, [search], "×")


def compressed_bits(search: Record) -> float:
    """Bits of the Linear layers of a search's choice, compressed."""
    return search.values[AFTER]["linear_bits"]


def num_parameters(search: Record) -> float:
    """The number of all parameters of a search's choice, embeddings included."""
    return search.values["parameters"]


def apart(r: Records, size: Callable[[Record], float]) -> ExactValue:
    """By how much the largest of all choices is larger than the smallest, in %."""
    sizes = list(map(size, every_search(r)))
    return exact(round(100 * (max(sizes) / min(sizes) - 1), 1), every_search(r), "%")


# ---- every shape, on the tuning seed ------------------------------------------------------------


def shapes_of_size(r: Records) -> list[Record]:
    """The trainings of every shape of the space that can have the size."""
    return [shape for shape in r.tuning.all(part="every shape") if shape.values["chosen"]]


def room(r: Records, schedule: str) -> ExactValue:
    """By how many points the best shape under a schedule is better under it than the shape that is
    best never compressed: no search with this schedule as its objective could gain more."""
    shapes = [shape.values for shape in shapes_of_size(r)]
    under, plain = accuracies(shapes, schedule), accuracies(shapes, PLAIN)
    gain = max(under) - under[plain.index(max(plain))]
    return exact(round(100 * gain, 1), shapes_of_size(r), "points")


def trials_tell(r: Records, schedule: str) -> float:
    """Rank correlation over every shape: validation accuracy after a trial, and in full."""
    shapes = [shape.values for shape in shapes_of_size(r)]
    of_trials = accuracies([shape["trial"] for shape in shapes], schedule)
    return searches.rank_correlation(of_trials, accuracies(shapes, schedule))


def shape_alone(r: Records, shape: str) -> Arm:
    """A given shape of the first model, trained as in a trial: compressed half-way, trained on."""
    return arm(r.of_experiment(STEM), shape, BETWEEN, part="candidate", shape=shape)


page.numbers(
    fp32=baseline.fp32,
    plain=partial(every_choice, schedule=PLAIN),
    costs=compression_costs,
    gained=training_after,
    left=trained_on_costs,
    last=compressing_last,
    adds=search_adds,
    adds_between=training_on_adds,
    alike=of_all(lambda r: exact(sum(equal_choices(r)), every_search(r))),
    models=of_all(lambda r: exact(len(equal_choices(r)), every_search(r))),
    rank_after=partial(rank, objective=AFTER),
    rank_between=partial(rank, objective=BETWEEN),
    least_after=partial(rank, objective=AFTER, summary=min),
    most_after=partial(rank, objective=AFTER, summary=max),
    least_between=partial(rank, objective=BETWEEN, summary=min),
    most_between=partial(rank, objective=BETWEEN, summary=max),
    room_after=partial(room, schedule=AFTER),
    room_between=partial(room, schedule=BETWEEN),
    space=lambda r: exact(len(r.tuning.all(part="every shape")), r.tuning),
    fitting=lambda r: exact(len(shapes_of_size(r)), shapes_of_size(r)),
    shapes=of_all(num_shapes),
    misfits=of_all(num_misfits),
    smaller=smaller,
    size=of_all(
        lambda r: exact(
            fmean(map(compressed_bits, every_search(r))) * MBIT, every_search(r), "Mbit"
        )
    ),
    apart=of_all(apart, size=compressed_bits),
    parameters_apart=of_all(apart, size=num_parameters),
    shallow=partial(shape_alone, shape="shallow"),
    deep=partial(shape_alone, shape="deep"),
    trials=lambda r: exact(len(searches_of(r, PLAIN)[0].values["tried"]), every_search(r)),
    startup=lambda r: exact(searches_of(r, PLAIN)[0].values["startup"]),
    steps=lambda r: exact(searches_of(r, PLAIN)[0].values["steps"]),
)


@page.chart
def accuracy(r: Records) -> Chart:
    """Test accuracy of the choices of each search, trained in full under every schedule, and of
    shapes drawn blindly."""
    every = r.and_further
    chosen_by = {name: partial(chosen, every, objective) for objective, name in SEARCHES.items()}
    rows = [
        {"search": name, **{title: of_schedule(s) for s, title in SCHEDULES.items()}}
        for name, of_schedule in {BLIND: partial(blind, r), **chosen_by}.items()
    ]
    return Chart(
        rows,
        x=category("search", "what the search's objective does"),
        y=percent("test accuracy of its choice"),
        marks=[points(title) for title in SCHEDULES.values()],
    )


@page.chart
def curves(r: Records) -> Chart:
    """The highest validation accuracy up to each trial, mean over searches, each by its own
    objective; first those of 2.1, whose shapes have any size."""
    studies = {
        name: [
            accuracies(search.values["tried"], objective) for search in searches_of(r, objective)
        ]
        for objective, name in SEARCHES.items()
    }
    num_trials = max(len(study) for of_objective in studies.values() for study in of_objective)
    unlimited = r.of_experiment(SAMPLERS).all(part="study", sampler=design.SAMPLER)
    of_any_size = [[accuracy for accuracy, _ in trials(study)][:num_trials] for study in unlimited]
    so_far = {
        name: list(map(searches.highest_so_far, of_objective))
        for name, of_objective in {UNLIMITED: of_any_size, **studies}.items()
    }
    return Chart(
        searches.mean_rows(so_far),
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[line(name, markers=False) for name in so_far],
    )


@page.table
def every_shape(r: Records) -> Sequence[Row]:
    """How far every shape's validation accuracies in full lie apart on the tuning seed, and how
    they rank: against those never compressed, and against those of trials."""
    shapes = [shape.values for shape in shapes_of_size(r)]
    plain = accuracies(shapes, PLAIN)
    rows: list[Row] = []
    for schedule, title in SCHEDULES.items():
        under = accuracies(shapes, schedule)
        row = {
            "trained in full": title,
            "least": f"{100 * min(under):.1f} %",
            "most": f"{100 * max(under):.1f} %",
            "most, over the best without": f"{number(room(r, schedule).value, sign=True)} points",
            "ranks, against without": f"{searches.rank_correlation(under, plain):.2f}",
            "ranks, against trials": f"{trials_tell(r, schedule):.2f}",
        }
        rows.append(row)
    return rows


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a full training, by rate."""
    rows: list[Row] = []
    for schedule, title in SCHEDULES.items():
        models: dict[str, Params] = {title: {"part": "rate"}}
        chosen = {title: design.RATES[schedule]}
        tuned = r.tuning.where(part="rate")
        rows += searches.rate_rows(tuned, models, "after_rate", schedule, chosen=chosen)
    return rows


@page.table
def trial_rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after a trial, by rate."""
    rows: list[Row] = []
    for schedule, title in SCHEDULES.items():
        models: dict[str, Params] = {
            f"{shape}, {title}": {"part": "trial rate", "shape": shape} for shape in design.SHAPES
        }
        chosen = dict.fromkeys(models, design.TRIAL_RATE)
        tuned = r.tuning.where(part="trial rate")
        rows += searches.rate_rows(tuned, models, "trial_learning_rate", schedule, chosen=chosen)
    return rows


page.power(design.TRUTHS)
