"""Question 3.1: does a width for every layer, searched or by sensitivity, beat one for all?

Every Linear layer's weight, bias and input become fixed point. As asked for, a search gives a layer
8, 16 or 32 bits, of which 2, 4 or 8 lie after the point; bits are free. From 4 to 6 bits a model
may take five a weight, and a layer's width says where its point lies. Mixes are chosen on the
tuning seed, by validation loss, and reach `cases` as parameters.

Units: bits per weight; losses and how far they move in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from experiments.lab3_widths import design
from madl.compression.roles import ROLES, block, role
from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, cells, level, line, linear, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, exact
from madl.logbook.records import Params, Record, Records, Row
from madl.training import baseline

page = Experiment(needs=("baseline",))

STEM = "lab3_widths"
RIVAL, WIDE = str(design.RIVAL_BITS), str(design.WIDE_BITS)  # mixes of one width
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
WITHIN_BUDGET = ("searched", "ordered")  # mixes, of which the one of less loss is trained on
HEAD = "head"  # of the layers that stand in no block


def block_names(layers: Iterable[str]) -> list[str]:
    """The numbers of these layers' blocks as text, each once, and "head"."""
    numbers = dict.fromkeys(block(layer) for layer in layers)
    return [*(str(number) for number in numbers if number is not None), HEAD]


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    yield {"part": "sensitivity", **base, **design.ENDS}
    for offered, budget in (("asked", None), ("narrow", design.BUDGET_BITS)):
        formats = {**base, "formats": design.OFFERED[offered]}
        study = {"sampler": design.SAMPLER, "trials": choose(smoke=3, quick=design.TRIALS)}
        yield {"part": "search", **formats, "budget": budget, **study}
        yield {"part": "one format", **formats}
    for rate in choose(smoke=design.RATES_TRIED[:1], quick=design.RATES_TRIED):
        yield {"part": "trained", **base, **design.ENDS, **baseline.retraining_params(plan, rate)}


def mixes(tuned: Records) -> dict[str, Params]:
    """Mix → the parameters of its layers' formats, as the tuning seed chose them."""
    return {
        **{
            name: {"formats": record.case.params["formats"], "layers": record.values["layers"]}
            for name, record in choices(tuned).items()
        },
        **{
            f"asked {width}": {"formats": best_for_all(tuned, "asked", width)["format"]}
            for width in design.ASKED_BITS[:2]
        },
        **{name: {"formats": design.FORMATS[int(name)]} for name in (RIVAL, WIDE)},
    }


def best_for_all(tuned: Records, offered: str, width: int) -> Mapping[str, Any]:
    """The format of a width with the least validation loss on all layers, as it was recorded."""
    record = tuned.single(part="one format", formats=design.OFFERED[offered])
    fitting = [tried for tried in record.values["tried"] if tried["format"].startswith(f"{width} ")]
    return min(fitting, key=lambda tried: tried["validation_loss"])


def choices(tuned: Records) -> dict[str, Record]:
    """Mix → the tuning seed's record that chose a format for each of its layers."""
    return {
        "asked": tuned.single(part="search", formats=design.OFFERED["asked"]),
        "searched": tuned.single(part="search", formats=design.OFFERED["narrow"]),
        "ordered": tuned.single(part="sensitivity"),
    }


def preferred(tuned: Records) -> str:
    """The name of the mix within the budget that has the least validation loss."""
    records = choices(tuned)
    return min(WITHIN_BUDGET, key=lambda name: records[name].values["validation_loss"])


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuned = plan.records(f"{STEM}{TUNING}")
    by_name, best = mixes(tuned), preferred(tuned)
    rates = {name: baseline.retraining_params(plan, rate) for name, rate in design.RATES.items()}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for name, formats in by_name.items():
            yield {"part": "untrained", "mix": name, **base, **formats}
        for order in range(plan.profile.choose(smoke=2, quick=design.BLIND_ORDERS)):
            yield {"part": "untrained", "mix": "blind", "order": order, **base, **design.ENDS}
        for name in (best, RIVAL):
            yield {"part": "trained", "mix": name, **base, **by_name[name], **rates["mix"]}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for name in block_names(tuned.single(part="sensitivity").values["names"]):
        yield {"part": "sensitivity", "block": name, **base, "formats": design.OFFERED["ends"]}
    yield {"part": "trained", "mix": "asked", **base, **by_name["asked"], **rates["asked"]}


