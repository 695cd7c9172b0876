"""Question 3.1: does a width for every layer beat one for all, as quantized and after training?

Every Linear layer's weight, bias and input become fixed point. As asked for, a search leaves a
layer in full precision or gives it 8, 16 or 32 bits, of which 2, 4 or 8 lie after the point; bits
are free, and a trial trains. From 4 to 8 bits a model may take five a weight, and a layer's width
says where its point lies, as 1.1 chose it. Mixes are chosen on the tuning seed and reach `cases` as
parameters.

Units: bits per weight; losses and how far they move in nats.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean

from experiments.lab3_widths import design, mixes
from madl.compression.roles import role
from madl.logbook import searches
from madl.logbook.arms import Arm, arm, beside
from madl.logbook.charts import Chart, category, cells, level, line, linear, percent, span
from madl.logbook.claims import Contrast, compare
from madl.logbook.drawing import Panel, says
from madl.logbook.experiment import CONFIRMING_SEEDS, TUNING, TUNING_SEED, Experiment, Plan
from madl.logbook.numbers import ExactValue, computed, exact
from madl.logbook.records import Params, Record, Records, Row
from madl.training import baseline, trial

page = Experiment(needs=("baseline",))

STEM = "lab3_widths"
RIVAL = str(design.RIVAL_BITS)  # a mix of one width
ONE_WIDTH = tuple(str(width) for width in design.FORMATS if width >= design.RIVAL_BITS)
WIDEST = ONE_WIDTH[-1]
LAST_FIRST = "last first"  # an order of layers that takes no data
AS_ASKED = {  # mixes
    "asked": "full precision, 8, 16 or 32 bits, searched",
    "begun": "the same, begun with one format for all",
    "asked 16": "16 bits for all",
    "asked 8": "8 bits for all, as asked",
}
NARROW = {
    "allocated": "4 to 8 bits, allocated",
    "searched": "4 to 8 bits, searched",
    "ordered": "4 or 6 bits by sensitivity",
    LAST_FIRST: "4 or 6 bits by depth",
    "blind": "4 or 6 bits at random",
    **{name: f"{name} bits for all" for name in ONE_WIDTH},
}
LABELS = {**AS_ASKED, **NARROW}
AS_QUANTIZED = "asked, as quantized"  # a search whose trials do not train
STUDIES = ("asked", "begun", AS_QUANTIZED, "searched")
CHOSEN = ("asked", "begun", *design.CANDIDATES)  # by the tuning seed, for all seeds


def choosing_params(plan: Plan, mix: str) -> Params:
    """The parameters by which the tuning seed chooses a mix: of a search, or of sensitivities."""
    choose = plan.profile.choose
    if mix not in STUDIES:
        return design.WITHIN
    search: Params = {"sampler": design.SAMPLER, "begin": mix in ("begun", "searched")}
    if mix == "searched":
        trials = choose(smoke=6, quick=design.BUDGETED_TRIALS)
        return {**design.WITHIN, **search, "by": "validation_loss", "trials": trials}
    trials = choose(smoke=6, quick=design.TRIALS)
    asked = {"offered": design.ASKED_OFFER, "by": "validation_accuracy", "trials": trials}
    if mix == AS_QUANTIZED:
        return {**search, **asked}
    training = trial.training_params(plan, design.RATES["asked"], design.TRIAL_SENTENCES)
    return {**search, **asked, **training}


@page.tuning
def tuning(plan: Plan) -> Iterable[Params]:
    base = baseline.drawn_params(plan, TUNING_SEED)
    yield {"part": "sensitivity", **base, **design.WITHIN}
    for name in STUDIES:
        yield {"part": "search", "mix": name, **base, **choosing_params(plan, name)}
    for name in CHOSEN:
        yield {"part": "untrained", "mix": name, **base, **choosing_params(plan, name)}
    for text in design.ASKED:
        yield {"part": "untrained", "mix": text, **base, "formats": text}
    for name in ONE_WIDTH:
        yield {"part": "untrained", "mix": name, **base, "formats": design.FORMATS[int(name)]}
    for rate in plan.profile.choose(smoke=(design.RATES["mix"],), quick=design.RATES_TRIED):
        recipe = baseline.retraining_params(plan, rate)
        for name in design.CANDIDATES:
            chosen_by = choosing_params(plan, name)
            yield {"part": "trained", "mix": name, **base, **chosen_by, **recipe}


# ---- what the tuning seed chose -----------------------------------------------------------------


def choice(tuned: Records, mix: str) -> Record:
    """The tuning record of a mix as quantized, which holds its formats."""
    return tuned.single(part="untrained", mix=mix)


def layers_of(tuned: Records) -> list[Row]:
    """The layers in the model's order: names, weights, and how far each moves a loss by width."""
    return tuned.single(part="sensitivity").values["layers"]


