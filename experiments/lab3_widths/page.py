"""Question 3.1: does a width for every layer, searched or by sensitivity, beat one for all?

Every Linear layer's weight, bias and input become fixed point; nothing is trained on. A model may
take the average of the widths on offer. As asked for, a layer has 8, 16 or 32 bits; in the narrower
space 4 to 6, with fraction widths that suit both ends. The rival is one format for all layers.

Units: bits per weight; changes of a loss in nats, (seeds, sentences).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from madl.logbook import searches, stats
from madl.logbook.arms import Arm, arm, best_of, inside
from madl.logbook.charts import Chart, category, cells, line, linear, percent, span
from madl.logbook.claims import Contrast, compare, contrast
from madl.logbook.experiment import Context, Experiment, Plan
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Records, Row, Values
from madl.logbook.stats import Unit, per_cent
from madl.training import baseline
from madl.training.width_space import PARTS_OF_A_NAT, Choices, Space, block, kind, place, written

page = Experiment(title="Mixed precision: a width for every layer", needs=("earlier_baseline",))

ASKED, NARROWER = "as asked for", "narrower"
# as the earlier sweeps chose; read from 1.1's tuning when this study is made anew
NARROW, WIDE = (4, 5, 2), (6, 6, 2)  # bits; after the point: of weights, of inputs
SPACES = {
    ASKED: Space(widths=(8, 16, 32), fractions=(2, 4, 8)),
    NARROWER: Space.between(NARROW, WIDE),
}
OFFERS = {ASKED: "8, 16 or 32 bits", NARROWER: "4, 5 or 6 bits"}
SAMPLERS = {"tpe": "TPE", "random": "Random"}
FINEST, COARSE, NARROWEST = "16 8 8", "16 2 2", "8 8 8"  # of one layer, as asked for
KINDS = ("query", "key", "value", "output", "up", "down", "pooler", "classifier")  # as they run
Floats = NDArray[np.float64]


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    choose = plan.profile.choose
    for seed in range(plan.profile.seeds):
        recipe = baseline.recipe_params(plan, seed)
        ends = {"narrow": written(NARROW), "wide": written(WIDE)}
        path = {"space": NARROWER, **SPACES[NARROWER].params(), **ends}
        yield {"part": "sensitivity", **path, "steps": choose(smoke=2, quick=6), **recipe}
        yield {"part": "blind", **path, "draws": choose(smoke=2, quick=5), **recipe}
        base = {**recipe, "trial_examples": choose(smoke=16, quick=96)}
        trials, studies, around = choose(smoke=(4, 2, False), quick=(40, 3, True))
        for name, space in SPACES.items():
            offered = {"space": name, **space.params(), **base}
            for sampler in SAMPLERS:
                searched = {"sampler": sampler, "trials": trials, "studies": studies}
                yield {"part": "search", **searched, **offered}
            tested = "8 16" if name == ASKED else str(max(space.uniform())[0])
            everywhere = {"tested": tested, "around": around and name == NARROWER}
            yield {"part": "uniform", **everywhere, **offered}
        alone = {"base": FINEST, "others": f"{COARSE}, {NARROWEST}"}
        offered = {"space": ASKED, **SPACES[ASKED].params()}
        yield {
            "part": "alone",
            **offered,
            **alone,
            "sentences": choose(smoke=8, quick=64),
            **recipe,
        }


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_widths import study

    return study.run(params, ctx)


# ---- the arms -----------------------------------------------------------------------------------


def searched(r: Records, space: str, sampler: str) -> Arm:
    """Of what several searches on a model chose, what the whole validation split prefers."""
    return arm(r, SAMPLERS[sampler], part="search", space=space, sampler=sampler)


def mixed(r: Records, space: str) -> Arm:
    """By the sampler that validation prefers."""
    return best_of([searched(r, space, sampler) for sampler in SAMPLERS])


def tried_alike(r: Records, space: str) -> Arm:
    """Every format on offer within the budget, each for all layers, on a trial's sentences."""
    return arm(r, "one format", part="uniform", space=space)


def alike(r: Records, space: str) -> list[Arm]:
    """One format for all layers: at each tested width, what validation prefers of each model."""
    a = tried_alike(r, space)
    return [replace(a, within=("at", width)) for width in a.param("tested").split()]


def one_format(r: Records, space: str) -> Arm:
    """At the width that validation prefers."""
    return best_of(alike(r, space))


def assembled(r: Records) -> Arm:
    """The layers that alone move losses least are narrow."""
    return arm(r, "by sensitivity", part="sensitivity")


def blind(r: Records) -> Arm:
    """Random layers are narrow: of several draws, what validation prefers."""
    return arm(r, "random layers", part="blind")


# ---- claims -------------------------------------------------------------------------------------


