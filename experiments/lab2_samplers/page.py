"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and looks at its
validation accuracy. A study has a draw of its own: the sampler's seed, and the sentences that its
trials train on. All samplers search on every draw. What a study chooses is trained in full and
judged on test.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean, median
from typing import Any

from experiments.lab2_samplers import design
from experiments.lab2_samplers.records import STEM, Point, choice, draw_of, full_params, trials
from madl.logbook import searches, stats
from madl.logbook.arms import SEED, Arm, arm, beside
from madl.logbook.charts import Chart, category, intervals, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import CUT, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, exact, of_all, percentage
from madl.logbook.records import Params, Pending, Record, Records, Row
from madl.logbook.values import Unit
from madl.training import baseline

page = Experiment(needs=("baseline",), requires=(CUT,))

SAMPLERS = {
    **{"random": "Random", "grid": "Grid", "tpe": "TPE"},
    design.OLDER: "TPE, each parameter alone",
}
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
        "trial_draw": draw_of(seed, study),
        "trial_examples": plan.profile.choose(smoke=32, quick=design.TRIAL_SENTENCES),
        "trial_learning_rate": design.TRIAL_RATE,
        "trial_batch_size": design.BATCH,
    }


def study_params(plan: Plan, sampler: str, rate: float = design.RATE) -> Params:
    """Parameters of a study, and of its choice's training in full: of a cut, or the whole model."""
    trials = plan.profile.choose(smoke=12, quick=design.TRIALS)
    rates = {**full_params(plan, rate), "whole_learning_rate": rate}
    return {"part": "study", "sampler": sampler, "trials": trials, **rates}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    base = trial_params(plan, TUNING_SEED)
    yield {**base, "part": "left alone"}
    for model, tried in design.RATES_TRIED.items():
        for rate in plan.profile.choose(smoke=tried[:1], quick=tried):
            if model == "whole":
                yield {**base, "part": "whole", **full_params(plan, rate)}
            else:
                yield {**base, **study_params(plan, model, rate)}


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    first = trial_params(plan, plan.seeds[0])
    yield {**first, "part": "audit"}
    yield {**first, "part": "beginning", "sampler": "random", "trials": design.SHORT_TRIALS}
    for seed in plan.seeds:
        for study in range(design.DRAWS_A_SEED):
            for sampler in design.SAMPLERS:
                yield {**trial_params(plan, seed, study), **study_params(plan, sampler)}
        yield {**trial_params(plan, seed), "part": "whole", **full_params(plan)}


page.quick(lambda params: params["part"] in ("audit", "beginning"))


# ---- a study ------------------------------------------------------------------------------------


def studies(r: Records, sampler: str) -> Records:
    """The studies of a sampler, draw by draw."""
    return r.of_experiment(STEM).all(part="study", sampler=sampler)


def chosen_at(study: Record) -> int:
    """The number of the trial that a study chose."""
    return study.values["accuracies"].index(choice(study)[0]) + 1


def chosen_point(study: Record) -> Point:
    return choice(study)[1]


def so_far(study: Record) -> list[float]:
    """After every trial, the highest validation accuracy until then."""
    return list(accumulate(study.values["accuracies"], max))


def choices(r: Records, sampler: str) -> Arm:
    """The choices of a sampler's studies, trained in full, on test."""
    records = tuple(studies(r, sampler))
    return Arm(label=SAMPLERS[sampler], records=records, within=("judged",), units=STUDIES)


def whole_trained(r: Records) -> Arm:
    """The whole model, trained in full as well, once a seed, on test."""
    return arm(r.of_experiment(STEM), "starting model, trained as long", "judged", part="whole")


def left_alone(r: Records) -> Arm:
    """The starting model as it is, one a seed."""
    return replace(baseline.fp32(r), label="starting model")


@page.claim(primary=True)
def tpe_chooses_better(r: Records) -> Contrast:
    """Trained in full, what TPE's studies choose is more accurate than what Random's choose."""
    return compare(choices(r, "tpe"), choices(r, "random"))


@page.claim(primary=True)
def tpe_chooses_better_than_grid(r: Records) -> Contrast:
    """Trained in full, what TPE's studies choose is more accurate than what Grid's choose."""
    return compare(choices(r, "tpe"), choices(r, "grid"))


