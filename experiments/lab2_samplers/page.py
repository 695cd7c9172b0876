"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and looks at its
validation loss. A study has a draw of its own: the sampler's seed, and the sentences that its
trials train on. What a study chooses is trained in full and judged on test. TPE and Random search
on every draw and are a pair there; Grid searches on the first.

Units: losses in nats.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import Any

from experiments.lab2_samplers import design
from experiments.lab2_samplers.records import STEM, Point, trials
from madl.logbook import searches, stats
from madl.logbook.arms import SEED, Arm, arm
from madl.logbook.charts import Chart, category, intervals, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CONFIRMING_SEEDS, CUT, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, percentage
from madl.logbook.records import Params, Record, Records, Row
from madl.logbook.values import Unit
from madl.training import baseline

page = Experiment(needs=("baseline",), requires=(CUT,))

SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
STUDIES = "studies"
SIZES = {  # fields of `BertConfig`, and how they are shown
    "num_hidden_layers": "{} layers",
    "num_attention_heads": "{} heads",
    "hidden_size": "width {}",
    "intermediate_size": "FFN {}",
}


def trial_params(plan: Plan, seed: int, study: int = 0) -> Params:
    """The parameters that all trials of a seed's draw (its number is `study`) share."""
    return {
        **baseline.drawn_params(plan, seed),
        "trial_draw": design.DRAW_STRIDE * seed + study,
        "trial_examples": plan.profile.choose(smoke=32, quick=design.TRIAL_SENTENCES),
        "trial_learning_rate": design.TRIAL_RATE,
        "trial_batch_size": design.BATCH,
    }


def full_params(plan: Plan, rate: float) -> Params:
    """Parameters of the training in full: a pass over all training sentences."""
    examples = plan.profile.choose(smoke=32, quick=None)
    return {"full_examples": examples, "full_learning_rate": rate, "full_batch_size": design.BATCH}


