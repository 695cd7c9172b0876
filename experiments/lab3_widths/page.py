"""Question 3.1: does a width for every layer, searched or by sensitivity, beat one for all?

Every Linear layer's weight, bias and input become fixed point. As asked for, a search gives a layer
8, 16 or 32 bits, of which 2, 4 or 8 lie after the point; bits are free. From 4 to 6 bits a model
may take five a weight, and a layer's width says where its point lies. Mixes are chosen on the
tuning seed, by validation loss, and reach `cases` as parameters; the rates stand here as constants.

Units: bits per weight; losses and how far they move in nats.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from madl.compression.roles import ROLES, block, role
from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, cells, level, line, linear, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import (
    CONFIRMING_SEEDS,
    TUNING,
    TUNING_SEED,
    Context,
    Experiment,
    Plan,
)
from madl.logbook.numbers import Counted, counted
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.training import baseline

page = Experiment(title="Mixed precision: a width for every layer", needs=("baseline",))

STEM = "lab3_widths"
ENDS = (6, 4)  # bits: of layers that stay wide, and that become narrow
ONE, MOST = 5, 6  # bits for all layers: the rival, and the most that a layer of a mix has
POINTS = {4: (5, 2), 5: (6, 3), 6: (6, 2)}  # bits after the point of weights, inputs: 1.1's choice
# A format is written as its width, and the bits after the point of weights and of inputs.
NARROW = {width: f"{width} {weights} {inputs}" for width, (weights, inputs) in POINTS.items()}
OFFERED = {  # to a layer
    "asked": ", ".join(f"{width} {frac} {frac}" for width in (8, 16, 32) for frac in (2, 4, 8)),
    "narrow": ", ".join(NARROW.values()),
    "ends": ", ".join(NARROW[width] for width in ENDS),
}
BUDGET = 5.0  # bits a weight
RIVAL_BITS = {"asked 8": 8, "asked 16": 16}  # for all layers, of what is offered as asked for
BLIND = 4  # orders a model
LABELS = {
    "asked": "8, 16 or 32 bits, searched",
    "asked 16": "16 bits for all",
    "asked 8": "8 bits for all",
    "searched": "4, 5 or 6 bits, searched",
    "ordered": "4 or 6 bits, by sensitivity",
    "blind": "4 or 6 bits, in random orders",
    "5": "5 bits for all",
    "6": "6 bits for all",
}
MIXES = ("searched", "ordered")  # that fit the budget; the one of less loss is trained on
# Rates of training on: of a mix as the tuning seed prefers, which is that of five bits for all in
# 1.1. The mix as asked for has the rate of six bits there.
TRIED = (3e-5, 1e-4, 3e-4)
RATES = {"mix": 1e-4, "asked": 1e-4}
HEAD = "head"  # of the layers that stand in no block


def blocks(layers: Iterable[str]) -> list[str]:
    """The blocks that these layers stand in, each once, and what stands in none."""
    numbers = (block(layer) for layer in layers)
    found = dict.fromkeys(HEAD if number is None else str(number) for number in numbers)
    return [*(number for number in found if number != HEAD), HEAD]


# ---- cases --------------------------------------------------------------------------------------


def trained_at(plan: Plan, rate: float) -> Params:
    return {
        "part": "trained",
        "tune_examples": plan.profile.choose(smoke=32, quick=None),
        "tune_learning_rate": rate,
        "tune_batch_size": 16,
    }


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    between: Params = {"formats": OFFERED["ends"], "budget": BUDGET}
    yield {"part": "sensitivity", **base, **between}
    for offered, budget in (("asked", None), ("narrow", BUDGET)):
        free = {**base, "formats": OFFERED[offered]}
        trials = choose(smoke=3, quick=60)
        yield {"part": "search", **free, "budget": budget, "sampler": "tpe", "trials": trials}
        yield {"part": "one format", **free}
    for rate in choose(smoke=TRIED[:1], quick=TRIED):
        yield {**base, **between, **trained_at(plan, rate)}


def mixes(tuned: Records) -> dict[str, Params]:
    """What gives every layer its format, as the tuning seed chose, by name."""
    found: dict[str, Params] = {
        name: {"formats": one.case.params["formats"], "layers": one.values["layers"]}
        for name, one in choices(tuned).items()
    }
    for name, width in RIVAL_BITS.items():
        found[name] = {"formats": for_all(tuned, "asked", width)["format"]}
    for width in (ONE, MOST):
        found[str(width)] = {"formats": NARROW[width]}
    return found


def for_all(tuned: Records, offered: str, width: int) -> Mapping[str, Any]:
    """Of the formats of a width, each for all layers, the one of the least validation loss."""
    tried = tuned.one(part="one format", formats=OFFERED[offered]).values["tried"]
    fitting = [one for one in tried if one["format"].startswith(f"{width} ")]
    return min(fitting, key=lambda one: one["validation_loss"])


def choices(tuned: Records) -> dict[str, Record]:
    """What chose a format for each layer."""
    return {
        "asked": tuned.one(part="search", formats=OFFERED["asked"]),
        "searched": tuned.one(part="search", formats=OFFERED["narrow"]),
        "ordered": tuned.one(part="sensitivity"),
    }


def preferred(tuned: Records) -> str:
    """The mix within the budget that has the least validation loss."""
    found = choices(tuned)
    return min(MIXES, key=lambda name: found[name].values["validation_loss"])


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuned = plan.records(f"{STEM}{TUNING}")
    found, mix, first = mixes(tuned), preferred(tuned), plan.seeds[0]
    between: Params = {"formats": OFFERED["ends"], "budget": BUDGET}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for name, one in found.items():
            yield {"part": "untrained", "mix": name, **base, **one}
        for order in range(plan.profile.choose(smoke=2, quick=BLIND)):
            yield {"part": "untrained", "mix": "blind", "order": order, **base, **between}
        for name in (mix, str(ONE)):
            yield {"mix": name, **base, **found[name], **trained_at(plan, RATES["mix"])}
    base = baseline.drawn_params(plan, first)
    for number in blocks(tuned.one(part="sensitivity").values["names"]):
        yield {"part": "sensitivity", "block": number, **base, "formats": OFFERED["ends"]}
    yield {"mix": "asked", **base, **found["asked"], **trained_at(plan, RATES["asked"])}


@page.quick
def quick(params: Params) -> bool:
    return params["part"] == "sensitivity" and params["block"] == "0"


@page.run
def run(params: Params, ctx: Context) -> Values:
    from experiments.lab3_widths import study

    return study.run(params, ctx)


# ---- arms and claims ----------------------------------------------------------------------------


def untrained(r: Records, mix: str) -> Arm:
    """As quantized; in blind orders, several models a seed."""
    if mix != "blind":
        return arm(r, LABELS[mix], part="untrained", mix=mix)
    found = r.all(part="untrained", mix=mix)
    every = sorted(found, key=lambda record: int(record.case.params["seed"] or 0))
    return Arm(label=LABELS[mix], records=tuple(every), units="orders")


def trained(r: Records, mix: str) -> Arm:
    """Trained on for a pass."""
    return arm(r, f"{LABELS[mix]}, trained on", part="trained", mix=mix)


def mixed(r: Records) -> Arm:
    """The mix that the tuning seed prefers, trained on."""
    return trained(r, preferred(r.tuning))


def beside(r: Records, a: Arm, orders: Arm) -> Arm:
    """The same models, each once for every order that it is held against."""
    count = len(orders.records) // len(a.records)
    again = tuple(record for record in a.records for _ in range(count))
    return Arm(label=a.label, records=again, units=orders.units)


@page.claim(primary=True)
def a_mix_beats_one_width(r: Records) -> Contrast:
    """From 4 to 6 bits, the mix of widths that the tuning seed prefers, trained on for a pass, is
    more accurate than 5 bits for all layers, trained as long at the same rate."""
    return compare(mixed(r), trained(r, str(ONE)))


@page.claim(primary=True)
def order_matters(r: Records) -> Contrast:
    """Narrowing from 6 to 4 bits the layers that alone move a loss least is more accurate than
    narrowing layers in blind orders."""
    orders = untrained(r, "blind")
    return compare(beside(r, untrained(r, "ordered"), orders), orders)


@page.claim
def search_as_asked_for(r: Records) -> Contrast:
    """As quantized: a searched format of 8, 16 or 32 bits for each layer over 16 bits for all."""
    return compare(untrained(r, "asked"), untrained(r, "asked 16"))


@page.claim
def sensitivity_over_one_width(r: Records) -> Contrast:
    """As quantized: 4 or 6 bits by sensitivity over 5 bits for all."""
    return compare(untrained(r, "ordered"), untrained(r, str(ONE)))


@page.claim
def search_over_one_width(r: Records) -> Contrast:
    """As quantized: the mix that the search found from 4 to 6 bits over 5 bits for all."""
    return compare(untrained(r, "searched"), untrained(r, str(ONE)))


@page.claim
def sensitivity_over_search(r: Records) -> Contrast:
    """As quantized: 4 or 6 bits by sensitivity over the mix that the search found."""
    return compare(untrained(r, "ordered"), untrained(r, "searched"))


# ---- numbers ------------------------------------------------------------------------------------


def agreement(r: Records) -> Counted:
    """Rank correlation between how far layers move losses on two seeds."""
    tuned, again = choices(r.tuning)["ordered"], r.all(part="sensitivity")
    found = {layer: by for one in again for layer, by in one.values["moved"].items()}
    pairs = [(tuned.values["moved"][layer], by) for layer, by in found.items()]
    return counted(round(searches.rank_correlation(*zip(*pairs)), 2), of=[tuned, *again])


def moved(r: Records, farthest: bool) -> Counted:
    """How far a narrow layer moves a loss, at most or at least."""
    one = choices(r.tuning)["ordered"]
    ends = sorted(one.values["moved"].values())
    return counted(round(ends[-1 if farthest else 0], 3), "nats", of=[one])


def number_of(r: Records, choice: str, what: str, /, of: str | None = None) -> Counted:
    """How many there are in what a choice holds: all, or those that are `of`."""
    one = choices(r.tuning)[choice]
    every = one.values[what]
    return counted(len(every) if of is None else every.count(of), of=[one])


def thrown_away(r: Records) -> Counted:
    """Of the trials from 4 to 6 bits, those over the budget."""
    one = choices(r.tuning)["searched"]
    tried = one.values["tried"]
    return counted(round(100 * tried.count(None) / len(tried)), "%", of=[one])


def wide_layers(r: Records, part: str) -> Counted:
    """Layers of early blocks, of late ones, or of the head, that keep more bits by sensitivity."""
    one = choices(r.tuning)["ordered"]
    names = one.values["names"]
    wide = [block(x) for x, of in zip(names, one.values["layers"]) if of == "0"]
    half = sum(number != HEAD for number in blocks(names)) // 2
    parts = ["head" if n is None else "early" if n < half else "late" for n in wide]
    return counted(parts.count(part), of=[one])


page.numbers(
    fp32=baseline.fp32,
    asked=partial(untrained, mix="asked"),
    asked16=partial(untrained, mix="asked 16"),
    asked8=partial(untrained, mix="asked 8"),
    asked_trained=partial(trained, mix="asked"),
    searched_over_one=search_over_one_width,
    most_to_win=lambda r: compare(untrained(r, str(MOST)), untrained(r, str(ONE))),
    trials=lambda r: number_of(r, "asked", "tried"),
    thrown_away=thrown_away,
    narrow_layers=lambda r: number_of(r, "ordered", "layers", of="1"),
    layers=lambda r: number_of(r, "ordered", "layers"),
    wide_early=partial(wide_layers, part="early"),
    wide_late=partial(wide_layers, part="late"),
    wide_head=partial(wide_layers, part="head"),
    farthest=partial(moved, farthest=True),
    nearest=partial(moved, farthest=False),
    agreement=agreement,
)


# ---- charts and tables --------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    """Validation loss of the best trial so far, on the tuning seed; None before one fits."""
    found = choices(r.tuning)
    so_far = {
        LABELS[name]: searches.least_so_far(found[name].values["tried"])
        for name in ("asked", MIXES[0])
    }
    levels = {
        LABELS["asked 16"]: for_all(r.tuning, "asked", RIVAL_BITS["asked 16"]),
        LABELS[str(ONE)]: for_all(r.tuning, "narrow", ONE),
        LABELS["ordered"]: found["ordered"].values,
    }
    startup = found["asked"].values["settings"]["startup_trials"]
    return Chart(
        [
            {"trial": i + 1, **dict(zip(so_far, values, strict=True))}
            for i, values in enumerate(zip(*so_far.values(), strict=True))
        ],
        x=linear("trial", "trials"),
        y=linear(label="least validation loss so far", unit="nats"),
        marks=[
            span(0.5, startup + 0.5, "drawn at random"),
            *(level(one["validation_loss"], name) for name, one in levels.items()),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def layer_map(values: Mapping[str, Any], what: str) -> Chart:
    """Blocks × roles of layers; the head's layers stand below, each in a column of its own."""

    def turn(layer: str) -> tuple[float, int]:
        number, name = block(layer), role(layer)
        return (
            math.inf if number is None else number,
            ROLES.index(name) if name in ROLES else len(ROLES),
        )

    rows = [
        {
            "block": HEAD if (number := block(layer)) is None else f"block {number}",
            "layer": role(layer),
            what: values[layer],
        }
        for layer in sorted(values, key=turn)
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells(what)])