def sizes_of(tuned: Records) -> dict[str, int]:
    """Layer → number of its weights, in the model's order."""
    return {row["layer"]: row["weights"] for row in layers_of(tuned)}


def best_for_all(tuned: Records, width: int) -> str:
    """The format of a width, of those asked for, that has the highest validation accuracy on all
    layers, as quantized; of equal ones that of the least loss."""

    def rank(text: str) -> tuple[float, float]:
        values = choice(tuned, text).values
        return values["validation_accuracy"], -values["validation_loss"]

    return max((text for text in design.ASKED if mixes.width(text) == width), key=rank)


def best(tuned: Records, part: str, **where: float) -> str:
    """The candidate of the least loss on what chose none of them, of those with several widths."""
    losses = {
        name: tuned.single(part=part, mix=name, **where).values["kept_back_loss"]
        for name in design.CANDIDATES
        if mixes.is_mixed(choice(tuned, name).values["formats"])
    }
    return min(losses, key=losses.__getitem__)


best_untrained = partial(best, part="untrained")
best_trained = partial(best, part="trained", tune_learning_rate=design.RATES["mix"])


def mixes_of(tuned: Records) -> dict[str, str]:
    """Mix → its formats, those in random orders left out."""
    sizes = sizes_of(tuned)
    return {
        **{name: choice(tuned, name).values["formats"] for name in CHOSEN},
        **{f"asked {width}": best_for_all(tuned, width) for width in design.ASKED_BITS[:2]},
        **{name: design.FORMATS[int(name)] for name in ONE_WIDTH},
        LAST_FIRST: mixes.by_order(sizes, [*reversed(sizes)], design.BUDGET_BITS),
    }


@page.cases
def cases(plan: Plan) -> Iterable[Params]:
    tuned = plan.records(f"{STEM}{TUNING}")
    by_name, best, sizes = mixes_of(tuned), best_trained(tuned), sizes_of(tuned)
    rates = {name: baseline.retraining_params(plan, rate) for name, rate in design.RATES.items()}
    for seed in plan.seeds:
        base = baseline.drawn_params(plan, seed)
        for name, formats in by_name.items():
            yield {"part": "untrained", "mix": name, **base, "formats": formats}
        for number in range(plan.profile.choose(smoke=2, quick=design.BLIND_ORDERS)):
            order = random.Random(f"{seed} {number}").sample([*sizes], len(sizes))
            formats = mixes.by_order(sizes, order, design.BUDGET_BITS)
            yield {"part": "untrained", "mix": "blind", "order": number, **base, "formats": formats}
        for name in (best, RIVAL, WIDEST, "asked", "begun", "asked 16"):
            rate = rates["asked" if name in AS_ASKED else "mix"]
            yield {"part": "trained", "mix": name, **base, "formats": by_name[name], **rate}
    base = baseline.drawn_params(plan, plan.seeds[0])
    offered = mixes.write([design.FORMATS[design.NARROW_BITS], design.FORMATS[int(WIDEST)]])
    for block in dict.fromkeys(map(mixes.block, sizes)):
        yield {"part": "sensitivity", "block": block, **base, "offered": offered}


@page.quick
def quick(params: Params) -> bool:
    is_shown = params["part"] == "untrained" and params["mix"] in ("allocated", RIVAL)
    return params["seed"] == CONFIRMING_SEEDS[0] and is_shown


# ---- models -------------------------------------------------------------------------------------


def untrained(r: Records, mix: str) -> Arm:
    """The models of a mix as quantized; "blind", in random orders, has several a seed."""
    if mix == "blind":
        records = tuple(r.all(part="untrained", mix=mix))
        return Arm(label=LABELS[mix], records=records, units="orders")
    return arm(r, LABELS[mix], part="untrained", mix=mix)


def trained(r: Records, mix: str) -> Arm:
    """The models of a mix, trained on for an epoch."""
    return arm(r, f"{LABELS[mix]}, trained on", part="trained", mix=mix)