@page.claim(primary=True)
def search_beats_one_format(r: Records) -> Contrast:
    """With 8, 16 or 32 bits for each layer, what a search finds is more accurate than the best
    format on offer for all layers within the same bits."""
    return compare(mixed(r, ASKED), one_format(r, ASKED))


@page.claim(primary=True)
def search_beats_one_format_at_five_bits(r: Records) -> Contrast:
    """With 4 to 6 bits for each layer, what a search finds is more accurate than the best format
    of 5 bits for all layers."""
    return compare(mixed(r, NARROWER), one_format(r, NARROWER))


@page.claim(primary=True)
def order_matters(r: Records) -> Contrast:
    """Narrowing those layers that alone move losses least is more accurate than narrowing random
    ones, the best of several draws on validation."""
    return compare(assembled(r), blind(r))


@page.claim
def sensitivity_beats_one_format(r: Records) -> Contrast:
    """At 5 bits: layers narrowed by sensitivity over the best format for all layers."""
    return compare(assembled(r), one_format(r, NARROWER))


@page.claim
def early_layers_matter_more(r: Records) -> Contrast:
    """How far one narrow layer moves a loss: first half of the blocks over the second."""
    a = assembled(r)
    first, second = (side.tolist() for side in by_half(a))
    made = stats.paired_mean(first, second, unit=Unit.NATS, drawn="validation sentences")
    return contrast(made, a.records)


# ---- searches -----------------------------------------------------------------------------------


def so_far(a: Arm) -> list[list[float]]:
    """The best so far of every study of one model; of several, their means.

    NaN before a model is within the budget; trials over it have values below zero.
    """

    def best(study: Sequence[Any]) -> list[float]:
        reached = searches.best_so_far([trial["value"] for trial in study])
        return [value if value >= 0 else math.nan for value in reached]

    models = [[best(study) for study in record.values["studies"]] for record in a.records]
    return models[0] if len(models) == 1 else [np.mean(one, axis=0).tolist() for one in models]


def best_alike(a: Arm) -> float:
    """The best of the formats on offer for each model, on a trial's sentences: their mean."""
    return fmean(max(t["value"] for t in tried if t["offered"]) for tried in a.each("trials"))


def on_all(a: Arm) -> float:
    """On all of validation: the mean over what the studies chose."""
    return fmean(fmean(one["validation_accuracy"] for one in of) for of in a.each("chosen"))


def chosen(a: Arm) -> list[list[Choices]]:
    """Of each model: what its studies chose."""
    return [[one["choices"] for one in studies] for studies in a.each("chosen")]


def agreeing(given: Sequence[Choices]) -> tuple[int, float]:
    """To how many layers all of these give the same width.

    And to how many one would expect it if each had dealt its widths to layers blindly.
    """
    every = [[one[layer][0] for layer in given[0]] for one in given]
    same = sum(len(set(widths)) == 1 for widths in zip(*every, strict=True))
    first, *rest = map(Counter, every)
    by_chance = (math.prod((n, *(one[width] for one in rest))) for width, n in first.items())
    return same, sum(by_chance) / len(every[0]) ** len(rest)


def coarse_layers(a: Arm) -> float:
    """How many layers have the coarsest fraction width on offer, the mean over models."""
    coarsest = min(Space.of(a.records[0].case.params).fractions)
    return fmean(sum(one[1] == coarsest for one in of.values()) for of in a.each("choices"))


def bits(a: Arm) -> float:
    """Of a weight, the mean over models."""
    return a.mean("bits")


# ---- sensitivity --------------------------------------------------------------------------------


def moved(a: Arm, *within: str) -> dict[str, Floats]:
    """How far each layer alone moves a sentence's loss, up or down: the mean over models.

    Shapes: (sentences).
    """
    path = within or ("changes",)
    every = [inside(record, path) for record in a.records]
    return {
        layer: np.mean([np.abs(one[layer]) for one in every], axis=0) / PARTS_OF_A_NAT
        for layer in every[0]
    }


def by_half(a: Arm) -> tuple[Floats, Floats]:
    """The same over layers of the first half of the blocks, and over those of the second."""
    moves = {layer: by for layer, by in moved(a).items() if block(layer) is not None}
    last = max(block(layer) or 0 for layer in moves)
    halves = ([by for x, by in moves.items() if (2 * (block(x) or 0) > last) == s] for s in (0, 1))
    first, second = (np.mean(half, axis=0) for half in halves)
    return first, second


# ---- numbers ------------------------------------------------------------------------------------


def nats(value: float, a: Arm) -> Counted:
    return counted(round(value, 2), "nats", of=a.records)


def half_of(r: Records, which: int) -> Counted:
    a = assembled(r)
    return nats(float(by_half(a)[which].mean()), a)


