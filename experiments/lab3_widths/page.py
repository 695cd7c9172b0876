"""Question 3.1: does a width for every layer beat one for all, as quantized and after training?

Every Linear layer's weight, bias and input become fixed point. As asked for, a search leaves a
layer in full precision or gives it 8, 16 or 32 bits, of which 2, 4 or 8 lie after the point; bits
are free, and a trial trains. From 4 to 8 bits a model may take five a weight, and a layer's width
says where its point lies. Mixes are chosen on the tuning seed and reach `cases` as parameters.
Models of one width are those of 1.1.

Units: bits per weight; losses and how far they move in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from experiments.lab3_widths import design
from madl.compression.roles import ROLES, block, role
from madl.errors import MadlError
from madl.logbook import searches
from madl.logbook.arms import Arm, arm
from madl.logbook.charts import Chart, category, cells, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, says
from madl.logbook.experiment import TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, NumberFn, computed, exact, percentage
from madl.logbook.records import Params, Record, Records, Row, Values
from madl.training import baseline, trial

WIDTH_STUDY = "lab1_quantization"  # which has models of one width, trained by the same recipe

page = Experiment(title="Mixed precision: a width for every layer", needs=(WIDTH_STUDY,))

STEM = "lab3_widths"
RIVAL = str(design.RIVAL_BITS)  # a mix of one width
ONE_WIDTH = tuple(str(width) for width in design.FORMATS if width >= design.RIVAL_BITS)
WIDEST = ONE_WIDTH[-1]
# With which mixes a search may begin, and an order of layers, as the study reads them.
UNIFORM, KNOWN = "one format for all", "one format for all, mixes by sensitivity"
LAST_FIRST = "last first"
LABELS = {
    "asked": "full precision, 8, 16 or 32 bits, searched",
    "begun": "the same, begun with one format for all",
    "asked 16": "16 bits for all",
    "asked 8": "8 bits for all, as asked",
    "allocated": "4 to 8 bits, allocated",
    "searched": "4 to 8 bits, searched",
    "ordered": "4 or 6 bits by sensitivity",
    LAST_FIRST: "4 or 6 bits by depth",
    "blind": "4 or 6 bits at random",
    **{name: f"{name} bits for all" for name in ONE_WIDTH},
}
AS_ASKED = ("asked", "begun", "asked 16", "asked 8")
STUDIES = {  # on the tuning seed: formats offered, what a trial is worth, what it begins with
    "asked": ("asked", "validation_accuracy", None),
    "begun": ("asked", "validation_accuracy", UNIFORM),
    "asked, as quantized": ("asked", "validation_accuracy", None),
    "searched": ("narrow", "validation_loss", KNOWN),
}
SEARCHED = ("asked", "begun", "searched")  # of which the mix is tested
HEAD = "head"  # of the layers that stand in no block


def block_names(layers: Iterable[str]) -> list[str]:
    """The numbers of these layers' blocks as text, each once, and "head"."""
    numbers = dict.fromkeys(block(layer) for layer in layers)
    return [*(str(number) for number in numbers if number is not None), HEAD]


def study_params(plan: Plan, name: str) -> Params:
    """The parameters of a search, beside those of the model."""
    choose, (offered, by, begin) = plan.profile.choose, STUDIES[name]
    params: dict[str, Any] = {"study": name, "by": by, "begin": begin, "sampler": design.SAMPLER}
    if offered == "narrow":
        trials = choose(smoke=6, quick=design.BUDGETED_TRIALS)
        return {**params, **design.WITHIN, "trials": trials}
    params |= {"formats": design.OFFERED[offered], "budget": None}
    params |= {"trials": choose(smoke=6, quick=design.TRIALS)}
    rate, sentences = design.RATES["asked"], design.TRIAL_SENTENCES
    trains = name != "asked, as quantized"
    return {**params, **(trial.training_params(plan, rate, sentences) if trains else {})}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    choose, base = plan.profile.choose, baseline.drawn_params(plan, TUNING_SEED)
    yield {"part": "sensitivity", **base, **design.WITHIN}
    for name in STUDIES:
        yield {"part": "search", **base, **study_params(plan, name)}
    for formats in design.OFFERED.values():
        yield {"part": "one format", **base, "formats": formats}
    for name in design.CANDIDATES:
        mix = study_params(plan, name) if name in STUDIES else design.WITHIN
        for rate in choose(smoke=(design.RATES["mix"],), quick=design.RATES_TRIED):
            recipe = baseline.retraining_params(plan, rate)
            yield {"part": "trained", "mix": name, **base, **mix, **recipe}


