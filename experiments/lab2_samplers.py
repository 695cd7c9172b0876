"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and is worth its accuracy
on validation data. That is a function of the point, evaluated once and remembered, so many studies
cost little more than one, and the curves have bands. Each study lives in a folder of its own and
survives a kill. The test split is touched once, by the model that each sampler's first study chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from madl.logbook import plots, searches, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Record, Records
from madl.training import baseline

SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
ROLES = {"Random": "first", "Grid": "second", "TPE": "third"}
MARGIN = 0.005  # means of best accuracies closer than this count as the same
NEAR = 0.01  # a trial this close to the best of all has practically found it
COURSE_CONFIG = {  # a small BERT, to try configuration fields on
    "vocab_size": 64,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}
COURSE_SPACE = {
    "num_layers": (2, 4, 8),
    "num_heads": (2, 4, 8),
    "num_hidden_layers": (2, 4, 8),
    "num_attention_heads": (2, 4, 8),
    "hidden_size": (32, 48, 64),
    "intermediate_size": (32, 64, 128),
}


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    trials, studies = choose(smoke=14, quick=40, full=80), choose(smoke=2, quick=12, full=20)
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "test_examples": choose(smoke=64, quick=500, full=None),
            "space": choose(smoke="coarse", quick="coarse", full="fine"),
            "weights": "inherited",
            "trial_examples": choose(smoke=32, quick=64, full=256),
            "trial_learning_rate": 1e-4,
            "trial_batch_size": 16,
            "choose_examples": choose(smoke=32, quick=192, full=500),
        }
        if seed == 0:
            yield {**base, "part": "audit"}
        scratch = {"weights": "scratch", "trials": choose(smoke=2, quick=8, full=20)}
        yield {**base, "part": "study", "sampler": "random", "study": 0, **scratch}
        for study in range(studies):
            for sampler in SAMPLERS:
                yield {
                    **base,
                    "part": "study",
                    "sampler": sampler,
                    "study": study,
                    "trials": trials,
                }


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.training.search import num_points, search, settings, study_folder
    from madl.training.supernet import Supernet, space

    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]))
    if params["part"] == "audit":
        return _audit(net, choices)

    def objective(point: Params) -> tuple[float, Mapping[str, Any]]:
        found = net.trial(point)
        return found["accuracy"], {"parameters": found["parameters"]}

    trials = search(
        study_folder(ctx, params),
        choices,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["study"]),
        trials=int(params["trials"]),
    )
    best = max(trials, key=lambda trial: trial.value)  # of equal ones the first
    values: dict[str, Any] = {
        "names": list(choices),
        "points": [list(trial.point.values()) for trial in trials],
        "values": [trial.value for trial in trials],
        "parameters": [trial.notes["parameters"] for trial in trials],
        "num_at_random": sum(trial.at_random for trial in trials),
        "num_points": num_points(choices),
        "settings": settings(str(params["sampler"])),
        "accuracy": best.value,
    }
    if params["study"] == 0:
        values["judged"] = net.judged(best.point)
    return values


# ---- the audit ----------------------------------------------------------------------------------


def _audit(net: Any, choices: Any) -> dict[str, Any]:
    """What each parameter changes of what is built; our space must not hold an idle one."""
    from madl.training.search import effects, refuse_idle

    batch = baseline.load_splits(net.params).validation.batch(range(4))
    whole = {name: values[-1] for name, values in choices.items() if name != "pooler"}
    base = {**whole, "pooler": "linear"}
    ours = effects(choices, lambda point: _signature(net.build(point), batch), base=base)
    refuse_idle(ours)
    tokens = {key: batch[key][:, :16] for key in ("input_ids", "attention_mask")}
    small = tokens | {"input_ids": tokens["input_ids"] % COURSE_CONFIG["vocab_size"]}
    base = {name: values[0] for name, values in COURSE_SPACE.items()} | {"hidden_size": 48}
    course = effects(COURSE_SPACE, lambda point: _signature(_from_config(point), small), base=base)
    judged = net.judged({**whole, "pooler": "linear"})
    labels = baseline.load_splits(net.params).test.labels
    return {
        "ours": [_effect(effect) for effect in ours],
        "course": [_effect(effect) for effect in course],
        "whole": judged,
        "majority_share": max(sum(labels), len(labels) - sum(labels)) / len(labels),
        "accuracy": judged["accuracy"],
    }


def _signature(model: Any, batch: Any) -> dict[str, Any]:
    import hashlib

    import torch

    with torch.no_grad():
        logits = model.eval()(**batch).logits
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "output": hashlib.sha256(logits.numpy().tobytes()).hexdigest()[:12],
    }