def lone(r: Records, other: str) -> Counted:
    """How far a layer moves a loss at most, in a format that no other layer has."""
    a = arm(r, part="alone")
    return nats(max(float(by.mean()) for by in moved(a, "alone", other).values()), a)


def agreement(r: Records, *, by_chance: bool) -> Counted:
    a = searched(r, ASKED, "tpe")
    found = fmean(agreeing(of)[by_chance] for of in chosen(a))
    return counted(round(found, 1), of=a.records)


def late_and_narrow(r: Records, *, every: bool) -> Counted:
    """The narrow layers of the models by sensitivity; or those in the second half of the blocks."""
    a = assembled(r)
    last = max(block(layer) or 0 for layer in a.value("layers"))
    narrow = [[x for x, choice in of.items() if choice[0] == NARROW[0]] for of in a.each("choices")]
    found = [[x for x in of if every or 2 * (block(x) or 0) > last] for of in narrow]
    return counted(round(fmean(map(len, found))), of=a.records)


page.numbers(
    fp32=baseline.fp32,
    asked=partial(mixed, space=ASKED),
    asked_one=partial(one_format, space=ASKED),
    eight=lambda r: alike(r, ASKED)[0],
    asked_bits=lambda r: counted(round(bits(mixed(r, ASKED)), 1), of=mixed(r, ASKED).records),
    asked_budget=lambda r: counted(round(SPACES[ASKED].budget, 1), of=mixed(r, ASKED).records),
    layers=lambda r: counted(len(assembled(r).value("layers")), of=assembled(r).records),
    coarse=lambda r: counted(round(coarse_layers(mixed(r, ASKED))), of=mixed(r, ASKED).records),
    coarse_alone=partial(lone, other=COARSE),
    narrow_alone=partial(lone, other=NARROWEST),
    on_all=lambda r: counted(
        round(100 * on_all(searched(r, ASKED, "tpe"))), "%", of=searched(r, ASKED, "tpe").records
    ),
    early=partial(half_of, which=0),
    late=partial(half_of, which=1),
    narrow_layers=partial(late_and_narrow, every=True),
    narrow_late=partial(late_and_narrow, every=False),
    agree_on=partial(agreement, by_chance=False),
    agree_by_chance=partial(agreement, by_chance=True),
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    found = {name: searched(r, ASKED, sampler) for sampler, name in SAMPLERS.items()}
    rows = searches.mean_rows({name: so_far(a) for name, a in found.items()})
    one = best_alike(tried_alike(r, ASKED))
    startup = next(iter(found.values())).value("settings")["startup_trials"]
    return Chart(
        [{**row, "one format": one} for row in rows],
        x=linear("trial", "trials"),
        y=percent("best accuracy so far, on validation"),
        marks=[
            span(0.5, startup + 0.5, "drawn at random"),
            *(line(name, markers=False) for name in (*found, "one format")),
        ],
    )


def layer_map(values: Mapping[str, float], what: str) -> Chart:
    """Blocks × kinds of layer; the head's layers stand below, in a column of their own."""
    known = {name: i for i, name in enumerate(KINDS)}

    def turn(layer: str) -> tuple[float, int]:
        number = block(layer)
        return math.inf if number is None else number, known.get(kind(layer), len(known))

    rows = [
        {"block": place(x), "layer": "head" if block(x) is None else kind(x), what: values[x]}
        for x in sorted(values, key=turn)
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells(what)])


@page.chart
def sensitivity(r: Records) -> Chart:
    moves = {x: round(1e3 * float(by.mean())) for x, by in moved(assembled(r)).items()}
    return layer_map(moves, "thousandths of a nat")


@page.chart
def widths(r: Records) -> Chart:
    every = [of for models in chosen(searched(r, ASKED, "tpe")) for of in models]
    return layer_map({x: round(fmean(of[x][0] for of in every)) for x in every[0]}, "mean bits")


@page.table
def models(r: Records) -> Sequence[Row]:
    """Every model of this page that met the test split."""
    asked = [*alike(r, ASKED)[::-1], *(searched(r, ASKED, sampler) for sampler in SAMPLERS)]
    narrow = [one_format(r, NARROWER), *(searched(r, NARROWER, sampler) for sampler in SAMPLERS)]
    narrow += [assembled(r), blind(r)]
    return [
        {
            "on offer": OFFERS[space],
            "way to choose": a.label,
            "bits a weight": f"{bits(a):.1f}",
            "validation": per_cent(a.validation),
            "test": f"{a}",
            "each model, test": ", ".join(f"{one}".removesuffix(" %") for one in a.models),
        }
        for space, arms in ((ASKED, asked), (NARROWER, narrow))
        for a in arms
    ]
