"""Question 3.1: a width and a fraction width for every layer, searched and by sensitivity.

A trial quantizes every Linear layer's weight, bias and input to its own fixed(width, frac_width)
and is scored on validation sentences: accuracy less a price on bits, for without one the widest
choice is always as good as any. Quantizing is deterministic: what is random is the search and the
choice of sentences. Beside the searches stands a model put together from what one layer at a time
can bear. Each reported model meets the test split once.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import plots, searches, stats
from madl.logbook.experiment import Claim, Context, Experiment, Figure, Params, Plan, Row
from madl.logbook.results import Pending, Records
from madl.training import baseline
from madl.training.baseline import accuracy, outcomes

WIDTHS, FRACS = (8, 16, 32), (2, 4, 8)
PRICE_PER_BIT = 0.001  # accuracy that one bit per weight has to bring
SAFE = (16, 8)  # what a layer gets that eight bits would hurt; the search may take it too
STEPS = 8  # models on the way from all layers safe to all layers at eight bits
MARGIN = 0.02  # accuracies closer than this count as the same
HALVES = 2  # cases that share the measuring of layers

# Best accuracy in public reports of this coursework, on BERT-tiny and IMDb: lowest and highest.
REPORTED = (0.8598, 0.880)


def params(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        base = {
            **baseline.recipe_params(plan, seed),
            "probe_examples": choose(smoke=8, quick=32, full=500),
            "trial_examples": choose(smoke=16, quick=128, full=500),
            "price": PRICE_PER_BIT,
        }
        for half in range(HALVES):
            yield {"part": "sensitivity", "half": half, **base}
        for sampler in ("tpe", "random"):
            trials = choose(smoke=2, quick=24, full=200)
            yield {"part": "search", "sampler": sampler, "trials": trials, **base}
        yield {"part": "guided", "steps": choose(smoke=2, quick=STEPS, full=38), **base}
        yield {"part": "uniform", **base}


def run(params: Params, ctx: Context) -> Mapping[str, Any]:
    model = baseline.fine_tuned(params, ctx)
    if params["part"] == "sensitivity":
        return run_sensitivity(model, params, ctx)
    if params["part"] == "search":
        return run_search(model, params, ctx)
    return (run_guided if params["part"] == "guided" else run_uniform)(model, params, ctx)


def run_sensitivity(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.training.precision import layer_names

    layers = layer_names(model)
    mine = layers[int(params["half"] or 0) :: HALVES]
    return {"layers": layers, **_sensitivity(model, mine, params, ctx)}


def _sensitivity(model: Any, layers: Sequence[str], params: Params, ctx: Context) -> dict[str, Any]:
    """Loss of every probe sentence with one layer quantized, and with none."""
    from madl.training import precision

    data = baseline.load_splits(params).validation.first(int(params["probe_examples"] or 0))
    nothing = precision.uniform(model, None)
    fp32 = precision.judge(model, nothing, data, ctx.device)
    found = {
        layer: {str(frac): _one_layer(model, params, ctx, layer, frac, data) for frac in FRACS}
        for layer in layers
    }
    return {"fp32": [round(loss, 4) for loss in fp32.losses], "losses": found}


def _one_layer(
    model: Any, params: Params, ctx: Context, layer: str, frac: int, data: Any
) -> list[float]:
    from madl.formats.fixed import FixedPoint
    from madl.training import precision, search

    def evaluate() -> Mapping[str, Any]:
        formats = precision.uniform(model, None)
        formats[layer] = FixedPoint(width=min(WIDTHS), frac_width=frac)
        judged = precision.judge(model, formats, data, ctx.device)
        return {"losses": [round(loss, 4) for loss in judged.losses]}

    what = {
        **precision.of_experiment(params, ["probe_examples"]),
        "what": "one layer",
        "layer": layer,
        "format": f"fixed({min(WIDTHS)},{frac})",
    }
    return search.remembered(ctx, what, evaluate)["losses"]


def run_search(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    from madl.training import precision, search

    layers = precision.layer_names(model)
    space = {f"{layer} width": WIDTHS for layer in layers}
    space |= {f"{layer} frac": FRACS for layer in layers}

    def chosen(point: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        return {layer: (point[f"{layer} width"], point[f"{layer} frac"]) for layer in layers}

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        judged = score(model, chosen(point), params, ctx)
        return judged["score"], judged

    trials = search.search(
        search.study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
    )
    best = max(trials, key=lambda trial: trial.value)
    tested = report(model, chosen(best.point), params, ctx) if params["sampler"] == "tpe" else {}
    return {
        "trials": [trial.notes for trial in trials],
        "layers": layers,
        "best": best.notes | {"choices": chosen(best.point)},
        "settings": search.settings(str(params["sampler"])),
        "startup": search.STARTUP_TRIALS,
        **tested,
    }


def score(
    model: Any, choices: Mapping[str, tuple[int, int]], params: Params, ctx: Context
) -> dict[str, float]:
    """What a search is told of a model: validation accuracy less the price of its bits."""
    from madl.formats.fixed import FixedPoint
    from madl.training import precision

    data = baseline.load_splits(params).validation.first(int(params["trial_examples"] or 0))
    formats = {layer: FixedPoint(width=w, frac_width=f) for layer, (w, f) in choices.items()}
    judged = precision.judge(model, formats, data, ctx.device)
    bits = precision.mean_bits(model, formats)
    value = judged.accuracy - float(params["price"] or 0) * bits
    return {"score": value, "validation": judged.accuracy, "loss": judged.loss, "bits": bits}


def report(
    model: Any, choices: Mapping[str, tuple[int, int]], params: Params, ctx: Context
) -> dict[str, Any]:
    """The test split, once for a model that is reported."""
    from madl.formats.fixed import FixedPoint
    from madl.training import precision

    formats = {layer: FixedPoint(width=w, frac_width=f) for layer, (w, f) in choices.items()}
    return baseline.judge_on_test(precision.set_precision_(model, formats), params, ctx.device)


def run_guided(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    """Eight bits where a layer alone bears it best, the safe format in the others."""
    from madl.training.precision import layer_names

    layers = layer_names(model)
    measured = _sensitivity(model, layers, params, ctx)
    order = by_tolerance(measured)
    tried: list[dict[str, Any]] = []
    for count in steps(len(layers), int(params["steps"] or 1)):
        choices = dict.fromkeys(layers, SAFE) | dict(order[:count])
        tried.append(score(model, choices, params, ctx) | {"choices": choices, "narrow": count})
    best = max(tried, key=lambda one: one["score"])
    without = [{k: v for k, v in one.items() if k != "choices"} for one in tried]
    return {
        "trials": without,
        "layers": layers,
        "best": best,
        "probes": len(layers) * len(FRACS),
        **report(model, best["choices"], params, ctx),
    }


def by_tolerance(measured: Mapping[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """Layers with their best eight-bit format, the layer that bears it best first."""
    best: list[tuple[float, str, int]] = []
    for layer, by_frac in measured["losses"].items():
        moved = {int(f): disturbance(found, measured["fp32"]) for f, found in by_frac.items()}
        frac = min(moved, key=lambda one: moved[one])
        best.append((moved[frac], layer, frac))
    return [(layer, (min(WIDTHS), frac)) for _, layer, frac in sorted(best)]


def disturbance(losses: Sequence[float], fp32: Sequence[float]) -> float:
    """How far a sentence's loss moves, up or down, on average.

    Up and down cancel in the mean loss, so that by it a layer can look better than untouched.
    """
    return fmean([abs(a - b) for a, b in zip(losses, fp32, strict=True)])


def steps(num_layers: int, count: int) -> list[int]:
    """How many layers are narrow in each model on the way, from none to all."""
    return sorted({round(num_layers * i / max(count - 1, 1)) for i in range(count)})


def run_uniform(model: Any, params: Params, ctx: Context) -> Mapping[str, Any]:
    """Every format of the space on all layers; the best of the narrowest width is tested."""
    from madl.training.precision import layer_names

    layers = layer_names(model)
    tried = {
        (width, frac): score(model, dict.fromkeys(layers, (width, frac)), params, ctx)
        for width in WIDTHS
        for frac in FRACS
    }
    best = max(FRACS, key=lambda frac: tried[min(WIDTHS), frac]["score"])
    return {
        "trials": [{"width": w, "frac": f, **one} for (w, f), one in tried.items()],
        "best": tried[min(WIDTHS), best] | {"width": min(WIDTHS), "frac": best},
        **report(model, dict.fromkeys(layers, (min(WIDTHS), best)), params, ctx),
    }


# ---- reading the records ------------------------------------------------------------------------


def _part(records: Records, part: str, sampler: str | None = None) -> Records:
    """One record a seed.

    Raises:
        Pending: a seed is missing.
    """
    found = records.where(part=part)
    found = found.where(sampler=sampler) if sampler else found
    if len(found) < len(records.where(method="fp32")) or not found:
        raise Pending(part)
    return Records(sorted(found, key=lambda record: record.case.params["seed"]))


def _fp32(records: Records) -> Records:
    found = records.where(method="fp32")
    return Records(sorted(found, key=lambda record: record.case.params["seed"]))


def _best(records: Records) -> tuple[str, Records]:
    """The reported model: of the searched and the assembled one, what validation prefers."""
    candidates = {
        "searched": _part(records, "search", "tpe"),
        "assembled": _part(records, "guided"),
    }
    name = max(candidates, key=lambda n: fmean([r.values["best"]["score"] for r in candidates[n]]))
    return name, candidates[name]


def _bits(records: Records) -> float:
    return fmean([record.values["best"]["bits"] for record in records])


def sensitivity(records: Records, seed: int = 0) -> dict[str, dict[int, list[float]]]:
    """Layer → fraction width → the loss of every probe sentence, in the order of the model."""
    halves = records.where(part="sensitivity", seed=seed)
    if len(halves) < HALVES:
        raise Pending("sensitivity")
    found = {layer: by for half in halves for layer, by in half.values["losses"].items()}
    order = halves[0].values["layers"]
    return {layer: {int(frac): x for frac, x in found[layer].items()} for layer in order}


def _fp32_losses(records: Records) -> list[float]:
    found = records.where(part="sensitivity", seed=0)
    if not found:
        raise Pending("sensitivity")
    return found[0].values["fp32"]


def short(layer: str) -> str:
    """A layer's name as a reader says it: its block and what it is for."""
    parts = [part for part in layer.split(".") if part not in ("bert", "encoder", "layer", "self")]
    return " ".join(part for part in parts if part not in ("dense", "attention")) or layer