# ---- what the tuning seed chose -----------------------------------------------------------------


def by_sensitivity(r: Records) -> Record:
    """The tuning record of how far each layer at each width moves the model, and of mixes by it."""
    return r.tuning.single(part="sensitivity")


def choice(tuned: Records, name: str) -> tuple[Record, Values]:
    """(record, values) of the tuning seed's choice of a format for each layer of a mix."""
    if name in SEARCHED:
        record = tuned.single(part="search", study=name)
        return record, record.values
    record = tuned.single(part="sensitivity")
    return record, record.values["mixes"][name]


def mixes(tuned: Records) -> dict[str, Params]:
    """Mix → the parameters of its layers' formats, as the tuning seed chose them."""
    chosen = {name: choice(tuned, name) for name in dict.fromkeys((*SEARCHED, *design.CANDIDATES))}
    return {
        **{
            name: {"formats": record.case.params["formats"], "layers": values["layers"]}
            for name, (record, values) in chosen.items()
        },
        **{
            f"asked {width}": {"formats": best_for_all(tuned, width)["format"]}
            for width in design.ASKED_BITS[:2]
        },
        RIVAL: {"formats": design.FORMATS[design.RIVAL_BITS]},
    }


def best_for_all(tuned: Records, width: int) -> Mapping[str, Any]:
    """The format of a width, of those asked for, that has the highest validation accuracy on all
    layers, as quantized; of equal ones that of the least loss."""
    record = tuned.single(part="one format", formats=design.OFFERED["asked"])
    fitting = [tried for tried in record.values["tried"] if tried["format"].startswith(f"{width} ")]
    return max(fitting, key=lambda tried: (tried["validation_accuracy"], -tried["validation_loss"]))


def candidates(tuned: Records) -> list[str]:
    """The mixes within the budget of which the best is held against one width for all.

    Raises:
        MadlError: all of them have one width for all layers.
    """
    names = [name for name in design.CANDIDATES if len({*choice(tuned, name)[1]["layers"]}) > 1]
    if not names:
        raise MadlError(f"{', '.join(design.CANDIDATES)} all have one width, so none is a mix")
    return names


def best_untrained(tuned: Records) -> str:
    """The candidate of least validation loss as quantized; of equal ones the first."""
    return min(candidates(tuned), key=lambda name: choice(tuned, name)[1]["validation_loss"])


def best_trained(tuned: Records) -> str:
    """The candidate of least validation loss after training at the rate that all have."""

    def loss(name: str) -> float:
        where = {"mix": name, "tune_learning_rate": design.RATES["mix"]}
        return tuned.single(part="trained", **where).values["validation_loss"]

    return min(candidates(tuned), key=loss)


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuned = plan.records(f"{STEM}{TUNING}")
    by_name, best = mixes(tuned), best_trained(tuned)
    rates = {name: baseline.retraining_params(plan, rate) for name, rate in design.RATES.items()}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for name, formats in by_name.items():
            yield {"part": "untrained", "mix": name, **base, **formats}
        orders = range(plan.profile.choose(smoke=2, quick=design.BLIND_ORDERS))
        for order in (LAST_FIRST, *orders):
            mix = "blind" if isinstance(order, int) else order
            yield {"part": "untrained", "mix": mix, "order": order, **base, **design.WITHIN}
        yield {"part": "trained", "mix": best, **base, **by_name[best], **rates["mix"]}
        for name in ("asked", "begun", "asked 16"):
            yield {"part": "trained", "mix": name, **base, **by_name[name], **rates["asked"]}
    base = baseline.drawn_params(plan, plan.seeds[0])
    for name in block_names(tuned.single(part="sensitivity").values["names"]):
        yield {"part": "sensitivity", "block": name, **base, "formats": design.OFFERED["narrow"]}


page.quick(lambda params: params["part"] == "sensitivity" and params["block"] == "0")


# ---- models -------------------------------------------------------------------------------------