def study_params(plan: Plan, sampler: str, cut_rate: float, whole_rate: float) -> Params:
    """Parameters of a study, and the rates to train its choice at: a cut, or the whole model."""
    trials = plan.profile.choose(smoke=12, quick=design.TRIALS)
    rates = {**full_params(plan, cut_rate), "whole_learning_rate": whole_rate}
    return {"part": "study", "sampler": sampler, "trials": trials, **rates}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    base, tried = trial_params(plan, TUNING_SEED), design.RATES_TRIED
    yield {**base, "part": "left alone"}
    for rate in plan.profile.choose(smoke=tried["whole"][:1], quick=tried["whole"]):
        yield {**base, "part": "whole", **full_params(plan, rate)}
    for rate in plan.profile.choose(smoke=tried["cut"][:1], quick=tried["cut"]):
        for sampler in design.SAMPLERS_COMPARED:
            yield {**base, **study_params(plan, sampler, rate, rate)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    first, cut, whole = trial_params(plan, plan.seeds[0]), *design.RATES.values()
    yield {**first, "part": "audit"}
    yield {**first, "part": "beginning", "sampler": "random", "trials": design.SHORT_TRIALS}
    draws = [(seed, study) for seed in plan.seeds for study in range(design.DRAWS_A_SEED)]
    for draw in draws:
        for sampler in design.SAMPLERS_COMPARED:
            yield {**trial_params(plan, *draw), **study_params(plan, sampler, cut, whole)}
    for seed in plan.seeds:
        yield {**trial_params(plan, seed), "part": "whole", **full_params(plan, whole)}
    yield {**first, **study_params(plan, "grid", cut, whole)}
    for draw in draws:  # last: what the same searches found, trained at another rate
        preferred = study_params(plan, "random", design.RANDOM_RATE, whole)
        yield {**trial_params(plan, *draw), **preferred, "part": "preferred rate"}


page.quick(lambda params: params["part"] in ("audit", "beginning"))


# ---- a study ------------------------------------------------------------------------------------


def studies(r: Records, sampler: str) -> Records:
    """The studies of a sampler, draw by draw."""
    return r.of_experiment(STEM).all(part="study", sampler=sampler)


def least_loss(study: Record) -> float:
    return min(study.values["losses"])


def chosen_point(study: Record) -> Point:
    """The choice of a study: its trial of least validation loss, of equal ones the first."""
    return min(trials(study), key=lambda trial: trial[0])[1]


def chosen_at(study: Record) -> int:
    """The number of the trial that a study chose."""
    return study.values["losses"].index(least_loss(study)) + 1


def so_far(study: Record) -> list[float]:
    """After every trial, the validation accuracy of the one of the least loss until then."""
    losses, accuracies = study.values["losses"], study.values["accuracies"]
    best = (min(range(i + 1), key=losses.__getitem__) for i in range(len(losses)))
    return [accuracies[i] for i in best]


def choices(r: Records, sampler: str) -> Arm:
    """The choices of a sampler's studies, trained in full, on test."""
    records = tuple(studies(r, sampler))
    return Arm(label=SAMPLERS[sampler], records=records, within=("judged",), units=STUDIES)


def whole_trained(r: Records) -> Arm:
    """The whole model, trained in full as well, once a seed, on test."""
    return arm(r.of_experiment(STEM), "whole model, trained as long", "judged", part="whole")


def whole(r: Records) -> Arm:
    """The uncut model, left alone or trained in full, as validation loss prefers; one a seed."""
    return replace(
        baseline.fp32(r) if design.IS_WHOLE_LEFT_ALONE else whole_trained(r), label="uncut model"
    )


def beside(models: Arm, chosen: Arm) -> Arm:
    """Models, of which a seed has one, each repeated for every study of its seed in `chosen`."""
    by_seed = {record.case.params[SEED]: record for record in models.records}
    repeated = tuple(by_seed[record.case.params[SEED]] for record in chosen.records)
    return replace(models, records=repeated, units=STUDIES)


@page.claim(primary=True)
def tpe_chooses_better(r: Records) -> Contrast:
    """Trained in full, what TPE's studies choose is more accurate than what Random's choose."""
    return compare(choices(r, "tpe"), choices(r, "random"))


@page.claim
def tpe_comes_close(r: Records) -> Contrast:
    """What TPE's studies choose, trained in full, is at most two points less accurate than the
    whole model, left alone or trained as long, whichever validation loss prefers."""
    tpe = choices(r, "tpe")
    return compare(tpe, beside(whole(r), tpe)).no_worse(design.MARGIN)


@page.claim
def tpe_beside_random_at_its_rate(r: Records) -> Contrast:
    """TPE's choices over Random's, trained at the rate that Random's prefers on the tuning seed."""
    preferred = tuple(r.of_experiment(STEM).all(part="preferred rate"))
    return compare(choices(r, "tpe"), replace(choices(r, "random"), records=preferred))


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
    sides = [list(map(least_loss, sampled)) for sampled in (random, tpe)]
    comparison = stats.paired_mean(*sides, unit=Unit.NATS, unit_name=STUDIES)
    return contrast(comparison, [*tpe, *random])


def startup(r: Records) -> int:
    """How many of its first trials TPE draws at random."""
    return studies(r, "tpe")[0].values["settings"]["startup_trials"]


def kept(sampled: Records) -> ExactValue:
    """The share of the whole model's parameters that the choices of studies keep: the mean."""
    values = [study.values for study in sampled]
    return percentage(fmean(v["parameters"] / v["whole"]["parameters"] for v in values), sampled)


def beyond_whole(r: Records) -> ExactValue:
    """The number of TPE's studies with a trial of less loss than the whole model's."""
    tpe = studies(r, "tpe")
    whole_losses = (study.values["whole"]["validation_loss"] for study in tpe)
    return exact(sum(least_loss(study) < loss for study, loss in zip(tpe, whole_losses)), tpe)


def keeps_all(r: Records, name: str, sampler: str = "tpe") -> ExactValue:
    """The number of a sampler's studies that choose the largest `name` of any of TPE's choices."""
    largest: Any = max(chosen_point(study)[name] for study in studies(r, "tpe"))  # type: ignore[type-var]
    sampled = studies(r, sampler)
    return exact(sum(chosen_point(study)[name] == largest for study in sampled), sampled)


def lead(r: Records, share: float) -> Contrast:
    """TPE minus Random: validation accuracy of the best trial in the first `share` of a study."""
    tpe, random = studies(r, "tpe"), studies(r, "random")
    best = [list(map(so_far, sampled)) for sampled in (tpe, random)]
    sides = [[curve[round(share * len(curve)) - 1] for curve in curves] for curves in best]
    comparison = stats.paired_mean(*sides, unit=Unit.POINTS, unit_name=STUDIES)
    return contrast(comparison, [*tpe, *random])


def random_on_grids_draw(r: Records) -> Arm:
    draw = studies(r, "grid")[0].case.params["trial_draw"]
    return choices(r.where(trial_draw=draw), "random")


def trials_agree(r: Records) -> ExactValue:
    """The number of draws on which one sampler has both the better trial and the better model."""
    tpe, random = studies(r, "tpe"), studies(r, "random")
    models = zip(choices(r, "tpe").models, choices(r, "random").models, strict=True)
    on_test = [better for pair in models for better in compare(*pair).comparison.by_unit]
    pairs = zip(tpe, random, on_test, strict=True)
    same = sum((least_loss(b) - least_loss(a)) * by > 0 for a, b, by in pairs)
    return exact(same, [*tpe, *random])


page.numbers(
    tpe=partial(choices, sampler="tpe"),
    random=partial(choices, sampler="random"),
    whole=whole,
    kept=lambda r: kept(studies(r, "tpe")),
    trials=lambda r: exact(len(so_far(studies(r, "tpe")[0])), studies(r, "tpe")),
    startup=lambda r: exact(startup(r), studies(r, "tpe")),
    studies=lambda r: exact(len(studies(r, "tpe")), studies(r, "tpe")),
    grid_size=lambda r: exact(studies(r, "grid")[0].values["num_points"], studies(r, "grid")),
    deep=partial(keeps_all, name="num_hidden_layers"),
    wide=partial(keeps_all, name="hidden_size"),
    random_deep=partial(keeps_all, name="num_hidden_layers", sampler="random"),
    random_wide=partial(keeps_all, name="hidden_size", sampler="random"),
    below_whole=lambda r: compare(beside(whole(r), choices(r, "tpe")), choices(r, "tpe")),
    half_lead=partial(lead, share=0.5),
    full_lead=partial(lead, share=1.0),
    grid=partial(choices, sampler="grid"),
    random_there=random_on_grids_draw,
    beyond_whole=beyond_whole,
    trials_agree=trials_agree,
    at_one_rate=tpe_chooses_better,
    at_its_rate=tpe_beside_random_at_its_rate,
    by_trial=tpe_finds_less_loss,
    num_test=lambda r: exact(baseline.fp32(r).accuracy.n, baseline.fp32(r).records),
)


@page.chart
def curves(r: Records) -> Chart:
    """Validation accuracy of the trial of least loss so far, mean over a sampler's studies."""
    curves = {name: list(map(so_far, studies(r, sampler))) for sampler, name in SAMPLERS.items()}
    trial = fmean(study.values["whole"]["validation_accuracy"] for study in studies(r, "tpe"))
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
    """Validation accuracy of Random's trials with the smallest value of each parameter minus that
    of those with the largest: the mean over draws."""
    rows: list[Row] = []
    for effect in r.of_experiment(STEM).single(part="audit").values["space"]:
        name, values = effect["name"], effect["values"]
        ends = ("identity", "linear") if "linear" in values else (values[0], values[-1])
        draws = [[scores(study, name, v) for v in ends] for study in studies(r, "random")]
        change = [fmean(small) - fmean(large) for small, large in draws if small and large]
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
    """Validation accuracies of a study's trials in which the parameter `name` has this value."""
    pairs = zip(trials(study), study.values["accuracies"], strict=True)
    return [accuracy for (_, point), accuracy in pairs if point[name] == value]


@page.table
def samplers(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler in ("tpe", "random", "grid"):
        sampled = studies(r, sampler)
        best = [so_far(study)[-1] for study in sampled]
        row = {
            "sampler": SAMPLERS[sampler],
            "studies": len(sampled),
            "best trial, on validation": searches.mean_estimate(best),
            "found at trial": f"{median(map(chosen_at, sampled)):g}",
            "parameters kept": f"{kept(sampled).value:g} %",
            "trained in full, on test": choices(r, sampler),
        }
        rows.append(row)
    for name, models in (("left alone", baseline.fp32(r)), ("trained as long", whole_trained(r))):
        rows.append({"sampler": f"uncut, {name}", "trained in full, on test": models})
    return rows


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """Test accuracy of every study's choice and of the uncut model, by draw; the shape of TPE's."""
    arms = [choices(r, "tpe"), choices(r, "random")]
    arms.append(beside(whole(r), arms[0]))
    return [
        {
            "model": study.case.params[SEED],
            "draw": study.case.params["trial_draw"],
            "TPE's choice": shape(chosen_point(study)),
            **{a.label: str(a.models[i]) for a in arms},
        }
        for i, study in enumerate(studies(r, "tpe"))
    ]


def shape(point: Point) -> str:
    """A sub-network in words: "4 layers, 6 heads, width 384, FFN 768; identity: key"."""
    sizes = [words.format(point[field]) for field, words in SIZES.items() if field in point]
    passed = [kind.replace("_", " ") for kind, value in point.items() if value == "identity"]
    return f"{', '.join(sizes)}; identity: {', '.join(passed) or 'none'}"


@page.table
def audit(r: Records) -> Sequence[Row]:
    """The parts of a built model that each parameter of the search or a `BertConfig` changes."""
    values = r.of_experiment(STEM).single(part="audit").values
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
    trainings: dict[str, Params] = {
        "uncut model": {"part": "whole"},
        "TPE's choice": {"part": "study", "sampler": "tpe"},
        "Random's choice": {"part": "study", "sampler": "random"},
    }
    alone = r.tuning.single(part="left alone").values["validation_loss"]
    first: Row = {"model": "uncut model, left alone", "no training": f"{alone:.4f}"}
    return [first, *searches.rate_rows(r.tuning, trainings, "full_learning_rate", "judged")]


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS))