# ---- claims -------------------------------------------------------------------------------------


def mixed_beats_uniform(records: Records) -> Claim:
    name, best = _best(records)
    plain = _part(records, "uniform")
    frac = plain[0].values["best"]["frac"]
    text = (
        f"A format for each layer ({name}, {_bits(best):.1f} bits a weight) reaches "
        f"{accuracy(best):.1%} on test; fixed({min(WIDTHS)},{frac}) everywhere, the best uniform "
        f"format of {min(WIDTHS)} bits, reaches {accuracy(plain):.1%}"
    )
    return stats.compare(outcomes(plain), outcomes(best)).improves(text)


def mixed_keeps_fp32(records: Records) -> Claim:
    _, best = _best(records)
    text = (
        f"That model stays within {100 * MARGIN:g} points of FP32 ({accuracy(_fp32(records)):.1%})"
    )
    return stats.compare(outcomes(_fp32(records)), outcomes(best)).within(MARGIN, text)


def assembled_beats_search(records: Records) -> Claim:
    searched, guided = _part(records, "search", "tpe"), _part(records, "guided")
    text = (
        f"Put together from what each layer alone can bear, the model reaches "
        f"{accuracy(guided):.1%} on test at {_bits(guided):.1f} bits; what TPE found in "
        f"{searched[0].case.params['trials']} trials, {accuracy(searched):.1%} at "
        f"{_bits(searched):.1f}"
    )
    return stats.compare(outcomes(searched), outcomes(guided)).improves(text)