@page.claim(primary=True)
def a_mix_beats_one_width(r: Records) -> Contrast:
    """A width for every layer beats one width: at no more than five bits a weight, the best mix,
    the tuning seed's choice, is more accurate than five bits for all layers, both trained for an
    epoch at the same rate."""
    return compare(trained(r, best_trained(r.tuning)), trained(r, RIVAL))


@page.claim
def a_mix_as_quantized(r: Records) -> Contrast:
    """As quantized, the best mix over five bits for all layers."""
    return compare(untrained(r, best_untrained(r.tuning)), untrained(r, RIVAL))


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
    return compare(beside(untrained(r, "ordered"), orders), orders)


@page.claim
def order_over_depth(r: Records) -> Contrast:
    """As quantized: narrowing first the layers that alone move a loss least, over the last ones."""
    return compare(untrained(r, "ordered"), untrained(r, LAST_FIRST))


# ---- numbers ------------------------------------------------------------------------------------


def of_tuning(part: str, **where: str) -> Callable[[Records], Record]:
    """A function that reads the tuning record with these parameters."""
    return lambda r: r.tuning.single(part=part, **where)


by_sensitivity = of_tuning("sensitivity")


def narrow_moves(record: Record) -> dict[str, float]:
    """Layer → how far it alone at the narrow width moves a loss, in nats; in the model's order."""
    width = str(design.NARROW_BITS)
    return {row["layer"]: row["moved"][width] for row in record.values["layers"]}


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


def widths(tuned: Records, mix: str) -> dict[str, int]:
    """Layer → bits a weight in a mix: 32 in full precision."""
    by_layer = mixes.by_layer(choice(tuned, mix).values["formats"], [*sizes_of(tuned)])
    return {layer: mixes.width(text) for layer, text in by_layer.items()}


def in_full(record: Record) -> int:
    """The number of layers that a mix leaves in full precision."""
    return mixes.read(record.values["formats"]).count(design.FULL)


def mean_bits(r: Records, part: str) -> ExactValue:
    """The mean bits of the allocated layers of a part: early blocks, late blocks, or the head."""
    by_layer = widths(r.tuning, "allocated")
    blocks = [name for name in dict.fromkeys(map(mixes.block, by_layer)) if name != mixes.HEAD]
    half = len(blocks) // 2
    members = {"early": blocks[:half], "late": blocks[half:], "head": [mixes.HEAD]}[part]
    bits = [width for layer, width in by_layer.items() if mixes.block(layer) in members]
    return exact(round(fmean(bits), 1), [choice(r.tuning, "allocated")], "bits")


def mean_products(r: Records, mix: str) -> ExactValue:
    """The mean of bits of a weight times bits of an input, over the products of a trained mix."""
    models = trained(r, mix)
    return exact(round(products(r.tuning, models), 1), models.records)


def num_trials(search: Record) -> int:
    return len(search.values["tried"])


def repaired(record: Record) -> int:
    """The share of a search's trials that were drawn above the budget, in per cent."""
    return round(100 * record.values["num_repaired"] / len(record.values["tried"]))


page.numbers(
    fp32=baseline.fp32,
    asked=partial(untrained, mix="asked"),
    asked16=partial(untrained, mix="asked 16"),
    asked8=partial(untrained, mix="asked 8"),
    eight=partial(untrained, mix=WIDEST),
    asked_trained=partial(trained, mix="asked"),
    begun_trained=partial(trained, mix="begun"),
    asked16_trained=partial(trained, mix="asked 16"),
    quantized_gain=a_mix_as_quantized,
    asked_gain=search_as_asked_for,
    begun_gain=search_begun,
    asked_bits=computed(of_tuning("untrained", mix="asked"), lambda r: round(r.values["bits"], 1)),
    asked_full=computed(of_tuning("untrained", mix="asked"), in_full),
    begun_full=computed(of_tuning("untrained", mix="begun"), in_full),
    allocated_gain=allocation_over_order,
    searched_gain=search_over_allocation,
    order_gain=order_over_chance,
    depth_gain=order_over_depth,
    most_to_win=lambda r: compare(untrained(r, WIDEST), untrained(r, RIVAL)),
    most_to_win_trained=lambda r: compare(trained(r, WIDEST), trained(r, RIVAL)),
    mix_products=lambda r: mean_products(r, best_trained(r.tuning)),
    rival_products=lambda r: mean_products(r, RIVAL),
    trials=computed(of_tuning("search", mix="asked"), num_trials),
    budget_trials=computed(of_tuning("search", mix="searched"), num_trials),
    repaired=computed(of_tuning("search", mix="searched"), repaired, "%"),
    layers=computed(by_sensitivity, lambda record: len(record.values["layers"])),
    bits_early=partial(mean_bits, part="early"),
    bits_late=partial(mean_bits, part="late"),
    bits_head=partial(mean_bits, part="head"),
    farthest=computed(by_sensitivity, lambda r: round(max(narrow_moves(r).values()), 3), "nats"),
    nearest=computed(by_sensitivity, lambda r: round(min(narrow_moves(r).values()), 3), "nats"),
    agreement=agreement,
    depth=computed(by_sensitivity, with_depth),
)


