"""What the studies of the architecture search found and chose, read from their records.

A study chooses by validation; what it chose, and the whole model with the same training, are
judged on test. Studies on one model are its units of replication; of several models, the models.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from madl.logbook import searches, stats
from madl.logbook.arms import SEED, Arm
from madl.logbook.claims import Contrast, contrast
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import Estimate, Unit
from madl.training import baseline

SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
VALIDATION = ("judged", "validation")  # where a judged model's validation outcomes stand
SIZES = {  # field of `BertConfig` → how it is said
    "num_hidden_layers": "{} layers",
    "num_attention_heads": "{} heads",
    "hidden_size": "width {}",
    "intermediate_size": "FFN {}",
}


def studies(r: Records, sampler: str) -> Records:
    return r.all(part="study", sampler=sampler)


def best_value(study: Record) -> float:
    """What a study found, on validation."""
    return study.values["accuracy"]


def mean(r: Records, sampler: str, value: Any) -> Estimate:
    """Of a plain value of each study."""
    return searches.mean_estimate(searches.of_units(studies(r, sampler), value))


def chosen_point(study: Record) -> dict[str, Any]:
    """The sub-network that a study chose."""
    at = searches.found_at(study.values["values"])
    return dict(zip(study.values["names"], study.values["points"][at - 1], strict=True))


def named(name: str, value: Any) -> str:
    """A value of a parameter in words: "6 layers", "key: identity"."""
    return (SIZES.get(name) or name.replace("_", " ") + ": {}").format(value)


def counted(every: Records) -> str:
    """How many studies a sampler has: "5 studies of each of 3 models"."""
    models = len(every.each(SEED))
    of = f"each of {models} models" if models > 1 else "1 model"
    return f"{len(every) // models} studies of {of}"


def units(r: Records) -> str:
    """What means are made of and intervals are over: "3 models", or one model's "5 studies"."""
    every = studies(r, "tpe")
    models = len(every.each(SEED))
    return f"{models} models" if models > 1 else f"{len(every)} studies"


def found_at(every: Records) -> str:
    """The trials in which studies came by their choices: the median, the first and the last."""
    trials = sorted(searches.found_at(one.values["values"]) for one in every)
    return f"{stats.number(median(trials))} ({trials[0]} to {trials[-1]})"


def startup(r: Records) -> int:
    """How many of its first trials TPE draws at random."""
    return studies(r, "tpe")[0].values["settings"]["startup_trials"]


# ---- judged on test -----------------------------------------------------------------------------


def choices(r: Records, sampler: str) -> Arm:
    """What each study of a sampler chose."""
    found = tuple(studies(r, sampler))
    return Arm(label=SAMPLERS[sampler], records=found, within=("judged",), units=searches.STUDIES)


def whole(r: Records) -> Arm:
    """The whole model after the training of each draw's trials."""
    found = tuple(r.all(part="whole"))
    label = "whole model, trained alike"
    return Arm(label=label, records=found, within=("judged",), units=searches.STUDIES)


def beside(r: Records, a: Arm, b: Arm) -> str:
    """Behind a sentence that holds one sampler's choices against the whole model: the others'."""
    if b.label != whole(r).label:
        return ""
    others = (choices(r, sampler) for sampler in SAMPLERS if SAMPLERS[sampler] != a.label)
    return "; " + ", and ".join(f"what {one.label}'s studies choose has {one}" for one in others)


def untouched(r: Records) -> Arm:
    """The model that is cut, as it was, once for each draw."""
    fp32 = baseline.fp32(r)
    of = {record.case.params["seed"]: record for record in fp32.records}
    found = tuple(of[record.case.params["seed"]] for record in r.all(part="whole"))
    return Arm(label=fp32.label, records=found, units=searches.STUDIES)


def ranking(r: Records) -> Contrast:
    """Rank correlation of a trial's scores with a longer training's, draw by draw: a study
    compares points of one draw."""

    def within(one: Record) -> float:
        return searches.rank_correlation(one.values["trial"], one.values["longer"])

    every = r.all(part="ranking")
    drawn = "draws of 1 model" if len(every.each(SEED)) == 1 else "trained models"
    each = searches.of_units(every, within)
    return contrast(stats.mean(each, unit=Unit.CORRELATION, drawn=drawn), every)