def one_layer_is_enough(records: Records) -> Claim:
    coarse = min(FRACS)
    losses = {layer: by[coarse] for layer, by in sensitivity(records).items()}
    worst = max(losses, key=lambda layer: fmean(losses[layer]))
    fp32 = _fp32_losses(records)
    text = (
        f"One layer can be enough: with {coarse} fraction bits in the {short(worst)} alone, the "
        f"loss goes from {fmean(fp32):.2f} to {fmean(losses[worst]):.2f}"
    )
    return stats.paired_mean(fp32, losses[worst], unit=stats.Unit.LOSS).improves(text)


def most_layers_bear_8_bits(records: Records) -> Claim:
    """Layers whose own best eight-bit format costs next to nothing, against an even split."""
    fp32 = fmean(_fp32_losses(records))
    rises = [min(map(fmean, by.values())) - fp32 for by in sensitivity(records).values()]
    fine = [rise < TOLERABLE for rise in rises]
    text = (
        f"Most layers bear {min(WIDTHS)} bits alone: in {sum(fine)} of {len(fine)}, the fraction "
        f"width that suits them raises the mean loss by less than {TOLERABLE:g}"
    )
    return stats.counted(0.5, sum(fine) / len(fine), len(fine)).improves(text)


TOLERABLE = 0.02