@page.chart
def sensitivity(r: Records) -> Chart:
    by = choices(r.tuning)["ordered"].values["moved"]
    return layer_map({x: round(1e3 * far) for x, far in by.items()}, "thousandths of a nat")


@page.chart
def asked_widths(r: Records) -> Chart:
    one = choices(r.tuning)["asked"]
    offered = [int(text.split()[0]) for text in str(one.case.params["formats"]).split(", ")]
    given = zip(one.values["names"], one.values["layers"], strict=True)
    return layer_map({layer: offered[int(digit)] for layer, digit in given}, "bits")


@page.table
def models(r: Records) -> Sequence[Row]:
    on = r.where(part="trained").each("mix")
    every = {name: untrained(r, name) for name in LABELS}
    return [
        {
            "a layer has": a.label,
            "bits a weight": f"{a.mean('bits'):.1f}",
            "as quantized": a,
            "trained on": trained(r, name) if name in on else "",
            "models trained": len(trained(r, name).records) if name in on else "",
        }
        for name, a in every.items()
    ]


# How an effect differs from model to model, and from sentence to sentence in the mean over them: of
# 1.1's models trained on at four and at eight bits, and of its six bits beside five as quantized.
SPREADS = {
    "a mix gains 2 points": (0.020, 0.011, 0.14),
    "an order gains 2 points": (0.020, 0.007, 0.17),
}

page.power(SPREADS, units=len(CONFIRMING_SEEDS))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Of the tuning seed."""
    return searches.rate_rows(
        r.tuning, {"by sensitivity": {"part": "trained"}}, "tune_learning_rate"
    )
