"""Question 3.1: does a width for every layer, searched or by sensitivity, beat one for all?

Every Linear layer's weight, bias and input become fixed point. As asked for, a search gives a layer
8, 16 or 32 bits, of which 2, 4 or 8 lie after the point; bits are free, and a trial trains. From 4
to 6 bits a model may take five a weight, and a layer's width says where its point lies. Mixes are
chosen on the tuning seed and reach `cases` as parameters.

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
from madl.logbook.charts import Chart, category, cells, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, says
from madl.logbook.experiment import TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, exact
from madl.logbook.records import Params, Record, Records, Row
from madl.training import baseline, trial

page = Experiment(title="Mixed precision: a width for every layer", needs=("baseline",))

STEM = "lab3_widths"
RIVAL, WIDE = str(design.RIVAL_BITS), str(design.WIDE_BITS)  # mixes of one width
UNIFORM = "one format for all"  # that a search may begin with, as its study reads it
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
STUDIES = {  # on the tuning seed: formats offered, what a trial is worth, what it begins with
    "asked": ("asked", "validation_accuracy", None),
    "asked, begun with one format": ("asked", "validation_accuracy", UNIFORM),
    "asked, as quantized": ("asked", "validation_accuracy", None),
    "searched": ("narrow", "validation_loss", None),
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
    size = {"sampler": design.SAMPLER, "trials": choose(smoke=3, quick=design.TRIALS)}
    for name, (offered, by, begin) in STUDIES.items():
        budget = design.BUDGET_BITS if offered == "narrow" else None
        formats = {"formats": design.OFFERED[offered], "budget": budget}
        trains = offered == "asked" and name != "asked, as quantized"
        rate, sentences = design.RATES["asked"], design.TRIAL_SENTENCES
        trained_first = trial.training_params(plan, rate, sentences) if trains else {}
        study = {"part": "search", "study": name, "by": by, "begin": begin}
        yield {**study, **base, **formats, **size, **trained_first}
    for offered in ("asked", "narrow"):
        yield {"part": "one format", **base, "formats": design.OFFERED[offered]}
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
        **{name: tuned.single(part="search", study=name) for name in ("asked", "searched")},
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
        for name in ("asked", "asked 16"):
            yield {"part": "trained", "mix": name, **base, **by_name[name], **rates["asked"]}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for name in block_names(tuned.single(part="sensitivity").values["names"]):
        yield {"part": "sensitivity", "block": name, **base, "formats": design.OFFERED["ends"]}


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
    """A width for each layer beats one width: a mix of 4 to 6 bits, the tuning seed's choice, is
    more accurate than 5 bits for all layers, both trained on for a pass at the same rate."""
    return compare(trained(r, preferred(r.tuning)), trained(r, RIVAL))


@page.claim(primary=True)
def order_matters(r: Records) -> Contrast:
    """Sensitivity orders layers better than chance: narrowing from 6 to 4 bits those that alone
    move a loss least is more accurate than narrowing layers in blind orders."""
    orders = untrained(r, "blind")
    return compare(repeated_for_orders(untrained(r, "ordered"), orders), orders)


@page.claim
def search_as_asked_for(r: Records) -> Contrast:
    """As asked for: a searched format of 8, 16 or 32 bits for each layer over 16 bits for all, both
    trained on for a pass."""
    return compare(trained(r, "asked"), trained(r, "asked 16"))


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


def by_sensitivity(r: Records) -> Record:
    """The tuning record of how far each layer, alone narrow, moves a loss."""
    return r.tuning.single(part="sensitivity")


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
    asked16_trained=partial(trained, mix="asked 16"),
    asked_gain=search_as_asked_for,
    asked_bits=computed(choice("asked"), lambda record: round(record.values["bits"], 1)),
    order_gain=order_matters,
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
    """The highest validation accuracy up to each trial of the searches as asked for."""
    titles = {
        "asked": "trials trained on",
        "asked, begun with one format": "trained on, begun with one format for all",
        "asked, as quantized": "trials as quantized",
    }
    searched = {name: r.tuning.single(part="search", study=name).values for name in titles}
    so_far = {titles[name]: searches.highest_so_far(v["tried"]) for name, v in searched.items()}
    sixteen = best_for_all(r.tuning, "asked", 16)["validation_accuracy"]
    return Chart(
        [
            {"trial": i + 1, **dict(zip(so_far, values, strict=True))}
            for i, values in enumerate(zip(*so_far.values(), strict=True))
        ],
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[
            span(0.5, searched["asked"]["num_at_random"] + 0.5, "drawn at random"),
            level(sixteen, LABELS["asked 16"]),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def position(layer: str) -> tuple[float, int]:
    """Where a layer stands on a map: its block, the head last, and its role's place."""
    number, name = block(layer), role(layer)
    row = math.inf if number is None else number
    return row, ROLES.index(name) if name in ROLES else len(ROLES)