def widths_are_chosen(records: Records) -> Claim:
    """Whether the search's widths say anything: the share of narrow layers against chance."""
    import numpy as np

    best = _part(records, "search", "tpe")[0].values["best"]["choices"]
    narrow = np.array([width == min(WIDTHS) for width, _ in best.values()])
    text = (
        f"In the best model that TPE found, {int(narrow.sum())} of {len(narrow)} layers have "
        f"{min(WIDTHS)} bits, more than the third that a blind draw gives"
    )
    return stats.exceeds(stats.Outcomes(narrow, "layers"), 1 / len(WIDTHS)).improves(text)


# ---- figures and tables -------------------------------------------------------------------------

CURVES = {"TPE": ("tpe", "first"), "random": ("random", "second")}


def curve_rows(records: Records) -> Sequence[Row]:
    curves = {
        name: [[t["score"] for t in r.values["trials"]] for r in _part(records, "search", sampler)]
        for name, (sampler, _) in CURVES.items()
    }
    levels = {
        "assembled by sensitivity": fmean(
            [r.values["best"]["score"] for r in _part(records, "guided")]
        ),
        f"uniform, {min(WIDTHS)} bits": fmean(
            [r.values["best"]["score"] for r in _part(records, "uniform")]
        ),
    }
    startup = _part(records, "search", "tpe")[0].values["startup"]
    rows = searches.curve_rows(curves)
    return [{**row, **levels, "at random": row["trial"] <= startup} for row in rows]  # type: ignore[operator]


def draw_curve(ax: Any, rows: Sequence[Row]) -> None:
    levels = [name for name in rows[0] if name.startswith(("assembled", "uniform"))]
    plots.level(ax, rows[0][levels[0]], "control", label=levels[0])  # type: ignore[arg-type]
    plots.level(ax, rows[0][levels[1]], "chance", label=levels[1])  # type: ignore[arg-type]
    startup = sum(bool(row["at random"]) for row in rows)
    roles = {name: role for name, (_, role) in CURVES.items()}
    searches.draw_curves(ax, rows, roles, accuracy="score", startup=startup)
    ax.set_ylabel("best score so far (points)")


def curve_alt(rows: Sequence[Row]) -> str:
    last = rows[-1]
    ends = "; ".join(f"{name} {last[name]:.1%}" for name in last if isinstance(last[name], float))
    return f"Best score so far after {last['trial']} trials: {ends}."


def sensitivity_rows(records: Records) -> Sequence[Row]:
    fp32 = _fp32_losses(records)
    return [
        {
            "position": i,
            "layer": short(layer),
            **{_column(frac): disturbance(by[frac], fp32) for frac in FRACS},
        }
        for i, (layer, by) in enumerate(sensitivity(records).items(), 1)
    ]


def _column(frac: int) -> str:
    return f"fixed({min(WIDTHS)},{frac})"


