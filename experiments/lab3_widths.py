"""Question 3.1: a width and a fraction width for every layer, searched and by sensitivity.

A trial quantizes every Linear layer's weight, bias and input to its own fixed(width, frac_width)
and is scored on validation sentences: accuracy less a price on bits, for without one the widest
choice is always as good as any. Quantizing is deterministic: what is random is the search and the
choice of sentences. Beside the searches stands a model put together from what one layer at a time
can bear. Each reported model meets the test split once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, cells, level, linear
from madl.logbook.claims import Fact, Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import Unit, number, per_cent
from madl.training import baseline

page = Experiment(title="Mixed precision: a width for every layer", needs=("baseline",))

WIDTHS, FRACS = (8, 16, 32), (2, 4, 8)
NARROW = min(WIDTHS)
PRICE_PER_BIT = 0.001  # accuracy that one bit per weight has to bring
SAFE = (16, 8)  # what a layer gets that eight bits would hurt; the search may take it too
STEPS = 8  # models on the way from all layers safe to all layers at eight bits
MARGIN = 0.02  # accuracy that fewer bits may cost; much less, and no test split here would see it
HALVES = 2  # cases that share the measuring of layers


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
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


@page.run
def run(params: Params, ctx: Context) -> Values:
    model = baseline.fine_tuned(params, ctx)
    if params["part"] == "sensitivity":
        return run_sensitivity(model, params, ctx)
    if params["part"] == "search":
        return run_search(model, params, ctx)
    return (run_guided if params["part"] == "guided" else run_uniform)(model, params, ctx)


def run_sensitivity(model: Any, params: Params, ctx: Context) -> Values:
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
        formats[layer] = FixedPoint(width=NARROW, frac_width=frac)
        judged = precision.judge(model, formats, data, ctx.device)
        return {"losses": [round(loss, 4) for loss in judged.losses]}

    what = {
        **precision.of_experiment(params, ["probe_examples"]),
        "what": "one layer",
        "layer": layer,
        "format": f"fixed({NARROW},{frac})",
    }
    return search.remembered(ctx, what, evaluate)["losses"]


def run_search(model: Any, params: Params, ctx: Context) -> Values:
    from madl.training import precision, search

    layers = precision.layer_names(model)
    space = {f"{layer} width": WIDTHS for layer in layers}
    space |= {f"{layer} frac": FRACS for layer in layers}

    def chosen(point: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        return {layer: (point[f"{layer} width"], point[f"{layer} frac"]) for layer in layers}

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        judged = score(model, chosen(point), params, ctx)
        return judged["score"], judged

    trials, best = search.of_case(ctx, params, space, objective)
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
    from madl.training import precision

    data = baseline.load_splits(params).validation.first(int(params["trial_examples"] or 0))
    formats = _formats(choices)
    judged = precision.judge(model, formats, data, ctx.device)
    bits = precision.mean_bits(model, formats)
    value = judged.accuracy - float(params["price"] or 0) * bits
    return {"score": value, "validation": judged.accuracy, "loss": judged.loss, "bits": bits}


def report(
    model: Any, choices: Mapping[str, tuple[int, int]], params: Params, ctx: Context
) -> dict[str, Any]:
    """The test split, once for a model that is reported."""
    from madl.training.precision import set_precision_

    return baseline.judge_on_test(set_precision_(model, _formats(choices)), params, ctx.device)


def _formats(choices: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    from madl.formats.fixed import FixedPoint

    return {layer: FixedPoint(width=w, frac_width=f) for layer, (w, f) in choices.items()}


def run_guided(model: Any, params: Params, ctx: Context) -> Values:
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
    return [(layer, (NARROW, frac)) for _, layer, frac in sorted(best)]


def disturbance(losses: Sequence[float], fp32: Sequence[float]) -> float:
    """How far a sentence's loss moves, up or down, on average.

    Up and down cancel in the mean loss, so that by it a layer can look better than untouched.
    """
    return fmean([abs(a - b) for a, b in zip(losses, fp32, strict=True)])


def steps(num_layers: int, count: int) -> list[int]:
    """How many layers are narrow in each model on the way, from none to all."""
    return sorted({round(num_layers * i / max(count - 1, 1)) for i in range(count)})


def run_uniform(model: Any, params: Params, ctx: Context) -> Values:
    """Every format of the space on all layers; the best of the narrowest width is tested."""
    from madl.training.precision import layer_names

    layers = layer_names(model)
    tried = {
        (width, frac): score(model, dict.fromkeys(layers, (width, frac)), params, ctx)
        for width in WIDTHS
        for frac in FRACS
    }
    best = max(FRACS, key=lambda frac: tried[NARROW, frac]["score"])
    return {
        "trials": [{"width": w, "frac": f, **one} for (w, f), one in tried.items()],
        "best": tried[NARROW, best] | {"width": NARROW, "frac": best},
        **report(model, dict.fromkeys(layers, (NARROW, best)), params, ctx),
    }


# ---- reading the records ------------------------------------------------------------------------


ASSEMBLED = "assembled"


def searched(r: Records, sampler: str = "tpe") -> Arm:
    label = {"tpe": "TPE", "random": "Random"}[sampler]
    return arm(r, label, part="search", sampler=sampler)


def assembled(r: Records) -> Arm:
    return arm(r, ASSEMBLED, part="guided")


def uniform(r: Records) -> Arm:
    """The narrowest width everywhere, with the fraction width that validation prefers."""
    found = arm(r, part="uniform")
    best = found.value("best")
    return replace(found, label=f"{fixed((best['width'], best['frac']))} everywhere")


def best_value(a: Arm, name: str) -> float:
    """Of what a search or an assembly chose, on validation: the mean over the seeds."""
    return fmean(record.values["best"][name] for record in a.records)


def uniform_values(r: Records, name: str) -> dict[tuple[int, int], float]:
    """(width, fraction width) → what that format everywhere gives on validation."""
    trials = [record.values["trials"] for record in uniform(r).records]
    return {
        (of_format[0]["width"], of_format[0]["frac"]): fmean(trial[name] for trial in of_format)
        for of_format in zip(*trials, strict=True)
    }


def fixed(choice: Sequence[int]) -> str:
    return "fixed({},{})".format(*choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Losses with one layer at the narrow width, and with none.

    Shapes: every array is (seeds, validation sentences).
    """

    fp32: NDArray[np.float64]
    losses: dict[str, dict[int, NDArray[np.float64]]]  # layer → fraction width, in model order

    def change(self, layer: str, frac: int) -> float:
        """How far the layer alone moves a sentence's loss; see `disturbance`."""
        return disturbance(self.losses[layer][frac].ravel().tolist(), self.fp32.ravel().tolist())

    def best_frac(self, layer: str) -> int:
        return min(FRACS, key=lambda frac: self.change(layer, frac))


