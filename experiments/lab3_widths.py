"""Question 3.1: a width and a fraction width for every layer, searched and by sensitivity.

Every Linear layer's weight, bias and input become fixed point, and nothing is trained on. A model
has a budget, the average of the widths on offer; within it a search looks for accuracy alone. It
looks twice: among what is asked for, and where a choice can matter, between the widths at which one
format for all layers is too narrow and enough, with the fraction widths that 1.1 chose at these. A
model is held against the best one format for all layers within the same budget.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from madl.logbook import stats
from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.charts import Chart, line, linear, percent, points, span
from madl.logbook.claims import Fact, Judged, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import Unit, number, per_cent
from madl.training import baseline, mixed_records, widths
from madl.training.mixed_records import alike, layer_map, moved
from madl.training.width_space import Space, kind, written

page = Experiment(
    title="Mixed precision: a width for every layer",
    needs=("baseline", "lab1_fractions", "lab1_quantization"),
)

ASKED, NARROWER = "as asked for", "narrower"
WIDE_SPACE = Space(widths=(8, 16, 32), fractions=(2, 4, 8))
NARROW, ENOUGH = widths.APART, 6  # bits of one format for all layers (1.1)
SAMPLERS = {"tpe": "TPE", "random": "Random"}
PROBE = 8  # bits: the one format that everybody compares with
ALIKE = "one format for all layers"


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose, swept = plan.profile.choose, plan.records("lab1_fractions")
    known = {NARROW: NARROW, ENOUGH: choose(smoke=PROBE, quick=ENOUGH, full=ENOUGH)}
    pairs = {end: widths.pair_of(widths.chosen(swept, "ptq", known[end])) for end in known}
    narrow, wide = ((end, *pair) for end, pair in pairs.items())
    spaces = {ASKED: WIDE_SPACE, NARROWER: Space.between(narrow, wide)}
    for seed in range(plan.profile.seeds):
        recipe = baseline.recipe_params(plan, seed)
        ends = {"narrow": written(narrow), "wide": written(wide)}
        path = {"space": NARROWER, **spaces[NARROWER].params(), **ends}
        yield {"part": "sensitivity", **path, "steps": choose(smoke=2, quick=6, full=39), **recipe}
        base = {**recipe, "trial_examples": choose(smoke=16, quick=96, full=250)}
        trials, studies = choose(smoke=4, quick=40, full=100), choose(smoke=2, quick=3, full=5)
        for name, space in spaces.items():
            offered = {"space": name, **space.params(), **base}
            for sampler in SAMPLERS:
                searched = {"sampler": sampler, "trials": trials, "studies": studies}
                yield {"part": "search", "judged": sampler == "tpe", **searched, **offered}
            yield {"part": "uniform", "judged": name == NARROWER, **offered}


@page.run
def run(params: Params, ctx: Context) -> Values:
    from madl.training import mixed

    return mixed.run(params, ctx)


# ---- reading the records ------------------------------------------------------------------------


def searched(r: Records, space: str, sampler: str = "tpe") -> Arm:
    """Of the choices of several studies, the one that the whole validation split prefers."""
    return arm(r, f"{SAMPLERS[sampler]}, {space}", part="search", space=space, sampler=sampler)


def assembled(r: Records) -> Arm:
    return arm(r, "put together by sensitivity", part="sensitivity")


def uniform(r: Records, space: str) -> Arm:
    return arm(r, "one format", part="uniform", space=space)


def wide_formats(r: Records, most: float) -> list[Arm]:
    """One format for all layers of up to so many bits, as 1.1 chose and judged them."""
    tried = r.where(method="qat").each("width")
    return [widths.ptq(r, width) for width in tried if width <= most]


def bits(a: Arm) -> str:
    """Of a weight, the mean over the seeds."""
    return number(fmean(x.values.get("bits", x.case.params.get("width", 32)) for x in a.records))


# ---- claims and facts ---------------------------------------------------------------------------


@page.claim(headline=True)
def asked_search_pays(r: Records) -> Judged:
    """As asked for, a format for each layer that TPE finds is more accurate than one for all."""
    rival = f"{ALIKE} that validation prefers within the budget"
    best = best_of(wide_formats(r, WIDE_SPACE.budget))
    return _pays(searched(r, ASKED), best, "what TPE finds as asked for", rival)


@page.claim(headline=True)
def narrow_search_pays(r: Records) -> Judged:
    """At five bits a weight, a format for each layer that TPE finds is better than one for all."""
    return _pays(searched(r, NARROWER), uniform(r, NARROWER), "what TPE finds")


@page.claim(headline=True)
def assembly_pays(r: Records) -> Judged:
    """At five bits a weight, a model put together by sensitivity is better than one for all."""
    a = assembled(r)
    return _pays(a, uniform(r, NARROWER), f"a model {a.label}")


@page.claim(headline=True)
def assembly_beats_search(r: Records) -> Judged:
    """At five bits a weight, a model put together by sensitivity is better than what TPE finds."""
    a = assembled(r)
    return _pays(a, searched(r, NARROWER), f"a model {a.label}", rival="what TPE finds")


def _pays(a: Arm, b: Arm, named: str, rival: str = ALIKE) -> Judged:
    said = f"At {bits(a)} bits a weight, {named} has {a} on test"
    other = f"{rival} at {bits(b)} bits, {b}"
    return compare(a, b).judge(
        supported=f"{said}: {a - b} above {other}",
        refuted=f"{said}: {b - a} below {other}",
        undecided=f"{said}, which cannot be told from {other}: {a - b:+i}",
    )


@page.claim
def early_layers_matter_more(r: Records) -> Judged:
    """A narrow layer in the first half of the blocks moves a loss further than in the second."""
    first, second = mixed_records.by_half(assembled(r))
    return _further(r, first, second, "in the first half of the blocks", "in the second")


@page.claim
def one_kind_stands_out(r: Records) -> Judged:
    """The kind of layer that moves losses most on half of the sentences leads on the others too."""
    found = moved(assembled(r), kind)
    first, second, *_ = sorted(found, key=lambda name: -float(found[name][::2].mean()))
    here = f"where it is the {first}, on sentences that did not choose that"
    there = f"where it is of the next kind, {second}"
    return _further(r, found[first][1::2], found[second][1::2], here, there)


def _further(r: Records, a: Any, b: Any, here: str, there: str) -> Judged:
    drawn = "validation sentences of 1 model" if len(r.each("seed")) == 1 else "sentences"
    made = stats.paired_mean(a.tolist(), b.tolist(), unit=Unit.NATS, drawn=drawn)
    moves, said = "A narrow layer moves a sentence's loss", number(float(a.mean()))
    other = f"{number(float(b.mean()))} {there}"
    return contrast(made, assembled(r).records).judge(
        supported=f"{moves} by {said} nats {here}, and by {other}",
        refuted=f"{moves} by only {said} nats {here}, and by {other}",
        undecided=f"{moves} by {said} nats {here}, which cannot be told from {other}",
    )


@page.fact
def rivals(r: Records) -> Fact:
    given, a = alike(uniform(r, ASKED)), searched(r, ASKED)
    found = mixed_records.best_trial(a)
    return Fact(
        text=f"{sum(value > found for value in given)} of the {len(given)} formats on offer within "
        f"the budget, each for all layers, reach more than any trial of TPE: the best of them "
        f"{per_cent(max(given))}, TPE {per_cent(found)}",
        of=f"{a.param('studies')} searches of {a.param('trials')} trials, on a trial's sentences",
    )


@page.fact
def coarse_heads(r: Records) -> Fact:
    blind, coarsest = searched(r, ASKED, "random"), min(WIDE_SPACE.fractions)
    with_it = [trial["head"] == coarsest for trial in mixed_records.within_budget(blind)]
    best = [mixed_records.best_trial(blind, head) for head in (coarsest, *WIDE_SPACE.fractions[1:])]
    return Fact(
        text=f"{sum(with_it)} of {len(with_it)} blind draws give the pooler or the classifier the "
        f"coarsest fraction width. The best of them reaches {per_cent(best[0])}, the best of the "
        f"others {per_cent(max(best[1:]))}",
        of="Random's trials within the budget, on a trial's sentences",
    )


@page.fact
def evaluations(r: Records) -> Fact:
    a, spent = searched(r, NARROWER), mixed_records.whole_evaluations(assembled(r))
    fitting = len(mixed_records.within_budget(a)) / len(a.records)
    return Fact(
        text=f"TPE's trials within the budget take {round(fitting * a.param('trial_examples')):,} "
        f"evaluations of a sentence, the order of the layers by sensitivity {spent:,}",
        of="the narrower formats, blocks that are not run again left out",
    )


@page.fact
def agreement(r: Records) -> Fact:
    a = searched(r, ASKED)
    same, layers = mixed_records.agreeing(a)
    dice = layers / len(WIDE_SPACE.widths) ** (a.param("studies") - 1)
    return Fact(
        text=f"{a.param('studies')} searches with TPE give the same width to {same} of {layers} "
        f"layers; dice would to about {number(dice)}",
        of="the choices of all studies of one trained model",
    )


# ---- figures and tables -------------------------------------------------------------------------


@page.chart(
    caption="The best accuracy within the budget after each trial: the mean over studies with its "
    "interval, from where each has found a model that fits. Shaded: TPE draws at random too. One "
    "format: the best on offer, given to all layers, on the same sentences."
)
def curves(r: Records) -> Chart:
    rows: list[Row] = []
    for space in (ASKED, NARROWER):
        arms = {title: searched(r, space, sampler) for sampler, title in SAMPLERS.items()}
        same = {"space": space, "one format": max(alike(uniform(r, space)))}
        rows += mixed_records.curve_rows(arms, **same)
    startup = searched(r, ASKED).value("settings")["startup_trials"]
    marks = [line(name, markers=False) for name in (*SAMPLERS.values(), "one format")]
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent("best validation accuracy"),
        marks=[span(0.5, startup + 0.5, "drawn at random"), *marks],
        facet="space",
    )


@page.chart(
    caption="The bits of each layer, of the first seed's models; as asked for, also how many of "
    "them lie behind the point. Pooler and classifier are one layer each."
)
def choices(r: Records) -> Chart:
    tpe = searched(r, ASKED)
    shown = [(f"{a.label}: bits", a, 0) for a in (tpe, searched(r, NARROWER), assembled(r))]
    shown.insert(1, (f"{tpe.label}: behind the point", tpe, 1))
    every = [(title, a.value("choices").items(), i) for title, a, i in shown]
    return layer_map((title, x, choice[i]) for title, given, i in every for x, choice in given)


@page.chart(
    caption="How far a narrow layer among wide ones moves a sentence's loss, up or down, in "
    "thousandths of a nat: the mean over the validation sentences."
)
def sensitivity(r: Records) -> Chart:
    found = moved(assembled(r), lambda layer: layer)
    return layer_map(("", layer, round(1e3 * float(by.mean()))) for layer, by in found.items())


@page.chart(
    caption="The same layers: how much each raises the mean loss, with its interval. Where the "
    "interval holds zero, nothing shows that the narrow layer does harm by itself."
)
def rises(r: Records) -> Chart:
    return mixed_records.rises(assembled(r))


@page.chart(
    caption="Accuracy on the whole validation split at the bits that a model takes. By "
    "sensitivity: from right to left, more layers are narrow. A point: what a study chose."
)
def front(r: Records) -> Chart:
    wide = [{"bits": a.param("width"), **a.records[0].values} for a in wide_formats(r, PROBE)]
    found = {
        "one format": [*wide, uniform(r, NARROWER).records[0].values],
        "by sensitivity": assembled(r).value("path"),
        "TPE": searched(r, NARROWER).value("chosen"),
    }
    return Chart(
        mixed_records.by_bits(found),
        x=linear("bits", "bits per weight"),
        y=percent("validation accuracy"),
        marks=[line("one format"), line("by sensitivity"), points("TPE")],
    )


@page.table
def models(r: Records) -> Sequence[Row]:
    """Every model that met the test split, here or on the page of 1.1."""
    named = [
        ("FP32", baseline.fp32(r)),
        ("as asked for: TPE", searched(r, ASKED)),
        ("one format within that budget", best_of(wide_formats(r, WIDE_SPACE.budget))),
        (f"one format of {PROBE} bits", widths.ptq(r, PROBE)),
        ("narrower: TPE", searched(r, NARROWER)),
        ("narrower: by sensitivity", assembled(r)),
        ("one format within this budget", uniform(r, NARROWER)),
    ]
    return [
        {"model": name, "bits a weight": bits(a), "validation": per_cent(a.validation), "test": a}
        for name, a in named
    ]