def draw_sensitivity(ax: Any, rows: Sequence[Row]) -> None:
    for frac, role in zip(FRACS, ("first", "second", "third")):
        ax.plot(
            [row["position"] for row in rows],
            [row[_column(frac)] for row in rows],
            **plots.line(role, linestyle="", label=_column(frac)),
        )
    worst = sorted(rows, key=lambda row: -max(float(row[_column(f)] or 0) for f in FRACS))[:2]
    for row in worst:
        ax.annotate(
            str(row["layer"]),
            (row["position"], max(float(row[_column(f)] or 0) for f in FRACS)),
            xytext=(-8, -4 if row is worst[0] else -16),
            textcoords="offset points",
            ha="right",
            fontsize=9,
        )
    ax.set_yscale("log")
    ax.set_xlabel("layer, from the first to the classifier")
    ax.set_ylabel("change of a sentence's loss (nats)")
    plots.legend(ax)


def sensitivity_alt(rows: Sequence[Row]) -> str:
    worst = max(rows, key=lambda row: float(row[_column(min(FRACS))] or 0))
    return (
        f"Change of a sentence's validation loss with one of {len(rows)} layers quantized; the "
        f"largest is {worst[_column(min(FRACS))]:.2f}, of the {worst['layer']}."
    )


def front_rows(records: Records) -> Sequence[Row]:
    """Every model that was scored, of the first seed."""
    found: list[dict[str, Any]] = []
    for series, part, sampler in SERIES:
        record = _part(records, part, sampler)[0]
        found += [{"series": series, **trial} for trial in record.values["trials"]]
    return [
        {"series": row["series"], "bits": row["bits"], "validation accuracy": row["validation"]}
        for row in found
    ]


SERIES = (
    ("uniform", "uniform", None),
    ("random", "search", "random"),
    ("TPE", "search", "tpe"),
    ("assembled by sensitivity", "guided", None),
)
LOOKS = {"uniform": "fourth", "random": "second", "TPE": "first", SERIES[-1][0]: "third"}


def draw_front(ax: Any, rows: Sequence[Row]) -> None:
    for series, role in LOOKS.items():
        mine = [row for row in rows if row["series"] == series]
        line = "-" if role == "third" else ""
        ax.plot(
            [row["bits"] for row in mine],
            [row["validation accuracy"] for row in mine],
            **plots.line(role, linestyle=line, label=series, alpha=0.85),
        )
    ax.set_xlabel("bits per weight")
    plots.percent_axis(ax, "validation accuracy")
    plots.legend(ax)


def front_alt(rows: Sequence[Row]) -> str:
    best = max(rows, key=lambda row: float(row["validation accuracy"] or 0))
    return (
        f"Validation accuracy against bits of {len(rows)} models; the highest is "
        f"{best['validation accuracy']:.1%} at {best['bits']:.1f} bits ({best['series']})."
    )


def choice_rows(records: Records) -> Sequence[Row]:
    record = _part(records, "guided")[0]
    choices = record.values["best"]["choices"]
    return [
        {
            "position": i,
            "layer": short(layer),
            "width": choices[layer][0],
            "frac": choices[layer][1],
        }
        for i, layer in enumerate(record.values["layers"], 1)
    ]


def draw_choices(ax: Any, rows: Sequence[Row]) -> None:
    for frac, role in zip(FRACS, ("first", "second", "third")):
        mine = [row for row in rows if row["frac"] == frac]
        if mine:
            ax.plot(
                [row["position"] for row in mine],
                [row["width"] for row in mine],
                **plots.line(role, linestyle="", label=f"{frac} fraction bits", markersize=7),
            )
    ax.set_yticks(WIDTHS, [str(width) for width in WIDTHS])
    ax.set_ylim(0, max(WIDTHS) + 4)
    ax.set_xlabel("layer, from the first to the classifier")
    ax.set_ylabel("width (bits)")
    plots.legend(ax)


def choice_alt(rows: Sequence[Row]) -> str:
    wide = [str(row["layer"]) for row in rows if row["width"] != min(WIDTHS)]
    named = f"; wider: {', '.join(wide)}" if len(wide) <= SHOWN_LAYERS else ""
    return f"{len(rows) - len(wide)} of {len(rows)} layers have {min(WIDTHS)} bits{named}."