page.quick(lambda params: params["part"] == "sensitivity" and params["block"] == "0")


def untrained(r: Records, mix: str) -> Arm:
    """The models of a mix as quantized; "blind", in random orders, has several a seed."""
    if mix != "blind":
        return arm(r, LABELS[mix], part="untrained", mix=mix)
    records = r.all(part="untrained", mix=mix)
    by_seed = sorted(records, key=lambda record: int(record.case.params["seed"] or 0))
    return Arm(label=LABELS[mix], records=tuple(by_seed), units="orders")


def trained(r: Records, mix: str) -> Arm:
    """The models of a mix, trained on for a pass."""
    return arm(r, f"{LABELS[mix]}, trained on", part="trained", mix=mix)


def repeated_for_orders(a: Arm, orders: Arm) -> Arm:
    """The models of an arm, each repeated for every order of its seed in `orders`."""
    count = len(orders.records) // len(a.records)
    records = tuple(record for record in a.records for _ in range(count))
    return Arm(label=a.label, records=records, units=orders.units)


@page.claim(primary=True)
def a_mix_beats_one_width(r: Records) -> Contrast:
    """From 4 to 6 bits, the mix of widths that the tuning seed prefers, trained on for a pass, is
    more accurate than 5 bits for all layers, trained as long at the same rate."""
    return compare(trained(r, preferred(r.tuning)), trained(r, RIVAL))


@page.claim(primary=True)
def order_matters(r: Records) -> Contrast:
    """Narrowing from 6 to 4 bits the layers that alone move a loss least is more accurate than
    narrowing layers in blind orders."""
    orders = untrained(r, "blind")
    return compare(repeated_for_orders(untrained(r, "ordered"), orders), orders)


@page.claim
def search_as_asked_for(r: Records) -> Contrast:
    """As quantized: a searched format of 8, 16 or 32 bits for each layer over 16 bits for all."""
    return compare(untrained(r, "asked"), untrained(r, "asked 16"))


@page.claim
def sensitivity_over_one_width(r: Records) -> Contrast:
    """As quantized: 4 or 6 bits by sensitivity over 5 bits for all."""
    return compare(untrained(r, "ordered"), untrained(r, RIVAL))


@page.claim
def search_over_one_width(r: Records) -> Contrast:
    """As quantized: the mix that the search found from 4 to 6 bits over 5 bits for all."""
    return compare(untrained(r, "searched"), untrained(r, RIVAL))


@page.claim
def sensitivity_over_search(r: Records) -> Contrast:
    """As quantized: 4 or 6 bits by sensitivity over the mix that the search found."""
    return compare(untrained(r, "ordered"), untrained(r, "searched"))


def choice(name: str) -> Callable[[Records], Record]:
    """A function that reads the tuning record that chose a format for each layer of a mix."""
    return lambda r: choices(r.tuning)[name]


by_sensitivity = choice("ordered")


def agreement(r: Records) -> ExactValue:
    """Rank correlation between two seeds of how far each layer, alone narrow, moves a loss."""
    tuned, repeats = by_sensitivity(r), r.all(part="sensitivity")
    pairs = [
        (tuned.values["moved"][layer], moved)
        for record in repeats
        for layer, moved in record.values["moved"].items()
    ]
    return exact(round(searches.rank_correlation(*zip(*pairs)), 2), [tuned, *repeats])


def moved_nats(record: Record) -> Sequence[float]:
    """How far each single narrow layer moves a loss, in nats, ascending."""
    return sorted(round(nats, 3) for nats in record.values["moved"].values())


def over_budget(record: Record) -> int:
    """The share of a search's trials that are over the budget, in %."""
    tried = record.values["tried"]
    return round(100 * tried.count(None) / len(tried))


def wide_layers(part: str) -> NumberFn:
    """A function that counts wide layers by sensitivity in a part: "early", "late" or "head"."""

    def count(record: Record) -> int:
        names, digits = record.values["names"], record.values["layers"]
        wide = [block(name) for name, digit in zip(names, digits) if digit == "0"]
        half = (len(block_names(names)) - 1) // 2
        parts = ["head" if n is None else "early" if n < half else "late" for n in wide]
        return parts.count(part)

    return computed(by_sensitivity, count)