def sensitivity(r: Records) -> Sensitivity:
    parts = [arm(r, "sensitivity", part="sensitivity", half=half) for half in range(HALVES)]
    measured = {
        layer: {
            frac: np.array([record.values["losses"][layer][str(frac)] for record in part.records])
            for frac in FRACS
        }
        for part in parts
        for layer in part.value("losses")
    }
    fp32 = np.array([record.values["fp32"] for record in parts[0].records])
    return Sensitivity(
        fp32=fp32, losses={layer: measured[layer] for layer in parts[0].value("layers")}
    )


def place(layer: str) -> tuple[str, str]:
    """Where a layer is and what it is for, as a reader says it."""
    found = re.search(r"\.(\d+)\.(.+)$", layer)
    block, rest = (f"block {found[1]}", found[2]) if found else ("head", layer)
    kind = rest.removeprefix("bert.").removeprefix("attention.self.").removesuffix(".dense")
    return block, kind.replace(".", " ")


def short(layer: str) -> str:
    return " ".join(place(layer)).removeprefix("head ")


# ---- claims and facts ---------------------------------------------------------------------------


@page.claim(headline=True)
def search_beats_one_format(r: Records) -> Judged:
    """A format for each layer, as TPE finds it, is more accurate than one narrow format for all."""
    found, plain = searched(r), uniform(r)
    said = f"What TPE finds in {found.param('trials')} trials"
    bits = f"at {number(best_value(found, 'bits'))} bits a weight"
    alike = f"{plain.label} ({plain})"
    return compare(found, plain).judge(
        supported=f"{said}, {bits}, reaches {found} on test: {found - plain} above {alike}",
        refuted=f"{said}, {bits}, reaches {found} on test: {plain - found} below {alike}",
        undecided=f"{said}, {bits}, reaches {found} on test, which cannot be told from {alike}: "
        f"{found - plain:+i}",
    )


