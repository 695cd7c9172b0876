"""Question 2.1: what Random, Grid and TPE find over the trials of an architecture search.

A trial cuts a sub-network out of the fine-tuned model, trains it shortly and is worth its accuracy
on validation data. That is a function of the point, evaluated once and remembered, so many studies
cost little more than one, and the curves have bands. Each study lives in a folder of its own and
survives a kill. The test split is touched once, by the model that each sampler's first study chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, linear, percent, points
from madl.logbook.claims import Fact, Judged, above, compare
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Record, Records, Row, Scalar, Values
from madl.training import baseline

page = Experiment(title="Architecture search: random, grid, TPE", needs=("baseline",))

SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
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


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
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


@page.run
def run(params: Params, ctx: Context) -> Values:
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


def studies(r: Records, sampler: str) -> Records:
    return r.all(part="study", sampler=sampler, weights="inherited")


def best_value(record: Record, trials: int | None = None) -> float:
    """What a study found on validation, after so many trials or after all."""
    return max(record.values["values"][:trials])


def mean_best(r: Records, sampler: str) -> stats.Estimate:
    return searches.mean_estimate(searches.of_units(studies(r, sampler), best_value))


def startup(r: Records) -> int:
    return studies(r, "tpe")[0].values["settings"]["startup_trials"]


def choice(r: Records, sampler: str, **more: Scalar) -> Arm:
    """The model that a sampler's first study chose, on test."""
    where: dict[str, Scalar] = {"part": "study", "study": 0, "weights": "inherited", **more}
    return arm(r, SAMPLERS[sampler], "judged", sampler=sampler, **where)


def evaluated(r: Records) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every point that any study of the first training seed came by, with what it gave."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for sampler in SAMPLERS:
        for record in studies(r, sampler).where(seed=0):
            v = record.values
            for point, value, size in zip(v["points"], v["values"], v["parameters"]):
                named = dict(zip(v["names"], point))
                seen[tuple(point)] = {**named, "accuracy": value, "parameters": size}
    return seen


# ---- claims -------------------------------------------------------------------------------------


@page.claim(headline=True)
def tpe_beats_whole(r: Records) -> Judged:
    """On test, what TPE's first study chose is better than the whole model, trained equally."""
    a, b = choice(r, "tpe", seed=0), arm(r, "whole model", "whole", part="audit")
    against = f"than the whole model, which needs no search: {a} against {b}"
    return compare(a, b).judge(
        supported=f"On test sentences the model that TPE's first study chose is {a - b} better "
        f"{against} after the same training",
        refuted=f"On test sentences the model that TPE's first study chose is {b - a} worse "
        f"{against} after the same training",
        undecided=f"On test sentences nothing shows that the model that TPE's first study chose "
        f"({a}) is better or worse than the whole model, which needs no search ({b}): {a - b:+i}",
    )


@page.claim(headline=True)
def tpe_finds_more(r: Records) -> Judged:
    """TPE's studies find a higher validation accuracy than Random's in as many trials."""
    return _finds_more(r, "tpe")


@page.claim
def grid_finds_more(r: Records) -> Judged:
    """Grid, which repeats no point, finds a higher validation accuracy than Random."""
    return _finds_more(r, "grid")


def _finds_more(r: Records, sampler: str) -> Judged:
    made = searches.compare_values(studies(r, sampler), studies(r, "random"), best_value)
    a, b, title = mean_best(r, sampler), mean_best(r, "random"), SAMPLERS[sampler]
    said = f"After {studies(r, sampler)[0].case.params['trials']} trials"
    found = f"on validation sentences than Random: {a} against {b}, means over studies"
    return made.judge(
        supported=f"{said} {title} has found more {found}",
        refuted=f"{said} {title} has found less {found}",
        undecided=f"{said} nothing shows that {title} and Random find different accuracies on "
        f"validation sentences: {made.comparison.estimate():+i}",
    )


@page.claim(headline=True)
def tpe_chooses_better(r: Records) -> Judged:
    """On test, what TPE's first study chose is better than what Random's first study chose."""
    a, b = choice(r, "tpe"), choice(r, "random")
    said = "On test sentences the model that TPE's first study chose is"
    return compare(a, b).judge(
        supported=f"{said} {a - b} better than the choice of Random's: {a} against {b}",
        refuted=f"{said} {b - a} worse than the choice of Random's: {a} against {b}",
        undecided="On test sentences nothing shows that the choice of TPE's first study is better "
        f"or worse than that of Random's: {a} and {b}, {a - b:+i}",
    )


@page.claim
def scratch_learns(r: Records) -> Judged:
    """Trained from scratch in the same way, the best trial beats the larger class on test."""
    best = choice(r, "random", seed=0, weights="scratch")
    level = r.one(part="audit").values["majority_share"]
    than = f"the larger class on test sentences: {best:i} against {stats.per_cent(level)}"
    said = (
        f"From scratch, on {best.param('trial_examples')} sentences, the best of "
        f"{best.param('trials')} trials"
    )
    return above(best, level).judge(
        supported=f"{said} is better than {than}",
        refuted=f"{said} is worse than {than}",
        undecided=f"{said} cannot be told from {than}",
    )


# ---- facts --------------------------------------------------------------------------------------


@page.fact
def startup_is_random(r: Records) -> Fact:
    first = startup(r)
    pairs = [
        (a, b)
        for x, y in zip(studies(r, "random"), studies(r, "tpe"), strict=True)
        for a, b in zip(x.values["points"][:first], y.values["points"][:first], strict=True)
    ]
    return Fact(
        text=f"Of the points in the first {first} trials of TPE's studies, "
        f"{sum(a == b for a, b in pairs)} are those that Random draws from the same seed",
        of=f"{len(pairs)} points",
    )