# ---- figures and tables -------------------------------------------------------------------------


@page.chart
def curves(r: Records) -> Chart:
    """The highest validation accuracy up to each trial of the searches as asked for."""
    titles = {
        "asked": "trials trained on",
        "begun": "trained on, begun with one format for all",
        AS_QUANTIZED: "trials as quantized",
    }
    searched = {name: r.tuning.single(part="search", mix=name).values for name in titles}
    so_far = {titles[name]: searches.highest_so_far(v["tried"]) for name, v in searched.items()}
    # The search that is begun takes each format on offer for all layers first, in turn.
    sixteen = searched["begun"]["tried"][design.ASKED.index(best_for_all(r.tuning, 16))]
    drawn = searched["asked"]["num_at_random"]
    return Chart(
        [
            {"trial": i + 1, **dict(zip(so_far, values, strict=True))}
            for i, values in enumerate(zip(*so_far.values(), strict=True))
        ],
        x=linear("trial", "trials"),
        y=percent("highest validation accuracy so far"),
        marks=[
            span(0.5, drawn + 0.5, "drawn at random; given, where begun"),
            level(sixteen, f"{LABELS['asked 16']}, a trial trained on"),
            *(line(name, markers=False) for name in so_far),
        ],
    )


def place(layer: str) -> dict[str, str]:
    """Where a layer stands on a map: its row and its column."""
    name = mixes.block(layer)
    return {"block": name if name == mixes.HEAD else f"block {name}", "layer": role(layer)}


@page.chart
def asked_widths(r: Records) -> Chart:
    """The bits that the search over full precision, 8, 16 and 32 bits gives each layer."""
    rows = [{**place(layer), "bits": bits} for layer, bits in widths(r.tuning, "asked").items()]
    return Chart(rows, x=category("layer"), y=category("block"), marks=[cells("bits")])


def products(tuned: Records, models: Arm) -> float:
    """Bits of a weight times bits of an input, the mean over products: a multiplier grows so."""
    sizes, means = sizes_of(tuned), list[float]()
    for record in models.records:
        by_layer = mixes.by_layer(str(record.case.params["formats"]), [*sizes])
        spent = sum(sizes[layer] * mixes.width(text) ** 2 for layer, text in by_layer.items())
        means.append(spent / sum(sizes.values()))
    return fmean(means)


def model_rows(r: Records, names: Iterable[str]) -> list[Row]:
    """A row for each mix: test accuracy as quantized, and trained on where it was."""
    names_trained = {*r.where(part="trained").param_values("mix")}
    return [
        {
            "a layer has": quantized.label,
            "bits a weight": f"{quantized.mean('bits'):.2f}",
            "times an input's": f"{products(r.tuning, quantized):.1f}",
            "as quantized": quantized,
            "trained on": trained(r.and_further, name) if name in names_trained else "",
        }
        for name, quantized in ((name, untrained(r, name)) for name in names)
    ]


@page.table
def models(r: Records) -> Sequence[Row]:
    return model_rows(r, NARROW)


@page.table
def as_asked(r: Records) -> Sequence[Row]:
    return model_rows(r, AS_ASKED)


@page.table
def predictions(r: Records) -> Sequence[Row]:
    """How far a mix's widths, each alone, move a loss, and the validation loss with all of them."""
    moved = {row["layer"]: row["moved"] for row in layers_of(r.tuning)}
    rows: list[Row] = []
    for name in (*design.CANDIDATES, *ONE_WIDTH):
        by_layer, loss = widths(r.tuning, name), choice(r.tuning, name).values["kept_back_loss"]
        added_up = sum(moved[layer][str(width)] for layer, width in by_layer.items())
        cells = {"moves a loss, added up": f"{added_up:.3f}", "loss": f"{loss:.3f}"}
        rows.append({"a layer has": LABELS[name], **cells})
    return rows


