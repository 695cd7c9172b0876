"""Question 2.2: compression inside the search objective, at equal total training.

Three objectives over the same sub-networks: accuracy before compression; accuracy after half of the
weights are pruned and the rest quantized; the same, with half of the training after compression
instead of before it. Each trains on the same number of sentences in all. What a search chooses is
compressed and judged on test sentences, so that all are compared as what would be deployed.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import plots, searches, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Records
from madl.training import baseline

PLAIN, AFTER, TRAINED = "plain", "compressed", "compressed and trained on"
CURVES = {  # objective and the note that is drawn: the plain search has two
    "FP32": (PLAIN, "fp32", "fp32"),
    "FP32's choice, compressed": (PLAIN, "compressed", "first"),
    "compressed": (AFTER, "compressed", "second"),
    "compressed, trained on": (TRAINED, "compressed", "third"),
}
TITLES = {PLAIN: "before compression", AFTER: "after compression", TRAINED: "after training on"}
MARGIN = 0.01
MEGA = 1e6


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "test_examples": choose(smoke=64, quick=500, full=None),
            "space": choose(smoke="compact", quick="compact", full="coarse"),
            "weights": "inherited",
            "trial_examples": choose(smoke=32, quick=64, full=512),
            "trial_learning_rate": 1e-4,
            "trial_batch_size": 16,
            "choose_examples": choose(smoke=32, quick=128, full=500),
            "width": 8,
            "frac_width": 6,
            "sparsity": 0.5,
        }
        yield {**base, "part": "unequal"}
        for study in range(choose(smoke=2, quick=8, full=20)):
            search = {
                "sampler": "tpe",
                "study": study,
                "trials": choose(smoke=4, quick=20, full=40),
            }
            for objective in (PLAIN, TRAINED, AFTER):  # side by side, those that share no trial
                yield {**base, "part": "study", "objective": objective, **search}


EXTRA = ("width", "frac_width", "sparsity")


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.training.search import num_points, search, settings, study_folder
    from madl.training.supernet import Supernet, space

    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]), pooler=False)
    if params["part"] == "unequal":
        return _unequal(net, {name: values[-1] for name, values in choices.items()})
    objective = str(params["objective"])

    def evaluate(point: Params) -> tuple[float, Mapping[str, Any]]:
        notes = _trained_on(net, point) if objective == TRAINED else _trained_before(net, point)
        return notes["fp32" if objective == PLAIN else "compressed"], notes

    trials = search(
        study_folder(ctx, params),
        choices,
        evaluate,
        sampler=str(params["sampler"]),
        seed=int(params["study"]),
        trials=int(params["trials"]),
    )
    best = max(trials, key=lambda trial: trial.value)
    return {
        "names": list(choices),
        "points": [list(trial.point.values()) for trial in trials],
        "values": [trial.value for trial in trials],
        "notes": {key: [trial.notes[key] for trial in trials] for key in best.notes},
        "num_points": num_points(choices),
        "settings": settings(str(params["sampler"])),
        "judged": _judged(net, best.point, trained_on=objective == TRAINED),
        "accuracy": best.value,
    }


def _compress(net: Any, model: Any) -> None:
    from madl.compression.prune import prune_
    from madl.compression.quantize import Rule, quantize_
    from madl.formats.fixed import FixedPoint

    number_format = FixedPoint(
        width=int(net.params["width"]), frac_width=int(net.params["frac_width"])
    )
    exact = number_format.exact_in_bf16
    rule = Rule.uniform(number_format, products="bfloat16" if exact else "float32")
    quantize_(model, [rule])
    prune_(model, sparsity=float(net.params["sparsity"]), method="l1")


def _bits(model: Any) -> dict[str, float]:
    from madl.compression.size import linear_bits, other_bits

    return {"linear_bits": linear_bits(model), "other_bits": other_bits(model)}


def _build_trained_before(net: Any, point: Params) -> tuple[Any, dict[str, Any]]:
    """All training, then compression; with what was measured in between."""
    model = net.build(point)
    net.train(model, net.trial_examples)
    before = {"fp32": net.accuracy(model), "fp32_bits": _bits(model)["linear_bits"]}
    return model, before


def _build_trained_on(net: Any, point: Params, *, times: int = 1) -> Any:
    """Half of the training, compression, the other half; `times` as much in all."""
    model = net.build(point)
    examples = net.trial_examples
    if times == 1:
        half = len(examples) // 2
        first, second = examples.first(half), _after(examples, half)
    else:
        first = second = examples
    net.train(model, first)
    _compress(net, model)
    net.train(model, second, quantized=True)
    return model


def _after(examples: Any, count: int) -> Any:
    from dataclasses import replace

    return replace(examples, token_ids=examples.token_ids[count:], labels=examples.labels[count:])


def _trained_before(net: Any, point: Params) -> dict[str, Any]:
    def evaluate() -> dict[str, Any]:
        model, before = _build_trained_before(net, point)
        _compress(net, model)
        accuracy = net.accuracy(model, quantized=True)
        return {**before, "compressed": accuracy, **_bits(model)}

    return net.remember("trained before", point, evaluate, *EXTRA)


def _trained_on(net: Any, point: Params) -> dict[str, Any]:
    def evaluate() -> dict[str, Any]:
        model = _build_trained_on(net, point)
        return {"compressed": net.accuracy(model, quantized=True), **_bits(model)}

    return net.remember("trained on", point, evaluate, *EXTRA)


def _judged(net: Any, point: Params, *, trained_on: bool) -> dict[str, Any]:
    """The compressed model on test sentences, and what it was before that, where it was whole."""

    def evaluate() -> dict[str, Any]:
        judge = lambda model: baseline.judge_on_test(model, net.params, net.ctx.device)  # noqa: E731
        if trained_on:
            return {"compressed": judge(_build_trained_on(net, point))}
        model, _ = _build_trained_before(net, point)
        whole = judge(model)
        _compress(net, model)
        return {"fp32": whole, "compressed": judge(model)}

    what = "test, trained on" if trained_on else "test, trained before"
    return net.remember(what, point, evaluate, *EXTRA, "test_examples")


def _unequal(net: Any, point: Params) -> dict[str, Any]:
    """The largest sub-network with the training of a trial, and with twice that."""
    twice = net.remember(
        "test, twice",
        point,
        lambda: baseline.judge_on_test(
            _build_trained_on(net, point, times=2), net.params, net.ctx.device
        ),
        *EXTRA,
        "test_examples",
    )
    after = _judged(net, point, trained_on=False)["compressed"]
    return {"after": after, "twice": twice, "accuracy": twice["accuracy"]}


# ---- reading the records ------------------------------------------------------------------------


def studies(records: Records, objective: str) -> Records:
    found = records.where(part="study", objective=objective)
    if not found:
        raise Pending(objective)
    return found


def outcomes(records: Records, objective: str, what: str = "compressed") -> list[stats.Outcomes]:
    """Of what each study chose, on test sentences."""
    found = studies(records, objective)
    return [stats.Outcomes.from_json(r.values["judged"][what]["outcomes"]) for r in found]


def _complete(records: Records) -> int:
    counts = {len(studies(records, objective)) for objective in TITLES}
    if len(counts) > 1:
        raise Pending("studies of some objective")
    return counts.pop()


def chosen_so_far(objective_values: Sequence[float], shown: Sequence[float]) -> list[float]:
    """After every trial, what the point that the search would choose then is worth as `shown`."""
    best = 0
    found: list[float] = []
    for i, value in enumerate(objective_values):
        best = i if value > objective_values[best] else best
        found.append(shown[best])
    return found


def _accuracy(found: Sequence[stats.Outcomes]) -> float:
    return fmean([one.accuracy for one in found])


# ---- claims -------------------------------------------------------------------------------------


def aware_helps(records: Records) -> Claim:
    n = _complete(records)
    a, b = outcomes(records, PLAIN), outcomes(records, AFTER)
    text = (
        f"Compressing inside the objective finds models that are better once compressed: "
        f"{_accuracy(b):.1%} on test sentences against {_accuracy(a):.1%} of the models that the "
        f"FP32 search chose, compressed afterwards ({n} studies each)"
    )
    return stats.compare(a, b).improves(text)


def training_on_helps(records: Records) -> Claim:
    _complete(records)
    a, b = outcomes(records, AFTER), outcomes(records, TRAINED)
    text = (
        f"At equal total training, moving half of it behind the compression helps: "
        f"{_accuracy(b):.1%} against {_accuracy(a):.1%}"
    )
    return stats.compare(a, b).improves(text)


def compression_is_free(records: Records) -> Claim:
    _complete(records)
    a, b = outcomes(records, PLAIN, "fp32"), outcomes(records, TRAINED)
    small, large = _chosen(records, TRAINED)["linear_bits"], _chosen(records, PLAIN)["fp32_bits"]
    text = (
        f"With {small / large:.0%} of the bits in its Linear layers, a compressed model that was "
        f"trained on is as accurate as the FP32 search's choice to within {100 * MARGIN:g} point: "
        f"{_accuracy(b):.1%} against {_accuracy(a):.1%}"
    )
    return stats.compare(a, b).within(MARGIN, text)


def training_is_equal(records: Records) -> Claim:
    totals = [row["total"] for row in budget_table(records)]
    text = f"All three objectives train on {totals[0]} sentences a trial"
    return stats.none_of(sum(total != totals[0] for total in totals), len(totals), text)


def unequal_is_no_comparison(records: Records) -> Claim:
    found = records.where(part="unequal")
    if not found:
        raise Pending("the unequal budget")
    a = [stats.Outcomes.from_json(r.values["after"]["outcomes"]) for r in found]
    b = [stats.Outcomes.from_json(r.values["twice"]["outcomes"]) for r in found]
    text = (
        f"With as many sentences again after compression, so twice the training, the largest "
        f"sub-network goes from {_accuracy(a):.1%} to {_accuracy(b):.1%}"
    )
    return stats.compare(a, b).improves(text)


# ---- figures and tables -------------------------------------------------------------------------


def curve_rows(records: Records) -> Sequence[Row]:
    _complete(records)
    drawn = {
        title: [
            chosen_so_far(r.values["values"], r.values["notes"][note])
            for r in studies(records, objective)
        ]
        for title, (objective, note, _) in CURVES.items()
    }
    return searches.mean_rows(drawn)


def draw_curves(ax: Any, rows: Sequence[Row]) -> None:
    roles = {title: role for title, (_, _, role) in CURVES.items()}
    searches.draw_curves(ax, rows, roles, accuracy="validation accuracy")


def curves_alt(rows: Sequence[Row]) -> str:
    return searches.curves_alt(rows, list(CURVES))


def _seen(records: Records, objective: str) -> list[dict[str, Any]]:
    """Every point that this objective's studies of the first seed came by, once."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in studies(records, objective).where(seed=0):
        v = record.values
        for i, point in enumerate(v["points"]):
            notes = {key: column[i] for key, column in v["notes"].items()}
            seen[tuple(point)] = {**dict(zip(v["names"], point)), **notes}
    return list(seen.values())