def _from_config(point: Params) -> Any:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)  # the same draw of weights: only the configuration can differ
    return BertForSequenceClassification(BertConfig(**{**COURSE_CONFIG, **point}))


def _effect(effect: Any) -> dict[str, Any]:
    return {
        "name": effect.name,
        "values": list(effect.values),
        "changes": list(effect.changes),
        "parameters": [signature["parameters"] for signature in effect.signatures],
    }


# ---- reading the records ------------------------------------------------------------------------


def studies(records: Records, sampler: str, weights: str = "inherited") -> Records:
    found = records.where(part="study", sampler=sampler, weights=weights)
    if not found:
        raise Pending(sampler)
    return found


def curves(records: Records) -> dict[str, list[list[float]]]:
    """Per sampler the values of its studies, in the same order for all."""
    found = {title: studies(records, sampler) for sampler, title in SAMPLERS.items()}
    if len({len(each) for each in found.values()}) > 1:
        raise Pending("studies of some sampler")
    return {title: [r.values["values"] for r in each] for title, each in found.items()}


def best_after(records: Records, title: str, trials: int) -> list[float]:
    return [max(study[:trials]) for study in curves(records)[title]]


def num_trials(records: Records) -> int:
    return min(len(study) for each in curves(records).values() for study in each)


def startup(records: Records) -> int:
    return studies(records, "tpe")[0].values["settings"]["startup_trials"]


def evaluated(records: Records) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every point that any study of the first training seed came by, with what it gave."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for sampler in SAMPLERS:
        for record in studies(records, sampler).where(seed=0):
            v = record.values
            for point, value, size in zip(v["points"], v["values"], v["parameters"]):
                named = dict(zip(v["names"], point))
                seen[tuple(point)] = {**named, "accuracy": value, "parameters": size}
    return seen


def _judged(records: Records, sampler: str, weights: str = "inherited") -> list[stats.Outcomes]:
    found = studies(records, sampler, weights).where(study=0)
    return [stats.Outcomes.from_json(r.values["judged"]["outcomes"]) for r in found]


# ---- claims -------------------------------------------------------------------------------------


def startup_is_random(records: Records) -> Claim:
    pairs = zip(studies(records, "random"), studies(records, "tpe"))
    first = startup(records)
    same = [
        a == b
        for x, y in pairs
        for a, b in zip(x.values["points"][:first], y.values["points"][:first])
    ]
    text = (
        f"The first {first} trials of TPE are random draws: over {len(studies(records, 'tpe'))} "
        f"studies, {sum(same)} of {len(same)} are the very points that the random sampler draws "
        "from the same seed"
    )
    return stats.none_of(same.count(False), len(same), text)


def _at_end(records: Records, title: str) -> tuple[list[float], list[float], str]:
    end = num_trials(records)
    a, b = best_after(records, "Random", end), best_after(records, title, end)
    text = f"{fmean(b):.1%} against {fmean(a):.1%}, the mean of {len(a)} studies each"
    return a, b, text


def tpe_is_ahead(records: Records) -> Claim:
    a, b, numbers = _at_end(records, "TPE")
    text = f"After {num_trials(records)} trials, TPE has found more than Random: {numbers}"
    return stats.paired_mean(a, b, unit=stats.Unit.POINTS, of="studies").improves(text)


def grid_is_random(records: Records) -> Claim:
    a, b, numbers = _at_end(records, "Grid")
    text = (
        f"After {num_trials(records)} trials, Grid and Random agree to within "
        f"{100 * MARGIN:g} points: {numbers}"
    )
    return stats.paired_mean(a, b, unit=stats.Unit.POINTS, of="studies").within(MARGIN, text)


def ten_trials_decide(records: Records) -> Claim:
    first = startup(records)
    a, b = best_after(records, "Random", first), best_after(records, "Grid", first)
    text = (
        f"After {first} trials, Grid has found more than Random: {fmean(b):.1%} against "
        f"{fmean(a):.1%}"
    )
    return stats.paired_mean(a, b, unit=stats.Unit.POINTS, of="studies").improves(text)


def no_idle_parameter(records: Records) -> Claim:
    found = records.one(part="audit").values["ours"]
    idle = [effect["name"] for effect in found if not effect["changes"]]
    text = f"Each of the {len(found)} searched parameters changes the model that is built"
    return stats.none_of(len(idle), len(found), text)


def course_names_are_idle(records: Records) -> Claim:
    found = [e for e in records.one(part="audit").values["course"] if e["name"] in IDLE_NAMES]
    active = [effect["name"] for effect in found if effect["changes"]]
    names = " and ".join(f"`{effect['name']}`" for effect in found)
    text = f"Setting {names} in a `BertConfig` changes nothing of the model that is built"
    return stats.none_of(len(active), len(found), text)


IDLE_NAMES = ("num_layers", "num_heads")