@page.claim(headline=True)
def assembled_beats_search(r: Records) -> Judged:
    """The model put together layer by layer is more accurate than the one that TPE finds."""
    guided, found = assembled(r), searched(r)
    bits, more = number(best_value(guided, "bits")), number(best_value(found, "bits"))
    said = f"Put together from what each layer alone can bear, a model of {bits} bits a weight"
    by_tpe = f"what TPE found ({found}, {more} bits)"
    return compare(guided, found).judge(
        supported=f"{said} reaches {guided} on test, {guided - found} above {by_tpe}",
        refuted=f"{said} reaches {guided} on test, {found - guided} below {by_tpe}",
        undecided=f"{said} ({guided} on test) cannot be told from {by_tpe}: {guided - found:+i}",
    )


@page.claim(headline=True)
def assembled_keeps_fp32(r: Records) -> Judged:
    """The model put together layer by layer is hardly less accurate than FP32: within a margin."""
    guided, fp32 = assembled(r), baseline.fp32(r)
    said = f"Assembled, a model of {number(best_value(guided, 'bits'))} bits a weight"
    on_test = f"{guided} on test, FP32 {fp32}"
    margin = f"{100 * MARGIN:g} points"
    return (
        compare(guided, fp32)
        .no_worse(MARGIN)
        .judge(
            supported=f"{said} loses less than {margin} against FP32: {on_test}",
            refuted=f"{said} loses more than {margin} against FP32: {on_test}",
            undecided=f"{said} has {on_test}: {guided - fp32:+i}, which beside the page's other "
            f"claims does not settle whether it loses more than {margin}",
        )
    )


@page.claim
def widths_are_chosen(r: Records) -> Judged:
    """The best model that TPE finds has more layers at the narrow width than a blind draw gives."""
    found = searched(r)
    widths = [w for one in found.records for w, _ in one.values["best"]["choices"].values()]
    narrow = sum(width == NARROW for width in widths)
    judged = stats.share(
        narrow, len(widths), level=1 / len(WIDTHS), drawn=f"layers of {len(found.records)} search"
    )
    said = f"In the best model of TPE, {narrow} of {len(widths)} layers have {NARROW} bits"
    return contrast(judged, found.records).judge(
        supported=f"{said}, more than the third that a blind draw gives",
        refuted=f"{said}, fewer than the third that a blind draw gives",
        undecided=f"{said}, which cannot be told from the third that a blind draw gives",
    )


@page.claim
def one_layer_is_enough(r: Records) -> Judged:
    """One layer with a coarse step raises the loss: the one that does so most on half of the
    sentences does so on the other half."""
    found, coarse = sensitivity(r), min(FRACS)
    fp32 = found.fp32.mean(axis=0)
    losses = {layer: by[coarse].mean(axis=0) for layer, by in found.losses.items()}
    worst = max(losses, key=lambda layer: losses[layer][::2].mean())
    with_it, without = losses[worst][1::2].tolist(), fp32[1::2].tolist()
    made = stats.paired_mean(with_it, without, unit=Unit.NATS, drawn="validation sentences")
    said = f"from {number(fmean(without))} to {number(fmean(with_it))} nats"
    return contrast(made, r.all(part="sensitivity")).judge(
        supported=f"One layer can be enough: {coarse} fraction bits in the {short(worst)} alone "
        f"raise the loss of sentences that did not choose it {said}",
        refuted=f"Even in the layer that they hurt most on other sentences, the {short(worst)}, "
        f"{coarse} fraction bits lower the loss, {said}",
        undecided=f"Nothing shows that {coarse} fraction bits in one layer raise the loss: in the "
        f"{short(worst)}, chosen on other sentences, it goes {said}",
    )


@page.fact
def rivals(r: Records) -> Fact:
    scores, found = uniform_values(r, "score"), searched(r)
    reached = best_value(found, "score")
    above = sum(score > reached for score in scores.values())
    best = max(scores, key=lambda choice: scores[choice])
    return Fact(
        text=f"{above} of the {len(scores)} formats that give all layers the same score higher on "
        f"validation than the best of TPE's {found.param('trials')} trials: {fixed(best)} "
        f"{per_cent(scores[best])}, TPE {per_cent(reached)}",
        of=f"all formats of the search's own space, on {found.param('trial_examples')} validation "
        "sentences",
    )


@page.fact
def evaluations(r: Records) -> Fact:
    found, guided = searched(r), assembled(r)
    a_trial, a_probe = found.param("trial_examples"), found.param("probe_examples")
    scored, probes = len(guided.value("trials")), guided.value("probes") + 1
    spent = scored * a_trial + probes * a_probe
    return Fact(
        text=f"The search evaluates {found.param('trials') * a_trial:,} sentences, the assembly "
        f"{spent:,}: {probes} probes of single layers and {scored} models",
        of=f"{found.param('trials')} trials of {a_trial} sentences, and probes of {a_probe}",
    )