@page.claim
def tpe_beside_whole(r: Records) -> Contrast:
    """TPE's choices over the model that all are cut from, both trained in full."""
    tpe = choices(r, "tpe")
    return compare(tpe, beside(whole_trained(r), tpe))


@page.claim
def tpe_beside_left_alone(r: Records) -> Contrast:
    """TPE's choices, trained in full, over the starting model as it is."""
    tpe = choices(r, "tpe")
    return compare(tpe, beside(left_alone(r), tpe))


@page.claim
def random_beside_whole(r: Records) -> Contrast:
    """Random's choices over the starting model, both trained in full."""
    random = choices(r, "random")
    return compare(random, beside(whole_trained(r), random))


@page.claim
def parameters_together(r: Records) -> Contrast:
    """TPE's choices over those of TPE that draws each parameter alone."""
    return compare(choices(r, "tpe"), choices(r, design.OLDER))


def startup(r: Records) -> int:
    """How many of its first trials TPE draws at random."""
    return studies(r, "tpe")[0].values["num_at_random"]


def kept(sampled: Records) -> ExactValue:
    """The share of the whole model's parameters that the choices of studies keep: the mean."""
    values = [study.values for study in sampled]
    return percentage(fmean(v["parameters"] / v["whole"]["parameters"] for v in values), sampled)


def beyond_whole(r: Records) -> ExactValue:
    """The number of TPE's studies with a more accurate trial than the whole model's."""
    tpe = studies(r, "tpe")
    better = (so_far(study)[-1] > study.values["whole"]["validation_accuracy"] for study in tpe)
    return exact(sum(better), tpe)


def keeps_all(r: Records, name: str, sampler: str = "tpe") -> ExactValue:
    """The number of a sampler's studies that choose the largest `name` that there is."""
    space = r.of_experiment(STEM).single(part="audit").values["space"]
    largest = next(max(effect["values"]) for effect in space if effect["name"] == name)
    sampled = studies(r, sampler)
    return exact(sum(chosen_point(study)[name] == largest for study in sampled), sampled)


def lead(r: Records, share: float) -> Contrast:
    """TPE minus Random: validation accuracy of the best trial in the first `share` of a study."""
    tpe, random = studies(r, "tpe"), studies(r, "random")
    if len(tpe) == 1:
        raise Pending("a second study of each sampler")
    best = [list(map(so_far, sampled)) for sampled in (tpe, random)]
    sides = [[curve[round(share * len(curve)) - 1] for curve in curves] for curves in best]
    comparison = stats.paired_mean(*sides, unit=Unit.POINTS, unit_name=STUDIES)
    return contrast(comparison, [*tpe, *random])


def trial_leads(r: Records) -> list[float]:
    """TPE's best trial less Random's, draw by draw: validation accuracy."""
    pairs = zip(studies(r, "tpe"), studies(r, "random"), strict=True)
    return [so_far(tpe)[-1] - so_far(random)[-1] for tpe, random in pairs]


def trials_agree(r: Records) -> ExactValue:
    """The number of draws on which one sampler has both the better trial and the better model."""
    tpe, random = choices(r, "tpe"), choices(r, "random")
    models = zip(tpe.models, random.models, strict=True)
    on_test = [better for pair in models for better in compare(*pair).comparison.by_unit]
    same = sum(lead * by > 0 for lead, by in zip(trial_leads(r), on_test, strict=True))
    return exact(same, [*tpe.records, *random.records])


page.numbers(
    tpe=of_all(choices, sampler="tpe"),
    random=of_all(choices, sampler="random"),
    grid=of_all(choices, sampler="grid"),
    over_whole=tpe_beside_whole,
    over_left_alone=tpe_beside_left_alone,
    over_older=parameters_together,
    kept=lambda r: kept(studies(r.and_further, "tpe")),
    trials=lambda r: exact(len(so_far(studies(r, "tpe")[0])), studies(r, "tpe")),
    startup=lambda r: exact(startup(r), studies(r, "tpe")),
    studies=of_all(lambda r: exact(len(studies(r, "tpe")), studies(r, "tpe"))),
    grid_size=lambda r: exact(studies(r, "grid")[0].values["num_points"], studies(r, "grid")),
    deep=of_all(keeps_all, name="num_hidden_layers"),
    wide=of_all(keeps_all, name="hidden_size"),
    random_deep=of_all(keeps_all, name="num_hidden_layers", sampler="random"),
    random_wide=of_all(keeps_all, name="hidden_size", sampler="random"),
    half_lead=of_all(lead, share=0.5),
    full_lead=of_all(lead, share=1.0),
    beyond_whole=of_all(beyond_whole),
    trials_agree=of_all(trials_agree),
    trials_differ=of_all(lambda r: exact(sum(map(bool, trial_leads(r))), studies(r, "tpe"))),
    num_test=lambda r: exact(baseline.fp32(r).first.accuracy.n, baseline.fp32(r).records),
)