def of_width_study(r: Records, width: int, label: str, method: str, **where: float) -> Arm:
    """The models of 1.1 with one width for all layers, as quantized or trained on."""
    weights, inputs = design.FRACTIONS[width]
    points = {"operands": "both", "width": width, "frac_width": weights, "input_frac_width": inputs}
    study = r.of_experiment(WIDTH_STUDY).without("bias")
    return arm(study, label, method=method, **points, **where)


def untrained(r: Records, mix: str) -> Arm:
    """The models of a mix as quantized; "blind", in random orders, has several a seed."""
    if mix in ONE_WIDTH and mix != RIVAL:
        return of_width_study(r, int(mix), LABELS[mix], "ptq")
    if mix != "blind":
        return arm(r, LABELS[mix], part="untrained", mix=mix)
    records = r.all(part="untrained", mix=mix)
    by_seed = sorted(records, key=lambda record: int(record.case.params["seed"] or 0))
    return Arm(label=LABELS[mix], records=tuple(by_seed), units="orders")


def trained(r: Records, mix: str) -> Arm:
    """The models of a mix, trained on for an epoch; those of one width by 1.1, at the same rate."""
    label = f"{LABELS[mix]}, trained on"
    if mix in ONE_WIDTH:
        at = {"tune_learning_rate": design.RATES["mix"]}
        return of_width_study(r, int(mix), label, "qat", **at)
    return arm(r, label, part="trained", mix=mix)


def repeated_for_orders(a: Arm, orders: Arm) -> Arm:
    """The models of an arm, each repeated for every order of its seed in `orders`."""
    count = len(orders.records) // len(a.records)
    records = tuple(record for record in a.records for _ in range(count))
    return Arm(label=a.label, records=records, units=orders.units)


@page.claim(primary=True)
def a_mix_beats_one_width(r: Records) -> Contrast:
    """A width for every layer beats one width: at no more than five bits a weight, the best mix,
    the tuning seed's choice, is more accurate than five bits for all layers, without training."""
    return compare(untrained(r, best_untrained(r.tuning)), untrained(r, RIVAL))


@page.claim(primary=True)
def a_trained_mix_beats_one_width(r: Records) -> Contrast:
    """A width for every layer beats one width after training: at no more than five bits a weight,
    the best mix, the tuning seed's choice, is more accurate than five bits for all layers, both
    trained for an epoch at the same rate."""
    return compare(trained(r, best_trained(r.tuning)), trained(r, RIVAL))


@page.claim
def search_as_asked_for(r: Records) -> Contrast:
    """As asked for: a searched format of full precision, 8, 16 or 32 bits for each layer over 16
    bits for all, both trained on for an epoch."""
    return compare(trained(r, "asked"), trained(r, "asked 16"))


@page.claim
def search_begun(r: Records) -> Contrast:
    """The same search, begun with one format for all layers, over 16 bits for all, both trained on
    for an epoch."""
    return compare(trained(r, "begun"), trained(r, "asked 16"))


@page.claim
def allocation_over_order(r: Records) -> Contrast:
    """As quantized: 4 to 8 bits, allocated, over 4 or 6 bits by the order of sensitivity."""
    return compare(untrained(r, "allocated"), untrained(r, "ordered"))


@page.claim
def search_over_allocation(r: Records) -> Contrast:
    """As quantized: the mix that the search found from 4 to 8 bits over the allocated one."""
    return compare(untrained(r, "searched"), untrained(r, "allocated"))


@page.claim
def order_over_chance(r: Records) -> Contrast:
    """As quantized: narrowing first the layers that alone move a loss least, over random orders."""
    orders = untrained(r, "blind")
    return compare(repeated_for_orders(untrained(r, "ordered"), orders), orders)


@page.claim
def order_over_depth(r: Records) -> Contrast:
    """As quantized: narrowing first the layers that alone move a loss least, over the last ones."""
    return compare(untrained(r, "ordered"), untrained(r, LAST_FIRST))


# ---- numbers ------------------------------------------------------------------------------------


def narrow_moves(record: Record, measure: str = "moved") -> dict[str, float]:
    """Layer → how far it alone at the narrow width moves the model, in nats."""
    moves = record.values[measure]
    return {layer: by_width[str(design.NARROW_BITS)] for layer, by_width in moves.items()}