# ---- rows ---------------------------------------------------------------------------------------


def choice_rows(r: Records) -> list[Row]:
    """What every study chose, each model after each draw, and as it was."""
    rows, size = list[Row](), r.one(part="audit").values["space"][0]["parameters"][-1]
    for sampler, title in SAMPLERS.items():
        for study in studies(r, sampler):
            at, parameters = searches.found_at(study.values["values"]), study.values["parameters"]
            cut = "the whole" if parameters == size else shape(chosen_point(study))
            rows.append(_choice(title, study, cut, parameters, at))
    rows += [_choice(whole(r).label, record, "the whole", size) for record in whole(r).records]
    for one in baseline.fp32(r).models:
        rows.append({"chosen by": "as fine-tuned", "training seed": one.param(SEED), "test": one})
    return rows


def _choice(by: str, record: Record, shape: str, size: int, at: int | str = "") -> Row:
    return {
        "chosen by": by,
        "training seed": record.case.params[SEED],
        "draw": record.case.params["draw"],
        "found at trial": at,
        "shape": shape,
        "parameters, M": size / 1e6,
        "validation": stats.per_cent(best_value(record)),
        "test": Arm(label=by, records=(record,), within=("judged",)),
    }


def shape(point: Mapping[str, Any]) -> str:
    """A sub-network in few words: 4 layers, 6 heads, width 384, FFN 768; identity: key."""
    sizes = [said.format(point[field]) for field, said in SIZES.items() if field in point]
    passed = [kind.replace("_", " ") for kind, value in point.items() if value == "identity"]
    return f"{', '.join(sizes)}; identity: {', '.join(passed) or 'none'}"


def effect_rows(r: Records) -> list[Row]:
    """Mean validation accuracy of blindly drawn trials by each value of each parameter."""
    return [
        {"choice": choice, "validation accuracy": searches.mean_estimate(means)}
        for values in effects(r)
        for choice, means in values.items()
    ]


def effects(r: Records) -> list[dict[str, list[float]]]:
    """Of each parameter, by value, the mean of each unit: studies of one model, or models."""
    found: list[dict[str, list[float]]] = []
    for effect in r.one(part="audit").values["space"]:
        name = effect["name"]
        every = {named(name, value): _blind(r, name, value) for value in effect["values"]}
        found.append({choice: means for choice, means in every.items() if means})
    return found


def _blind(r: Records, name: str, value: Any) -> list[float]:
    """What trials of Random and Grid with this value have, unit by unit."""
    models = [
        [
            fmean(scores)
            for sampler in ("random", "grid")
            for study in studies(r, sampler).all(**{SEED: seed})
            if (scores := _scores_at(study, name, value))
        ]
        for seed in studies(r, "random").each(SEED)
    ]
    return models[0] if len(models) == 1 else [fmean(means) for means in models if means]


def _scores_at(study: Record, name: str, value: Any) -> list[float]:
    """Of a study's trials that have this value."""
    i = study.values["names"].index(name)
    pairs = zip(study.values["points"], study.values["values"], strict=True)
    return [score for point, score in pairs if point[i] == value]


def audit_rows(r: Records) -> list[Row]:
    """What each parameter changes of what is built, here and in a `BertConfig`."""
    values = r.one(part="audit").values
    return [
        {
            "parameter": f"`{effect['name']}`",
            "set": where,
            "values": ", ".join(map(str, effect["values"])),
            "parameters of the model": _ends(effect["parameters"]),
            "changes": " and ".join(effect["changes"]) or "nothing",
        }
        for where, key in (("searched here", "space"), ("in `BertConfig`", "course"))
        for effect in values[key]
    ]


def _ends(sizes: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys((f"{sizes[0]:,}", f"{sizes[-1]:,}")))


def setting_rows(r: Records) -> list[Row]:
    """What defines each sampler beside its seed."""
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        used = studies(r, sampler)[0].values["settings"]
        said = ", ".join(f"{k.replace('_', ' ')}: {v}" for k, v in used.items() if k != "sampler")
        rows.append(
            {"sampler": title, "settings": said or "every value equally likely, points may repeat"}
        )
    return rows