FRONTS = {
    "FP32": (PLAIN, "fp32", "fp32_bits", "fp32"),
    "compressed": (AFTER, "compressed", "linear_bits", "second"),
    "compressed, trained on": (TRAINED, "compressed", "linear_bits", "third"),
}


def front_rows(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for title, (objective, value, bits, _) in FRONTS.items():
        points = _seen(records, objective)
        best = set(searches.front([p[bits] for p in points], [p[value] for p in points]))
        rows += [
            {
                "model": title,
                "megabits in Linear layers": point[bits] / MEGA,
                "validation accuracy": point[value],
                "on the front": i in best,
                "shape": _shape(point),
            }
            for i, point in enumerate(points)
        ]
    return rows


def draw_front(ax: Any, rows: Sequence[Row]) -> None:
    for title, (_, _, _, role) in FRONTS.items():
        some = [row for row in rows if row["model"] == title]
        best = [row for row in some if row["on the front"]]
        best.sort(key=lambda row: row["megabits in Linear layers"])  # type: ignore[arg-type,return-value]
        xs = [row["megabits in Linear layers"] for row in some]
        ys = [row["validation accuracy"] for row in some]
        faint = {"linestyle": "", "marker": plots.ROLES[role].marker or "o", "alpha": 0.35}
        ax.plot(xs, ys, **plots.line(role, label=None, **faint))
        xs = [row["megabits in Linear layers"] for row in best]
        ys = [row["validation accuracy"] for row in best]
        ax.plot(xs, ys, **plots.line(role, label=title), drawstyle="steps-post")
    sizes = [float(row["megabits in Linear layers"]) for row in rows]  # type: ignore[arg-type]
    ticks = [2.0**i for i in range(12) if min(sizes) <= 2**i <= max(sizes)]
    plots.doubling_axis(ax, ticks, "megabits in the Linear layers")
    plots.percent_axis(ax, "validation accuracy")
    plots.legend(ax)


def front_alt(rows: Sequence[Row]) -> str:
    points = "; ".join(
        f"{row['model']} {row['megabits in Linear layers']:.1f} Mbit "
        f"{row['validation accuracy']:.1%}"
        for row in rows
        if row["on the front"]
    )
    return f"Accuracy against size, the points on each front. {points}."


def _shape(point: Mapping[str, Any]) -> str:
    names = {
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "hidden_size": "width",
        "intermediate_size": "FFN",
    }
    return ", ".join(f"{name} {point[key]}" for key, name in names.items() if key in point)


def _chosen(records: Records, objective: str) -> dict[str, Any]:
    """What the first study chose, with its notes."""
    v = studies(records, objective).one(seed=0, study=0).values
    best = v["values"].index(max(v["values"]))
    notes = {key: column[best] for key, column in v["notes"].items()}
    return {**dict(zip(v["names"], v["points"][best])), **notes, "value": v["values"][best]}


def chosen_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for objective, title in TITLES.items():
        point = _chosen(records, objective)
        kinds = ("fp32", "compressed") if objective == PLAIN else ("compressed",)
        for kind in kinds:
            judged = outcomes(records, objective, kind)[0]
            bits = point["fp32_bits" if kind == "fp32" else "linear_bits"]
            rows.append(
                {
                    "objective": f"accuracy {title}",
                    "first study's choice": _shape(point),
                    "as": "FP32" if kind == "fp32" else "compressed",
                    "validation": f"{point[kind]:.1%}",
                    "test": f"{judged.accuracy:.1%} ({judged.interval.low:.1%} to "
                    f"{judged.interval.high:.1%})",
                    "Linear, bits": f"{bits:,.0f}",
                    "whole model, bits": f"{bits + point['other_bits']:,.0f}",
                }
            )
    return rows


def budget_table(records: Records) -> Sequence[Row]:
    params = studies(records, PLAIN)[0].case.params
    total = int(params["trial_examples"])  # type: ignore[arg-type]
    half = total // 2
    split = {PLAIN: (total, 0), AFTER: (total, 0), TRAINED: (half, total - half)}
    return [
        {
            "objective": f"accuracy {TITLES[objective]}",
            "sentences before compression": before,
            "sentences after it": after,
            "total": before + after,
        }
        for objective, (before, after) in split.items()
    ]


def reported_table(records: Records) -> Sequence[Row]:
    return [
        {"compression-aware search": "better than the search without", "reports": 4},
        {"compression-aware search": "not better", "reports": 4},
    ]


experiment = Experiment(
    title="Compression-aware search",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "aware_helps": aware_helps,
        "training_on_helps": training_on_helps,
        "compression_is_free": compression_is_free,
        "training_is_equal": training_is_equal,
        "unequal_is_no_comparison": unequal_is_no_comparison,
    },
    figures={
        "curves": Figure(
            caption="What each search would choose after so many trials. The comparison that "
            "counts is between compressed models. Mean over studies with its interval; the axis "
            "is cut.",
            rows=curve_rows,
            draw=draw_curves,
            alt=curves_alt,
        ),
        "front": Figure(
            caption="Accuracy against size: every sub-network that the searches came by, and the "
            "front of those that no smaller one reaches.",
            rows=front_rows,
            draw=draw_front,
            alt=front_alt,
        ),
    },
    tables={"chosen": chosen_table, "budget": budget_table, "reported": reported_table},
)