def search_pays(records: Records) -> Claim:
    whole = [
        stats.Outcomes.from_json(r.values["whole"]["outcomes"])
        for r in records.where(part="audit", seed=0)
    ]
    if not whole:
        raise Pending("the whole model")
    best = max(SAMPLERS, key=lambda s: studies(records, s).one(seed=0, study=0).values["accuracy"])
    found = _judged(records, best)[:1]
    size = _chosen(records, best)["parameters"] / _largest(records)
    text = (
        f"On test sentences, the model that the first {SAMPLERS[best]} study chose "
        f"({found[0].accuracy:.1%}, {size:.0%} of the largest point's parameters) is as accurate, "
        f"to within {100 * NEAR:g} point, as the whole model after the same training "
        f"({whole[0].accuracy:.1%})"
    )
    return stats.compare(whole, found).within(NEAR, text)


def _chosen(records: Records, sampler: str) -> dict[str, Any]:
    values = studies(records, sampler).one(seed=0, study=0).values
    best = values["values"].index(max(values["values"]))
    point = dict(zip(values["names"], values["points"][best]))
    return {**point, "accuracy": values["values"][best], "parameters": values["parameters"][best]}


def _largest(records: Records) -> int:
    return max(point["parameters"] for point in evaluated(records).values())


def scratch_is_chance(records: Records) -> Claim:
    record = studies(records, "random", "scratch").one(seed=0)
    majority = records.one(part="audit").values["majority_share"]
    judged = _judged(records, "random", "scratch")[0]
    text = (
        f"From scratch, with the same {record.case.params['trial_examples']} training sentences, "
        f"the best of {len(record.values['values'])} trials is better on test sentences than the "
        f"larger class ({judged.accuracy:.1%} against {majority:.1%})"
    )
    return stats.exceeds(judged, majority).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def curve_rows(records: Records) -> Sequence[Row]:
    rows = searches.curve_rows(curves(records))
    return [{**row, "drawn at random by TPE": row["trial"] <= startup(records)} for row in rows]  # type: ignore[operator]


def draw_curves(ax: Any, rows: Sequence[Row]) -> None:
    first = sum(bool(row["drawn at random by TPE"]) for row in rows)
    searches.draw_curves(ax, rows, ROLES, accuracy="best validation accuracy", startup=first)
    ax.annotate(
        "TPE draws at random",
        (0.015, 0.02),
        xycoords="axes fraction",
        fontsize=9,
        color=plots.color("chance"),
    )


def curves_alt(rows: Sequence[Row]) -> str:
    return searches.curves_alt(rows, list(ROLES))


def landscape_rows(records: Records) -> Sequence[Row]:
    return [
        {
            "parameters (millions)": point["parameters"] / 1e6,
            "validation accuracy": point["accuracy"],
            "layers": point.get("num_hidden_layers"),
            "width": point.get("hidden_size"),
            "pooler": point["pooler"],
        }
        for point in sorted(evaluated(records).values(), key=lambda point: point["parameters"])
    ]