page.numbers(
    fp32=baseline.fp32,
    asked=partial(untrained, mix="asked"),
    asked16=partial(untrained, mix="asked 16"),
    asked8=partial(untrained, mix="asked 8"),
    asked_trained=partial(trained, mix="asked"),
    searched_over_one=search_over_one_width,
    most_to_win=lambda r: compare(untrained(r, WIDE), untrained(r, RIVAL)),
    trials=computed(choice("asked"), lambda record: len(record.values["tried"])),
    thrown_away=computed(choice("searched"), over_budget, "%"),
    narrow_layers=computed(by_sensitivity, lambda record: record.values["layers"].count("1")),
    layers=computed(by_sensitivity, lambda record: len(record.values["layers"])),
    wide_early=wide_layers("early"),
    wide_late=wide_layers("late"),
    wide_head=wide_layers("head"),
    farthest=computed(by_sensitivity, lambda record: moved_nats(record)[-1], "nats"),
    nearest=computed(by_sensitivity, lambda record: moved_nats(record)[0], "nats"),
    agreement=agreement,
)


@page.chart
def curves(r: Records) -> Chart:
    """Least validation loss up to each trial of both searches; None before a mix is in budget."""
    records = choices(r.tuning)
    so_far = {
        LABELS[name]: searches.least_so_far(records[name].values["tried"])
        for name in ("asked", "searched")
    }
    levels = {
        LABELS["asked 16"]: best_for_all(r.tuning, "asked", 16),
        LABELS[RIVAL]: best_for_all(r.tuning, "narrow", design.RIVAL_BITS),
        LABELS["ordered"]: records["ordered"].values,
    }
    startup = records["asked"].values["settings"]["startup_trials"]
    return Chart(
        [
            {"trial": i + 1, **dict(zip(so_far, values, strict=True))}
            for i, values in enumerate(zip(*so_far.values(), strict=True))
        ],
        x=linear("trial", "trials"),
        y=linear(label="least validation loss so far", unit="nats"),
        marks=[
            span(0.5, startup + 0.5, "drawn at random"),
            *(level(values["validation_loss"], name) for name, values in levels.items()),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def layer_map(values: Mapping[str, Any], column: str) -> Chart:
    """A chart with a value for each layer: blocks × roles, with the head's layers below."""

    def position(layer: str) -> tuple[float, int]:
        number, name = block(layer), role(layer)
        row = math.inf if number is None else number
        return row, ROLES.index(name) if name in ROLES else len(ROLES)

    rows = [
        {
            "block": HEAD if (number := block(layer)) is None else f"block {number}",
            "layer": role(layer),
            column: values[layer],
        }
        for layer in sorted(values, key=position)
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells(column)])


@page.chart
def sensitivity(r: Records) -> Chart:
    """How far each layer moves a validation sentence's loss if it alone is narrow."""
    moved = by_sensitivity(r).values["moved"]
    values = {layer: round(1e3 * nats) for layer, nats in moved.items()}
    return layer_map(values, "thousandths of a nat")


@page.chart
def asked_widths(r: Records) -> Chart:
    """The bits that the search over 8, 16 and 32 bits gives each layer."""
    record = choice("asked")(r)
    widths = [int(text.split()[0]) for text in str(record.case.params["formats"]).split(", ")]
    digits = zip(record.values["names"], record.values["layers"], strict=True)
    return layer_map({layer: widths[int(digit)] for layer, digit in digits}, "bits")


@page.table
def models(r: Records) -> Sequence[Row]:
    names_trained = r.where(part="trained").param_values("mix")
    return [
        {
            "a layer has": quantized.label,
            "bits a weight": f"{quantized.mean('bits'):.1f}",
            "as quantized": quantized,
            "trained on": trained(r, name) if name in names_trained else "",
            "models trained": len(trained(r, name).records) if name in names_trained else "",
        }
        for name, quantized in ((name, untrained(r, name)) for name in LABELS)
    ]


page.power(design.TRUTHS, units=len(CONFIRMING_SEEDS))


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed, by rate."""
    trainings: dict[str, Params] = {"by sensitivity": {"part": "trained"}}
    chosen = {"by sensitivity": design.RATES["mix"]}
    return searches.rate_rows(r.tuning, trainings, "tune_learning_rate", chosen=chosen)