def agreement(r: Records) -> ExactValue:
    """Rank correlation between two seeds of how far each layer, alone narrow, moves a loss."""
    tuned, repeats = by_sensitivity(r), r.all(part="sensitivity")
    first = narrow_moves(tuned)
    pairs = [
        (first[layer], moved) for other in repeats for layer, moved in narrow_moves(other).items()
    ]
    return exact(round(searches.rank_correlation(*zip(*pairs)), 2), [tuned, *repeats])


def with_depth(record: Record) -> float:
    """Rank correlation of how far layers, alone narrow, move a loss and how early they stand."""
    moved = [*narrow_moves(record).values()]
    return round(searches.rank_correlation(moved, [-place for place in range(len(moved))]), 2)


def with_divergence(record: Record) -> float:
    """Rank correlation of how far layers, alone narrow, move a loss and the answers."""
    sides = (narrow_moves(record, measure) for measure in ("moved", "divergence"))
    moved, diverged = ([*side.values()] for side in sides)
    return round(searches.rank_correlation(moved, diverged), 2)


def widths(r: Records, name: str) -> dict[str, int]:
    """Layer → bits a weight in a mix: 32 in full precision."""
    record, values = choice(r.tuning, name)
    texts = str(record.case.params["formats"]).split(", ")
    bits = [design.ASKED_BITS[-1] if t == design.FULL else int(t.split()[0]) for t in texts]
    digits = zip(record.values["names"], values["layers"], strict=True)
    return {layer: bits[int(digit)] for layer, digit in digits}


def in_full(r: Records, name: str) -> ExactValue:
    """The number of layers that a searched mix leaves in full precision."""
    record, values = choice(r.tuning, name)
    texts = str(record.case.params["formats"]).split(", ")
    return exact(values["layers"].count(str(texts.index(design.FULL))), [record])


def bits_in(part: str) -> NumberFn:
    """A function: the mean bits of a layer in a part of the allocated mix, early, late or head."""

    def mean_bits(r: Records) -> ExactValue:
        by_layer = widths(r, "allocated")
        half = (len(block_names(by_layer)) - 1) // 2
        places = {layer: block(layer) for layer in by_layer}
        parts = {
            layer: HEAD if number is None else "early" if number < half else "late"
            for layer, number in places.items()
        }
        bits = [width for layer, width in by_layer.items() if parts[layer] == part]
        return exact(round(fmean(bits), 1), [by_sensitivity(r)], "bits")

    return mean_bits


def repaired(r: Records) -> ExactValue:
    """The share of the trials of the search within the budget that were drawn above it."""
    record, values = choice(r.tuning, "searched")
    return percentage(values["num_repaired"] / len(values["tried"]), [record])


def search(name: str) -> Callable[[Records], Record]:
    """A function that reads the tuning record of a search."""
    return lambda r: choice(r.tuning, name)[0]