def draw_landscape(ax: Any, rows: Sequence[Row]) -> None:
    depths = sorted({row["layers"] for row in rows}, key=lambda depth: depth or 0)
    shown = depths[:: max(len(depths) // 3, 1)][-3:] if len(depths) > 3 else depths
    for depth, role in zip(shown, ("third", "second", "first")):
        some = [row for row in rows if row["layers"] == depth]
        ax.plot(
            [row["parameters (millions)"] for row in some],
            [row["validation accuracy"] for row in some],
            **plots.line(role, linestyle="", alpha=0.8, label=f"{depth} layers"),
        )
    ax.set_xlabel("parameters (millions)")
    plots.percent_axis(ax, "validation accuracy")
    plots.legend(ax)


def landscape_alt(rows: Sequence[Row]) -> str:
    best = max(rows, key=lambda row: row["validation accuracy"])  # type: ignore[arg-type,return-value]
    top = [row for row in rows if best["validation accuracy"] - row["validation accuracy"] <= NEAR]  # type: ignore[operator]
    return (
        f"Accuracy against size of {len(rows)} sub-networks: from "
        f"{min(row['validation accuracy'] for row in rows):.1%} to "  # type: ignore[type-var]
        f"{best['validation accuracy']:.1%}; {len(top)} of them lie within a point of the best."
    )


def samplers_table(records: Records) -> Sequence[Row]:
    every = curves(records)
    near = max(value for studies in every.values() for study in studies for value in study) - NEAR
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        found = studies(records, sampler)
        reached = [searches.trials_to_reach(study, near) for study in every[title]]
        good = sorted(trials for trials in reached if trials is not None)
        at = sorted(searches.found_at(study) for study in every[title])
        distinct = [len({tuple(p) for p in r.values["points"]}) for r in found]
        rows.append(
            {
                "sampler": title,
                "studies": len(found),
                "points visited": f"{fmean(distinct):.0f} of {found[0].values['num_points']}",
                "best, mean": f"{fmean([max(study) for study in every[title]]):.1%}",
                "best found at trial": _spread(at),
                f"within a point of {near + NEAR:.1%}": f"{len(good)} of {len(reached)} studies",
                "at trial": _spread(good),
            }
        )
    return rows


def _spread(ordered: Sequence[int]) -> str:
    if not ordered:
        return "never"
    return f"{ordered[len(ordered) // 2]} ({ordered[0]} to {ordered[-1]})"


def chosen_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        point, judged = _chosen(records, sampler), _judged(records, sampler)[0]
        rows.append(
            {
                "first study of": title,
                "layers": point.get("num_hidden_layers"),
                "heads": point.get("num_attention_heads"),
                "width": point.get("hidden_size"),
                "FFN": point.get("intermediate_size"),
                "pooler": point["pooler"],
                "validation": f"{point['accuracy']:.1%}",
                "test": f"{judged.accuracy:.1%} ({judged.interval.low:.1%} to "
                f"{judged.interval.high:.1%})",
            }
        )
    return rows


def audit_table(records: Records) -> Sequence[Row]:
    audit = records.one(part="audit").values
    rows: list[Row] = []
    for where, key in (("searched here", "ours"), ("in `BertConfig`", "course")):
        for effect in audit[key]:
            sizes = effect["parameters"]
            changed = " and ".join(effect["changes"]) or "**nothing**"
            rows.append(
                {
                    "parameter": f"`{effect['name']}`",
                    "set": where,
                    "values": ", ".join(str(value) for value in effect["values"]),
                    "parameters of the model": f"{sizes[0]:,} to {sizes[-1]:,}"
                    if len(set(sizes)) > 1
                    else f"{sizes[0]:,}",
                    "changes": changed,
                }
            )
    return rows


def ahead_table(records: Records) -> Sequence[Row]:
    """Who a single study of each would have named the winner, after so many trials."""
    end, first = num_trials(records), startup(records)
    rows: list[Row] = []
    for trials in sorted({min(first // 2, end), min(first, end), min(2 * first, end), end}):
        best = {title: best_after(records, title, trials) for title in ROLES}
        row: dict[str, Any] = {"trials": trials}
        for a, b in combinations(ROLES, 2):
            pairs = list(zip(best[a], best[b]))
            wins = (sum(x > y for x, y in pairs), sum(x < y for x, y in pairs))
            row[f"{a} / {b} / equal"] = f"{wins[0]} / {wins[1]} / {len(pairs) - sum(wins)}"
        rows.append(row)
    return rows


def settings_table(records: Records) -> Sequence[Row]:
    found: list[Record] = [studies(records, sampler)[0] for sampler in SAMPLERS]
    return [
        {
            "sampler": SAMPLERS[r.values["settings"]["sampler"]],
            "settings": ", ".join(
                f"{name.replace('_', ' ')}: {value}"
                for name, value in r.values["settings"].items()
                if name != "sampler"
            )
            or "every value equally likely, points may repeat",
        }
        for r in found
    ]


def reported_table(records: Records) -> Sequence[Row]:
    return [
        {"best sampler": name, "reports": count, "best accuracy, all reports": "87.0% to 88.2%"}
        for name, count in (("TPE", 5), ("Grid", 4), ("TPE and Grid equal", 2))
    ]


experiment = Experiment(
    title="Architecture search: random, grid, TPE",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "tpe_is_ahead": tpe_is_ahead,
        "startup_is_random": startup_is_random,
        "grid_is_random": grid_is_random,
        "ten_trials_decide": ten_trials_decide,
        "no_idle_parameter": no_idle_parameter,
        "course_names_are_idle": course_names_are_idle,
        "search_pays": search_pays,
        "scratch_is_chance": scratch_is_chance,
    },
    figures={
        "curves": Figure(
            caption="Where the curves separate, if they do: not in the shaded trials, in which "
            "all samplers draw blindly. Mean over studies with its interval; the axis is cut.",
            rows=curve_rows,
            draw=draw_curves,
            alt=curves_alt,
        ),
        "landscape": Figure(
            caption="What there is to find: every sub-network that any study came by. The more of "
            "them lie near the top, the less a sampler matters.",
            rows=landscape_rows,
            draw=draw_landscape,
            alt=landscape_alt,
        ),
    },
    tables={
        "samplers": samplers_table,
        "chosen": chosen_table,
        "audit": audit_table,
        "ahead": ahead_table,
        "settings": settings_table,
        "reported": reported_table,
    },
)