def models_table(records: Records) -> Sequence[Row]:
    """Every model that met the test split."""
    plain = _part(records, "uniform")
    best = plain[0].values["best"]
    named = {
        f"fixed({best['width']},{best['frac']}) everywhere": plain,
        "searched by TPE": _part(records, "search", "tpe"),
        "assembled by sensitivity": _part(records, "guided"),
    }
    rows: list[Row] = [_model_row("FP32", _fp32(records), None)]
    return rows + [_model_row(name, found, _bits(found)) for name, found in named.items()]


def _model_row(name: str, found: Records, bits: float | None) -> Row:
    low, high = stats.accuracy_interval(outcomes(found))
    chosen_by = [r.values.get("best", {}).get("validation") for r in found]
    return {
        "model": name,
        "bits a weight": "32" if bits is None else f"{bits:.1f}",
        "validation, trials' sentences": ""
        if None in chosen_by
        else f"{fmean([float(v) for v in chosen_by if v is not None]):.1%}",
        "test": f"{accuracy(found):.1%} [{low:.1%},\u00a0{high:.1%}]",
    }


def uniform_table(records: Records) -> Sequence[Row]:
    rows: list[Row] = []
    for width in WIDTHS:
        row: dict[str, Any] = {"width": width}
        for frac in FRACS:
            found = [
                next(t for t in r.values["trials"] if (t["width"], t["frac"]) == (width, frac))
                for r in _part(records, "uniform")
            ]
            row[f"{frac} fraction bits"] = f"{fmean([one['validation'] for one in found]):.1%}"
        rows.append(row)
    return rows


def layers_table(records: Records) -> Sequence[Row]:
    """Which layers keep precision in the assembled model, and what eight bits alone cost them."""
    fp32 = _fp32_losses(records)
    choices = _part(records, "guided")[0].values["best"]["choices"]
    searched = _part(records, "search", "tpe")[0].values["best"]["choices"]
    moved = {
        layer: min(disturbance(losses, fp32) for losses in by.values())
        for layer, by in sensitivity(records).items()
    }
    shown = sorted(moved, key=lambda layer: -moved[layer])[:SHOWN_LAYERS]
    return [
        {
            "layer": short(layer),
            f"change of the loss at its best {min(WIDTHS)} bits": f"{moved[layer]:.3f}",
            "assembled": "fixed({},{})".format(*choices[layer]),
            "TPE": "fixed({},{})".format(*searched[layer]),
        }
        for layer in shown
    ]


SHOWN_LAYERS = 10


def reported_table(records: Records) -> Sequence[Row]:
    low, high = REPORTED
    return [{"": "best accuracy of the searches", "reported": f"{low:.1%} to {high:.1%}"}]


experiment = Experiment(
    title="Mixed precision: a width for every layer",
    params=params,
    run=run,
    needs=("baseline",),
    claims={
        "mixed_beats_uniform": mixed_beats_uniform,
        "mixed_keeps_fp32": mixed_keeps_fp32,
        "assembled_beats_search": assembled_beats_search,
        "one_layer_is_enough": one_layer_is_enough,
        "most_layers_bear_8_bits": most_layers_bear_8_bits,
        "widths_are_chosen": widths_are_chosen,
    },
    figures={
        "curve": Figure(
            caption="What the searches have found after each trial, against a model put together "
            "layer by layer. The score is validation accuracy less the price of the bits; TPE's "
            "trials in the shaded part are drawn at random.",
            rows=curve_rows,
            draw=draw_curve,
            alt=curve_alt,
        ),
        "sensitivity": Figure(
            caption="Which layer cannot bear which fraction width: one layer quantized, all others "
            "in FP32. The change counts up and down alike; the axis is logarithmic.",
            rows=sensitivity_rows,
            draw=draw_sensitivity,
            alt=sensitivity_alt,
        ),
        "front": Figure(
            caption="Every model that was scored. Bits cost nothing until a layer that needs them "
            "loses them; the axis of accuracy starts where guessing is.",
            rows=front_rows,
            draw=draw_front,
            alt=front_alt,
        ),
        "choices": Figure(
            caption="What each layer has in the assembled model: the narrow width with the "
            "fraction width that suits it, or the safe format.",
            rows=choice_rows,
            draw=draw_choices,
            alt=choice_alt,
        ),
    },
    tables={
        "models": models_table,
        "uniform": uniform_table,
        "layers": layers_table,
        "reported": reported_table,
    },
)