@page.chart
def curves(r: Records) -> Chart:
    """The highest validation accuracy of a trial so far, mean over a sampler's studies."""
    every = r.and_further
    curves = {
        name: list(map(so_far, studies(every, sampler))) for sampler, name in SAMPLERS.items()
    }
    trial = fmean(study.values["whole"]["validation_accuracy"] for study in studies(every, "tpe"))
    blind = span(0.5, startup(r) + 0.5, "drawn at random")
    lines = (line(name, markers=False) for name in curves)
    return Chart(
        searches.mean_rows(curves),
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[blind, level(trial, "starting model, one trial"), *lines],
    )


@page.chart
def cuts(r: Records) -> Chart:
    """Validation accuracy of Random's trials with the smallest value of each parameter minus that
    of those with the largest: the mean over draws."""
    rows, blind = list[Row](), studies(r.and_further, "random")
    for effect in r.of_experiment(STEM).single(part="audit").values["space"]:
        name, values = effect["name"], effect["values"]
        ends = ("identity", "linear") if "linear" in values else (values[0], values[-1])
        draws = [[scores(study, name, v) for v in ends] for study in blind]
        change = [fmean(small) - fmean(large) for small, large in draws if small and large]
        cut = SIZES[name].format(ends[0]) if name in SIZES else f"{name}: identity"
        row = {"cut": cut.replace("_", " "), "change": searches.mean_estimate(change, Unit.POINTS)}
        rows.append(row)
    return Chart(
        rows,
        x=linear("change", "change of a trial's mean validation accuracy", "points", factor=100),
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
    every = r.and_further
    for sampler in ("tpe", "random", "grid", design.OLDER):
        sampled = studies(every, sampler)
        best = [so_far(study)[-1] for study in sampled]
        row = {
            "sampler": SAMPLERS[sampler],
            "studies": len(sampled),
            "best trial, on validation": searches.mean_estimate(best),
            "found at trial": f"{median(map(chosen_at, sampled)):g}",
            "parameters kept": f"{kept(sampled).value:g} %",
            "trained in full, on test": choices(every, sampler),
        }
        rows.append(row)
    for name, models in (("left alone", baseline.fp32(r)), ("trained as long", whole_trained(r))):
        rows.append({"sampler": f"starting model, {name}", "trained in full, on test": models})
    return rows


@page.table
def chosen(r: Records) -> Sequence[Row]:
    """Test accuracy of every study's choice and of the starting model, by draw; TPE's shapes."""
    every, whole = r.and_further, whole_trained(r)
    arms = [choices(every, sampler) for sampler in ("tpe", "random", "grid")]
    trained = {
        record.case.params[SEED]: str(model)
        for record, model in zip(whole.records, whole.models, strict=True)
    }
    return [
        {
            "model": study.case.params[SEED],
            "draw": study.case.params["trial_draw"],
            "TPE's choice": shape(chosen_point(study)),
            **{a.label: str(a.models[i]) for a in arms},
            whole.label: trained.get(study.case.params[SEED], ""),
        }
        for i, study in enumerate(studies(every, "tpe"))
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
        "starting model": {"part": "whole"},
        "TPE's choice": {"part": "study", "sampler": "tpe"},
        "Random's choice": {"part": "study", "sampler": "random"},
    }
    alone = r.tuning.single(part="left alone").values["validation_loss"]
    first: Row = {"model": "starting model, left alone", "no training": f"{alone:.4f}"}
    chosen = dict.fromkeys(trainings, design.RATE)
    rows = searches.rate_rows(r.tuning, trainings, "full_learning_rate", "judged", chosen=chosen)
    return [first, *rows]


page.power(design.TRUTHS)