page.numbers(
    fp32=baseline.fp32,
    asked=partial(untrained, mix="asked"),
    asked16=partial(untrained, mix="asked 16"),
    asked8=partial(untrained, mix="asked 8"),
    eight=partial(untrained, mix=WIDEST),
    asked_trained=partial(trained, mix="asked"),
    begun_trained=partial(trained, mix="begun"),
    asked16_trained=partial(trained, mix="asked 16"),
    asked_gain=search_as_asked_for,
    begun_gain=search_begun,
    asked_bits=computed(search("asked"), lambda record: round(record.values["bits"], 1)),
    asked_full=partial(in_full, name="asked"),
    begun_full=partial(in_full, name="begun"),
    allocated_gain=allocation_over_order,
    searched_gain=search_over_allocation,
    order_gain=order_over_chance,
    depth_gain=order_over_depth,
    most_to_win=lambda r: compare(untrained(r, WIDEST), untrained(r, RIVAL)),
    most_to_win_trained=lambda r: compare(trained(r, WIDEST), trained(r, RIVAL)),
    trials=computed(search("asked"), lambda record: len(record.values["tried"])),
    budget_trials=computed(search("searched"), lambda record: len(record.values["tried"])),
    repaired=repaired,
    layers=computed(by_sensitivity, lambda record: len(record.values["names"])),
    bits_early=bits_in("early"),
    bits_late=bits_in("late"),
    bits_head=bits_in(HEAD),
    farthest=computed(by_sensitivity, lambda r: round(max(narrow_moves(r).values()), 3), "nats"),
    nearest=computed(by_sensitivity, lambda r: round(min(narrow_moves(r).values()), 3), "nats"),
    agreement=agreement,
    depth=computed(by_sensitivity, with_depth),
    divergence=computed(by_sensitivity, with_divergence),
)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    """The highest validation accuracy up to each trial of the searches as asked for."""
    titles = {
        "asked": "trials trained on",
        "begun": "trained on, begun with one format for all",
        "asked, as quantized": "trials as quantized",
    }
    searched = {name: r.tuning.single(part="search", study=name).values for name in titles}
    so_far = {titles[name]: searches.highest_so_far(v["tried"]) for name, v in searched.items()}
    offered = design.OFFERED["asked"].split(", ")  # with each of which one search begins, in turn
    sixteen = searched["begun"]["tried"][offered.index(best_for_all(r.tuning, 16)["format"])]
    blind = span(
        0.5, searched["asked"]["num_at_random"] + 0.5, "drawn at random; given, where begun"
    )
    return Chart(
        [
            {"trial": i + 1, **dict(zip(so_far, values, strict=True))}
            for i, values in enumerate(zip(*so_far.values(), strict=True))
        ],
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[
            blind,
            level(sixteen, f"{LABELS['asked 16']}, a trial trained on"),
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
    """The only panel, which shows the mix by order; the page's script shows any other."""
    return [Panel(title="", svg=f"{budget_svg(rows)}\n{says(says_budget(rows))}", folded=False)]


def added_up(rows: Sequence[Row], mix: str) -> float:
    """How far each layer's width in a mix alone moves a loss, added up: thousandths of a nat."""
    return sum(row.get(f"moved at {row[mix]}", 0.0) for row in rows)


def says_budget(rows: Sequence[Row], mix: str = "ordered") -> str:
    """A mix in words, as the page's script says it, too."""
    few = sum(row[mix] == design.NARROW_BITS for row in rows)
    bits = sum(row[mix] * row["weights"] for row in rows) / sum(row["weights"] for row in rows)
    within = "within" if bits <= design.BUDGET_BITS else "over"
    return (
        f"{few} of {len(rows)} layers have four bits: {bits:.2f} bits a weight, {within} the "
        f"budget of five. Added up, widths move a loss by {added_up(rows, mix):.0f} thousandths "
        f"of a nat; allocated, by {added_up(rows, 'allocated'):.0f}."
    )


def budget_svg(rows: Sequence[Row]) -> str:
    """The map: a cell a layer, the darker the further it moves a loss, with its bits in it."""
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    columns = list(dict.fromkeys(row["layer"] for row in rows if row["block"] != HEAD))
    moved = [row[f"moved at {design.NARROW_BITS}"] for row in rows]
    parts = "".join(
        f'<text class="note" x="{LABEL + i * CELL + CELL / 2:g}" y="12" text-anchor="middle">'
        f"{name}</text>"
        for i, name in enumerate(columns)
    )
    for down, name in enumerate(blocks):
        y = TOP + down * ROW
        parts += f'<text class="note" x="0" y="{y + 19}">{name}</text>'
        for along, (i, row) in enumerate((i, r) for i, r in enumerate(rows) if r["block"] == name):
            x, bits = LABEL + along * CELL, row["ordered"]
            title = f"{name} {row['layer']}, four bits: {moved[i]:.1f} thousandths of a nat"
            parts += (
                f'<g class="cell{" narrow" * (bits == design.NARROW_BITS)}" data-layer="{i}">'
                f"<title>{title}</title>"
                f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{ROW - 4}" '
                f'style="fill-opacity: {0.1 + 0.9 * moved[i] / max(moved):.2f}"/>'
                f'<text x="{x + CELL / 2:g}" y="{y + 19}" text-anchor="middle">{bits}</text></g>'
            )
    of_head, y = [row["layer"] for row in rows if row["block"] == HEAD], TOP + ROW * len(blocks)
    x = LABEL + CELL * len(of_head) + 8
    parts += f'<text class="note" x="{x}" y="{y - 11}">{", ".join(of_head)}</text>'
    width, height = LABEL + CELL * max(len(columns), 2), y
    bits = f'data-widths="{",".join(map(str, design.FORMATS))}" data-narrow="{design.NARROW_BITS}"'
    return (
        f'<svg class="graph" viewBox="0 0 {width} {height}" {bits} '
        f'data-rival="{design.RIVAL_BITS}" data-budget="{design.BUDGET_BITS:g}" '
        f'aria-hidden="true">{parts}</svg>'
    )


@page.drawing(panels=budget_panels, alt=says_budget, script="budget")
def budget(r: Records) -> Sequence[Row]:
    """A row a layer: how far it alone at each width moves a loss, in thousandths of a nat, its
    weights, and its width in the mixes by order and as allocated."""
    values = by_sensitivity(r).values
    sizes = dict(zip(values["names"], values["sizes"], strict=True))
    ordered, best = (widths(r, name) for name in ("ordered", "allocated"))
    return [
        {
            **{"block": block_name(layer), "layer": role(layer), "weights": sizes[layer]},
            **{
                f"moved at {width}": round(1e3 * moved, 2)
                for width, moved in values["moved"][layer].items()
            },
            **{"ordered": ordered[layer], "allocated": best[layer]},
        }
        for layer in sorted(values["names"], key=position)
    ]


@page.chart
def asked_widths(r: Records) -> Chart:
    """The bits that the search over full precision, 8, 16 and 32 bits gives each layer."""
    by_layer = widths(r, "asked")
    rows = [
        {"block": block_name(layer), "layer": role(layer), "bits": by_layer[layer]}
        for layer in sorted(by_layer, key=position)
    ]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells("bits")])