@page.fact
def idle_in_bert_config(r: Records) -> Fact:
    course = r.one(part="audit").values["course"]
    idle = [f"`{effect['name']}`" for effect in course if not effect["changes"]]
    return Fact(
        text=f"Setting {' or '.join(idle) or 'none of these names'} in a `BertConfig` changes "
        "nothing of the model that is built",
        of=f"{len(course)} names",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="Mean over the studies with its interval; in the shaded trials TPE draws at random "
    "too. A maximum of noisy values is too high: what a choice is worth, its test says."
)
def curves(r: Records) -> Chart:
    def so_far(record: Record) -> list[float]:
        return searches.best_so_far(record.values["values"])

    rows = searches.mean_rows(
        {
            title: searches.of_units(studies(r, sampler), so_far)
            for sampler, title in SAMPLERS.items()
        }
    )
    return searches.curves_chart(rows, accuracy="best validation accuracy", startup=startup(r))


@page.chart(
    caption="What there is to find: every sub-network that any study came by, after a trial's "
    "training. The more of them lie near the top, the less a sampler can matter."
)
def landscape(r: Records) -> Chart:
    rows = [
        {
            "parameters": point["parameters"],
            "validation accuracy": point["accuracy"],
            "depth": f"{point['num_hidden_layers']} layers"
            if "num_hidden_layers" in point
            else "every layer",
            "shape": shape(point),
        }
        for point in sorted(evaluated(r).values(), key=lambda point: point["parameters"])
    ]
    return Chart(
        rows,
        x=linear("parameters", unit="millions", factor=1e-6),
        y=percent("validation accuracy"),
        marks=[points("validation accuracy", by="depth")],
    )


FIELDS = {
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "hidden_size": "width",
    "intermediate_size": "FFN",
    "pooler": "pooler",
}


def shape(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {point[key]}" for key, name in FIELDS.items() if key in point)


@page.table
def samplers(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        every = studies(r, sampler)
        at = sorted(searches.found_at(record.values["values"]) for record in every)
        visited = {len(set(map(tuple, record.values["points"]))) for record in every}
        rows.append(
            {
                "sampler": title,
                "studies": len(every),
                "points visited": " to ".join(map(str, sorted({min(visited), max(visited)})))
                + f" of {every[0].values['num_points']}",
                "different choices": len({tuple(_best(record)) for record in every}),
                "best on validation": mean_best(r, sampler),
                "found at trial": f"{at[len(at) // 2]} ({at[0]} to {at[-1]})",
            }
        )
    return rows


def _best(record: Record) -> list[Any]:
    return record.values["points"][record.values["values"].index(best_value(record))]


@page.table
def chosen(r: Records) -> Sequence[Row]:
    seen = evaluated(r)
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        point = seen[tuple(_best(studies(r, sampler).one(seed=0, study=0)))]
        rows.append(_chosen(title, point, point["accuracy"], choice(r, sampler, seed=0)))
    audit = r.one(part="audit")
    whole = {effect["name"]: effect["values"][-1] for effect in audit.values["ours"]}
    whole |= {"pooler": "linear"}
    known = seen.get(tuple(whole.values()), {}).get("accuracy")
    return [*rows, _chosen("no search: the whole", whole, known, arm(r, "", "whole", part="audit"))]


def _chosen(title: str, point: Mapping[str, Any], validation: float | None, test: Arm) -> Row:
    return {
        "first study of": title,
        **{name: point[key] for key, name in FIELDS.items() if key in point},
        "validation": None if validation is None else stats.per_cent(validation),
        "test": test,
    }


@page.table
def audit(r: Records) -> Sequence[Row]:
    values = r.one(part="audit").values
    rows: list[Row] = []
    for where, key in (("searched here", "ours"), ("in `BertConfig`", "course")):
        for effect in values[key]:
            sizes = [f"{size:,}" for size in effect["parameters"]]
            rows.append(
                {
                    "parameter": f"`{effect['name']}`",
                    "set": where,
                    "values": ", ".join(map(str, effect["values"])),
                    "parameters of the model": " to ".join(dict.fromkeys((sizes[0], sizes[-1]))),
                    "changes": " and ".join(effect["changes"]) or "nothing",
                }
            )
    return rows


@page.table
def ahead(r: Records) -> Sequence[Row]:
    """Who a single study of each would have named the winner, after so many trials."""
    end, first = int(studies(r, "tpe")[0].case.params["trials"] or 0), startup(r)
    rows: list[Row] = []
    for trials in sorted({min(first // 2, end), min(first, end), min(2 * first, end), end}):
        row: dict[str, Any] = {"trials": trials}
        for a, b in combinations(SAMPLERS, 2):
            pairs = zip(studies(r, a), studies(r, b), strict=True)
            best = [(best_value(x, trials), best_value(y, trials)) for x, y in pairs]
            wins = (sum(x > y for x, y in best), sum(x < y for x, y in best))
            names = f"{SAMPLERS[a]} / {SAMPLERS[b]} / equal"
            row[names] = f"{wins[0]} / {wins[1]} / {len(best) - sum(wins)}"
        rows.append(row)
    return rows


@page.table
def settings(r: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for sampler, title in SAMPLERS.items():
        used = {
            k: v for k, v in studies(r, sampler)[0].values["settings"].items() if k != "sampler"
        }
        said = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in used.items())
        rows.append(
            {"sampler": title, "settings": said or "every value equally likely, points may repeat"}
        )
    return rows