def block_name(layer: str) -> str:
    return HEAD if (number := block(layer)) is None else f"block {number}"


# ---- the budget game ----------------------------------------------------------------------------

LABEL, CELL, ROW, TOP = 58, 50, 30, 18  # of the map: left of a row, a cell, a row, above the first


def budget_panels(rows: Sequence[Row]) -> list[Panel]:
    return [Panel(title="", svg=f"{budget_svg(rows)}\n{says(says_budget(rows))}", folded=False)]


def says_budget(rows: Sequence[Row]) -> str:
    """The mix in words, as the page's script says it, too."""
    narrow = [row for row in rows if row["narrow"]]
    few, many = (sum(row["weights"] for row in some) for some in (narrow, rows))
    bits = design.WIDE_BITS - (design.WIDE_BITS - design.NARROW_BITS) * few / many
    within = "within" if bits <= design.BUDGET_BITS else "over"
    moved = sum(row["moved"] for row in narrow)
    return (
        f"{len(narrow)} of {len(rows)} layers have four bits: {bits:.2f} bits a weight, {within} "
        f"the budget of five. One by one they move a loss by {moved:.0f} thousandths of a nat, "
        "added up."
    )


def budget_svg(rows: Sequence[Row]) -> str:
    """The map: a cell a layer, the darker the further it moves a loss, with its bits in it."""
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    columns = list(dict.fromkeys(row["layer"] for row in rows if row["block"] != HEAD))
    most = max(row["moved"] for row in rows)
    parts = "".join(
        f'<text class="note" x="{LABEL + i * CELL + CELL / 2:g}" y="12" text-anchor="middle">'
        f"{name}</text>"
        for i, name in enumerate(columns)
    )
    for down, name in enumerate(blocks):
        y = TOP + down * ROW
        parts += f'<text class="note" x="0" y="{y + 19}">{name}</text>'
        for along, (i, row) in enumerate((i, r) for i, r in enumerate(rows) if r["block"] == name):
            x = LABEL + along * CELL
            bits = design.NARROW_BITS if row["narrow"] else design.WIDE_BITS
            title = f"{name} {row['layer']}: {row['moved']:.1f} thousandths of a nat"
            parts += (
                f'<g class="cell{" narrow" if row["narrow"] else ""}" data-layer="{i}">'
                f"<title>{title}</title>"
                f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{ROW - 4}" '
                f'style="fill-opacity: {0.1 + 0.9 * row["moved"] / most:.2f}"/>'
                f'<text x="{x + CELL / 2:g}" y="{y + 19}" text-anchor="middle">{bits}</text></g>'
            )
    of_head, y = [row["layer"] for row in rows if row["block"] == HEAD], TOP + ROW * len(blocks)
    x = LABEL + CELL * len(of_head) + 8
    parts += f'<text class="note" x="{x}" y="{y - 11}">{", ".join(of_head)}</text>'
    width, height = LABEL + CELL * max(len(columns), 2), y
    bits = f'data-wide="{design.WIDE_BITS}" data-narrow="{design.NARROW_BITS}"'
    return (
        f'<svg class="graph" viewBox="0 0 {width} {height}" {bits} '
        f'data-budget="{design.BUDGET_BITS:g}" aria-hidden="true">{parts}</svg>'
    )


@page.drawing(panels=budget_panels, alt=says_budget, script="budget")
def budget(r: Records) -> Sequence[Row]:
    """A row a layer: how far it alone, narrow, moves a loss, its weights, and whether it is narrow
    in the mix by sensitivity."""
    values = by_sensitivity(r).values
    sizes = dict(zip(values["names"], values["sizes"], strict=True))
    narrow = {n for n, digit in zip(values["names"], values["layers"], strict=True) if digit == "1"}
    return [
        {
            **{"block": block_name(layer), "layer": role(layer)},
            "moved": round(1e3 * values["moved"][layer], 2),
            **{"weights": sizes[layer], "narrow": int(layer in narrow)},
        }
        for layer in sorted(values["names"], key=position)
    ]


@page.chart
def asked_widths(r: Records) -> Chart:
    """The bits that the search over 8, 16 and 32 bits gives each layer."""
    record = choice("asked")(r)
    widths = [int(text.split()[0]) for text in str(record.case.params["formats"]).split(", ")]
    digits = dict(zip(record.values["names"], record.values["layers"], strict=True))
    rows = [
        {"block": block_name(layer), "layer": role(layer), "bits": widths[int(digits[layer])]}
        for layer in sorted(digits, key=position)
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells("bits")])


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


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed, by rate."""
    trainings: dict[str, Params] = {"by sensitivity": {"part": "trained"}}
    chosen = {"by sensitivity": design.RATES["mix"]}
    return searches.rate_rows(r.tuning, trainings, "tune_learning_rate", chosen=chosen)