page.power(design.TRUTHS)


@page.table
def rates(r: Records) -> Sequence[Row]:
    """Validation loss of the tuning seed after training on, by rate."""
    trainings: dict[str, Params] = {
        LABELS[name]: {"part": "trained", "mix": name} for name in design.CANDIDATES
    }
    chosen = dict.fromkeys(trainings, design.RATES["mix"])
    return searches.rate_rows(r.tuning, trainings, "tune_learning_rate", chosen=chosen)


# ---- the budget game ----------------------------------------------------------------------------

LABEL, CELL, ROW, TOP = 58, 50, 30, 18  # of the map: left of a row, a cell, a row, above the first
AT_NARROW = f"moved at {design.NARROW_BITS}"


def budget_panels(rows: Sequence[Row]) -> list[Panel]:
    """The only panel, which shows the mix by order; the page's script shows any other."""
    return [Panel(title="", svg=f"{budget_svg(rows)}\n{says(says_budget(rows))}", folded=False)]


def says_budget(rows: Sequence[Row], mix: str = "ordered") -> str:
    """A mix in words, as the page's script says it, too."""
    few = sum(row[mix] == design.NARROW_BITS for row in rows)
    bits = sum(row[mix] * row["weights"] for row in rows) / sum(row["weights"] for row in rows)
    within = "within" if bits <= design.BUDGET_BITS else "over"
    moved, least = (sum(row[f"moved at {row[m]}"] for row in rows) for m in (mix, "allocated"))
    return (
        f"{few} of {len(rows)} layers have four bits: {bits:.2f} bits a weight, {within} the "
        f"budget of five. Added up, widths move a loss by {moved:.0f} thousandths "
        f"of a nat; allocated, by {least:.0f}."
    )


def budget_svg(rows: Sequence[Row]) -> str:
    """The map: a cell a layer, the darker the further it moves a loss, with its bits in it."""
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    columns = {name: [row["layer"] for row in rows if row["block"] == name] for name in blocks}
    farthest = max(row[AT_NARROW] for row in rows)
    parts = "".join(
        note(LABEL + (i + 0.5) * CELL, 12, name, "middle")
        for i, name in enumerate(columns[blocks[0]])
    )
    for down, name in enumerate(blocks):
        parts += note(0, TOP + down * ROW + 19, name)
    for i, row in enumerate(rows):
        x = LABEL + CELL * columns[row["block"]].index(row["layer"])
        y = TOP + ROW * blocks.index(row["block"])
        bits, moved = row["ordered"], row[AT_NARROW]
        parts += (
            f'<g class="cell{" narrow" * (bits == design.NARROW_BITS)}" data-layer="{i}"><title>'
            f"{row['block']} {row['layer']}, four bits: {moved:.1f} thousandths of a nat</title>"
            f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{ROW - 4}" '
            f'style="fill-opacity: {0.1 + 0.9 * moved / farthest:.2f}"/>'
            f'<text x="{x + CELL / 2:g}" y="{y + 19}" text-anchor="middle">{bits}</text></g>'
        )
    of_head, height = columns.get(mixes.HEAD, []), TOP + ROW * len(blocks)
    parts += note(LABEL + CELL * len(of_head) + 8, height - 11, ", ".join(of_head))
    width = LABEL + CELL * max(map(len, columns.values()))
    widths = ",".join(map(str, design.FORMATS))
    return (
        f'<svg class="graph" viewBox="0 0 {width} {height}" data-widths="{widths}" '
        f'data-narrow="{design.NARROW_BITS}" data-rival="{design.RIVAL_BITS}" '
        f'data-budget="{design.BUDGET_BITS:g}" aria-hidden="true">{parts}</svg>'
    )


def note(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="note" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


@page.drawing(panels=budget_panels, alt=says_budget, script="budget")
def budget(r: Records) -> Sequence[Row]:
    """A row a layer: how far it alone at each width moves a loss, in thousandths of a nat, its
    weights, and its width in the mixes by order and as allocated."""
    ordered, best = (widths(r.tuning, name) for name in ("ordered", "allocated"))
    rows: list[Row] = []
    for row in layers_of(r.tuning):
        layer, moved = row["layer"], row["moved"].items()
        thousandths = {f"moved at {width}": round(1e3 * nats, 2) for width, nats in moved}
        mixed = {"ordered": ordered[layer], "allocated": best[layer]}
        rows.append({**place(layer), "weights": row["weights"], **thousandths, **mixed})
    return rows