def model_rows(r: Records, names: Iterable[str]) -> list[Row]:
    """A row for each mix: test accuracy as quantized, and trained on where it was."""
    names_trained = {*r.where(part="trained").param_values("mix"), *ONE_WIDTH}
    return [
        {
            "a layer has": quantized.label,
            "bits a weight": f"{int(name) if name in ONE_WIDTH else quantized.mean('bits'):.2f}",
            "as quantized": quantized,
            "trained on": trained(r, name) if name in names_trained else "",
            "models trained": len(trained(r, name).records) if name in names_trained else "",
        }
        for name, quantized in ((name, untrained(r, name)) for name in names)
    ]


@page.table
def models(r: Records) -> Sequence[Row]:
    return model_rows(r, [name for name in LABELS if name not in AS_ASKED])


@page.table
def as_asked(r: Records) -> Sequence[Row]:
    return model_rows(r, AS_ASKED)


@page.table
def predictions(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning model in each mix, as its layers predict it and as it is."""
    singles = r.tuning.single(part="one format", formats=design.OFFERED["narrow"]).values["tried"]
    measured = dict(zip(design.FORMATS, (tried["validation_loss"] for tried in singles)))
    sensitivity = by_sensitivity(r).values
    names = ["allocated", "allocated by divergence", "searched", "ordered"]
    mixed = [
        (LABELS.get(name, f"4 to 8 bits, {name}"), widths(r, name), choice(r.tuning, name)[1])
        for name in names
    ]
    tried = [(label, bits, values["validation_loss"]) for label, bits, values in mixed]
    for width in (design.RIVAL_BITS, design.WIDE_BITS):
        tried.append(
            (LABELS[str(width)], dict.fromkeys(sensitivity["names"], width), measured[width])
        )

    def summed(measure: str, bits: Mapping[str, int]) -> float:
        moves = sensitivity[measure]
        return sum(moves[layer].get(str(width), 0.0) for layer, width in bits.items())

    widest = measured[max(measured)]
    return [
        {
            "a layer has": label,
            "moves a loss, added up": f"{summed('moved', bits):.3f}",
            "divergence, added up": f"{summed('divergence', bits):.4f}",
            "loss, predicted": f"{widest + summed('signed', bits):.3f}",
            "loss, measured": f"{loss:.3f}",
        }
        for label, bits, loss in tried
    ]


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training on, by rate."""
    trainings: dict[str, Params] = {
        LABELS[name]: {"part": "trained", "mix": name} for name in design.CANDIDATES
    }
    chosen = dict.fromkeys(trainings, design.RATES["mix"])
    return searches.rate_rows(r.tuning, trainings, "tune_learning_rate", chosen=chosen)