@page.fact
def eight_bits_alone(r: Records) -> Fact:
    found = sensitivity(r)
    fracs = Counter(found.best_frac(layer) for layer in found.losses)
    changes = [found.change(layer, found.best_frac(layer)) for layer in found.losses]
    said = ", ".join(f"{frac} in {count} layers" for frac, count in sorted(fracs.items()))
    return Fact(
        text=f"Alone at {NARROW} bits, layers bear these fraction widths best: {said}. "
        f"A sentence's loss then moves by {number(median(changes))} nats in the median layer, by "
        f"{number(max(changes))} in the most sensitive one",
        of=f"{len(changes)} layers × {len(FRACS)} fraction widths, on {found.fp32.shape[1]} "
        "validation sentences",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="What the searches have found after each trial, against a model put together layer by "
    "layer and two formats that are the same everywhere. The score is validation accuracy less the "
    "price of the bits; TPE's trials in the shaded part are drawn at random."
)
def curve(r: Records) -> Chart:
    arms = [searched(r), searched(r, "random")]
    studies = {
        one.label: [[t["score"] for t in record.values["trials"]] for record in one.records]
        for one in arms
    }
    scores = uniform_values(r, "score")
    best = max(scores, key=lambda choice: scores[choice])
    rivals = {
        **{one.label: best_value(one, "score") for one in (assembled(r), uniform(r))},
        f"{fixed(best)} everywhere": scores[best],
    }
    return searches.curves_chart(
        searches.curve_rows(studies),
        accuracy="best score so far, validation",
        startup=min(arms[0].value("startup"), arms[0].param("trials")),
        levels=[level(value, name) for name, value in rivals.items()],
    )


@page.chart(
    caption="How far one layer alone moves a sentence's validation loss, up or down, at the narrow "
    "width with each fraction width, in thousandths of a nat; all others are in FP32. A row is a "
    "block of the encoder, a column a kind of layer."
)
def layer_changes(r: Records) -> Chart:
    found = sensitivity(r)
    return _heat_map(
        [
            (fixed((NARROW, frac)), layer, round(1e3 * found.change(layer, frac)))
            for frac in FRACS
            for layer in found.losses
        ]
    )


def _heat_map(values: Iterable[tuple[str, str, int]]) -> Chart:
    """A small map a title: blocks × kinds of layer."""
    rows = [
        {**dict(zip(("block", "layer"), place(layer))), "of": title, "value": value}
        for title, layer, value in values
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells("value")], facet="of")


@page.chart(
    caption="The bits that two ways of choosing gave each layer, in the model of the first seed: "
    "the width, and how many of its bits lie behind the binary point."
)
def choices(r: Records) -> Chart:
    return _heat_map(
        [
            (f"{name}: {what}", layer, one.value("best")["choices"][layer][i])
            for name, one in (("TPE", searched(r)), ("assembled", assembled(r)))
            for i, what in enumerate(("width", "fraction"))
            for layer in one.value("layers")
        ]
    )


@page.chart(
    caption="Every model that was scored, of the first seed. The line joins those that no model of "
    "as few bits reaches."
)
def front(r: Records) -> Chart:
    arms = [uniform(r), searched(r, "random"), searched(r), assembled(r)]
    rows = [
        {
            "models": "uniform" if one.param("part") == "uniform" else one.label,
            "bits": trial["bits"],
            "validation accuracy": trial["validation"],
        }
        for one in arms
        for trial in one.value("trials")
    ]
    return searches.front_chart(
        rows,
        size=linear("bits", "bits per weight"),
        value="validation accuracy",
        by="models",
        common=True,
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Every model that met the test split."""
    rows: list[Row] = [
        {"model": "FP32", "bits a weight": 32.0, "validation": "–", "test": baseline.fp32(r)}
    ]
    return rows + [
        {
            "model": one.label,
            "bits a weight": best_value(one, "bits"),
            "validation": per_cent(best_value(one, "validation")),
            "test": one,
        }
        for one in (uniform(r), searched(r), assembled(r))
    ]


@page.table
def uniform_formats(r: Records) -> Sequence[Row]:
    found = uniform_values(r, "validation")
    return [
        {
            "width": width,
            **{f"{frac} fraction bits": per_cent(found[width, frac]) for frac in FRACS},
        }
        for width in WIDTHS
    ]
