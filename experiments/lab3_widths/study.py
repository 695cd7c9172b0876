"""Question 3.1's cases: a search over layers, one layer at a time, and models with a mix.

A mix gives each Linear layer one of a few formats. It is written as digits, one for each layer in
the model's order, which index `formats`: "6 5 3, 4 5 2, FP32" are three formats, each its width and
how many bits lie after the point of weight (and bias) and of input. Quantization draws nothing, so
what is not trained on is a function of checkpoint and mix.

Units: bits per weight, averaged over all weights of the Linear layers; losses in nats.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from experiments.lab3_widths import design
from madl.compression.quantize import named_linears, set_module_
from madl.compression.roles import block
from madl.errors import MadlError
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Scalar, Values
from madl.training import baseline, precision, search
from madl.training.precision import FULL_BITS, LayerFormat, Operands
from madl.training.search import Trial
from madl.training.train import Evaluation, evaluate
from madl.training.trial import worth

# With which mixes a search may begin: one format for all, and those by sensitivity, too.
UNIFORM, KNOWN = "one format for all", "one format for all, mixes by sensitivity"
LAST_FIRST = "last first"  # an order of layers that takes no data
LEAST_LOSS = 1e-7  # nats: a smaller loss is rounded


def run(params: Params, ctx: Context) -> Values:
    """Run one case by its `part`; the tuning seed never meets the test split."""
    match params["part"]:
        case "search":
            return search_mix(params, ctx)
        case "one format":
            return judge_single_formats(baseline.fine_tuned(params, ctx), params, ctx)
        case "sensitivity" if params["seed"] == TUNING_SEED:
            return mixes_by_sensitivity(params, ctx)
        case "sensitivity":
            return repeat_sensitivity(baseline.fine_tuned(params, ctx), params, ctx)
        case _:
            return judge_mix(params, ctx)


# ---- mixes --------------------------------------------------------------------------------------


def texts_of(params: Params) -> list[str]:
    """The formats that the parameter `formats` offers a layer, as they are written."""
    return str(params["formats"]).split(", ")


def read_format(text: str) -> LayerFormat:
    """Parse a format; None is full precision."""
    if text == design.FULL:
        return None
    width, weights, inputs = map(int, text.split())
    return Operands(
        weight=FixedPoint(width=width, frac_width=weights),
        input=FixedPoint(width=width, frac_width=inputs),
    )


def widths_of(params: Params) -> list[int]:
    """The bits a weight of each format that is offered."""
    offered = map(read_format, texts_of(params))
    return [
        int(FULL_BITS if layer_format is None else layer_format.bits) for layer_format in offered
    ]


def set_mix_(model: nn.Module, digits: str, params: Params) -> float:
    """Give each layer the format of its digit; returns the mean bits of a weight.

    Raises:
        ValueError: another number of digits than of layers.
    """
    offered, layers = [*map(read_format, texts_of(params))], precision.layer_names(model)
    mix = {layer: offered[int(digit)] for layer, digit in zip(layers, digits, strict=True)}
    precision.set_precision_(model, mix)
    return precision.mean_bits(model, mix)


def uniform_digits(model: nn.Module, digit: int = 0) -> str:
    """The digits of a mix that has one format for all layers: by default the first on offer."""
    return str(digit) * len(precision.layer_names(model))


def layer_sizes(model: nn.Module) -> dict[str, int]:
    """Layer → number of its weights, in the model's order."""
    return {name: layer.weight.numel() for name, layer in named_linears(model).items()}


def room(sizes: Iterable[int], params: Params) -> int:
    """The bits that all weights together may take: exactly the budget's, rounded down."""
    return math.floor(Fraction(str(params["budget"])) * sum(sizes))


def narrowed(sizes: Mapping[str, int], order: Sequence[str], params: Params) -> str:
    """The digits of a mix in which the first layers of an order are narrow and all others wide.

    Layers become narrow until the budget holds. Then those that still fit become wide again, the
    last ones first, so that mixes of any order take about as many bits.

    Raises:
        ValueError: all layers narrow are over the budget.
    """
    wide, narrow = design.WIDE_BITS, design.NARROW_BITS
    left = room(sizes.values(), params) - wide * sum(sizes.values())
    chosen: list[str] = []
    for layer in order:
        if left >= 0:
            break
        chosen.append(layer)
        left += (wide - narrow) * sizes[layer]
    if left < 0:
        raise ValueError(f"{narrow} bits for all layers are over the budget, {params['budget']}")
    for layer in chosen[::-1]:
        if (more := (wide - narrow) * sizes[layer]) <= left:
            chosen.remove(layer)
            left -= more
    widths = widths_of(params)
    digits = {is_narrow: widths.index(narrow if is_narrow else wide) for is_narrow in (False, True)}
    return "".join(str(digits[layer in chosen]) for layer in sizes)


def allocate(
    costs: Sequence[Sequence[float]], sizes: Sequence[int], widths: Sequence[int], room: int
) -> list[int]:
    """The index of each layer's width, so that summed costs are least within `room` bits for all.

    `costs[i][j]` is that of layer i at widths[j], and `sizes` counts weights. A knapsack, solved
    exactly by dynamic programming over bits above the narrowest width, in units of the greatest
    common divisor of sizes.

    Source: HAWQ-V2 and HAWQ-V3, arXiv:1911.03852 and 2011.10680, which sum second-order costs.
    Raises:
        ValueError: the narrowest width for all layers takes more than `room`.
    """
    unit, least = math.gcd(*sizes), min(widths)
    most = room // unit - least * sum(sizes) // unit
    if most < 0:
        raise ValueError(f"{least} bits for all layers take more than the {room} bits there are")
    best, choices = np.zeros(most + 1), list[Any]()  # least cost of the layers so far, by room
    for layer_costs, size in zip(costs, sizes, strict=True):
        options = np.full((len(widths), most + 1), math.inf)
        for option, (cost, width) in enumerate(zip(layer_costs, widths, strict=True)):
            taken = (width - least) * size // unit
            if taken <= most:
                options[option, taken:] = best[: most + 1 - taken] + cost
        choices.append(options.argmin(0))
        best = options.min(0)
    indices: list[int] = []
    for choice, size in zip(choices[::-1], sizes[::-1]):
        indices.append(int(choice[most]))
        most -= (widths[indices[-1]] - least) * size // unit
    return indices[::-1]


# ---- the axes of a search -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """For each layer of a search a coin for full precision, a width and a place of the point.

    An axis without a choice is left out. `texts` are the formats on offer: every width has as many
    places.
    """

    layers: Sequence[str]
    texts: Sequence[str]

    @property
    def integers(self) -> list[int]:
        """The indices of the formats other than full precision: by width, and by place in each."""
        return [i for i, text in enumerate(self.texts) if text != design.FULL]

    @property
    def num_points(self) -> int:
        """The number of places of the point at each width."""
        return len(self.integers) // len({self.texts[i].split()[0] for i in self.integers})

    @property
    def space(self) -> search.Space:
        num_widths = len(self.integers) // self.num_points
        axes: dict[str, list[Scalar]] = {
            design.FULL: ["yes", "no"] if design.FULL in self.texts else [],
            "width": [*range(num_widths)],
            "point": [*range(self.num_points)],
        }
        named = {f"{layer} {axis}": axes[axis] for layer in self.layers for axis in axes}
        return {name: values for name, values in named.items() if len(values) > 1}

    def digits(self, point: search.Point) -> str:
        """The digits of the mix at a point of the space."""

        def digit(layer: str) -> int:
            if point.get(f"{layer} {design.FULL}") == "yes":
                return self.texts.index(design.FULL)
            width, place = (int(point.get(f"{layer} {axis}") or 0) for axis in ("width", "point"))
            return self.integers[width * self.num_points + place]

        return "".join(str(digit(layer)) for layer in self.layers)

    def point(self, digits: str) -> search.Point:
        """The point of the space with the mix of these digits."""
        point: dict[str, Scalar] = {}
        for layer, index in zip(self.layers, map(int, digits), strict=True):
            is_full = self.texts[index] == design.FULL
            width, place = divmod(0 if is_full else self.integers.index(index), self.num_points)
            coin = "yes" if is_full else "no"
            own = {design.FULL: coin, "width": width, "point": place}
            point |= {f"{layer} {axis}": value for axis, value in own.items()}
        return {name: point[name] for name in self.space}


def repaired(digits: str, sizes: Sequence[int], params: Params) -> str:
    """The digits of a mix within the budget: layers lose a width each until it holds.

    Which ones, is drawn at random, by the digits alone. Without a budget nothing changes.

    Raises:
        ValueError: the narrowest format for all layers is over the budget.
    """
    if params.get("budget") is None:
        return digits
    widths, rng, mix = widths_of(params), random.Random(digits), [*map(int, digits)]
    most = room(sizes, params)
    while sum(widths[i] * size for i, size in zip(mix, sizes, strict=True)) > most:
        wider = [at for at, i in enumerate(mix) if widths[i] > min(widths)]
        if not wider:
            raise ValueError(f"{min(widths)} bits for all layers are over {params['budget']}")
        layer = rng.choice(wider)
        narrower = [i for i, width in enumerate(widths) if width < widths[mix[layer]]]
        mix[layer] = max(narrower, key=widths.__getitem__)
    return "".join(map(str, mix))


# ---- on the tuning seed -------------------------------------------------------------------------


def search_mix(params: Params, ctx: Context) -> Values:
    """Search a mix, one format for each layer, by what a trial is `worth`.

    Returns the chosen mix, its bits and its losses as quantized, and what every trial was worth.
    """
    model = baseline.fine_tuned(params, ctx)
    trials = run_search(model, params, ctx)
    digits = chosen_of(trials, params)
    bits = set_mix_(model, digits, params)
    return {
        "names": precision.layer_names(model),
        "layers": digits,
        "bits": bits,
        **baseline.judge_on_validation(model, params, ctx.device),
        "tried": [trial.notes[str(params["by"])] for trial in trials],
        "num_at_random": sum(trial.at_random for trial in trials),
        "num_repaired": sum(trial.notes["is_repaired"] for trial in trials),
    }


def run_search(model: nn.Module, params: Params, ctx: Context) -> list[Trial]:
    """The trials of a case's search, which are run once, whichever case asks first.

    A mix over the budget is repaired, and the sampler is told what the repaired one is worth.
    """
    sizes = layer_sizes(model)
    axes = Axes(layers=[*sizes], texts=texts_of(params))

    def objective(point: search.Point) -> tuple[float, Mapping[str, Any]]:
        drawn = axes.digits(point)
        digits = repaired(drawn, [*sizes.values()], params)
        bits = set_mix_(model, digits, params)
        value, judged = worth(model, bits, params, ctx)
        return value, {"layers": digits, "bits": bits, "is_repaired": digits != drawn, **judged}

    apart = ("part", "mix", "tune_examples", "tune_learning_rate", "tune_batch_size")
    own = {name: value for name, value in params.items() if name not in apart}
    begin = [axes.point(digits) for digits in first_mixes([*sizes.values()], own, ctx)]
    return search.run_study(ctx, own, axes.space, objective, begin)[0]


def first_mixes(sizes: Sequence[int], params: Params, ctx: Context) -> list[str]:
    """The digits of the mixes that a search begins with, all within the budget."""
    if params.get("begin") is None:
        return []
    uniform = [str(index) * len(sizes) for index in range(len(texts_of(params)))]
    first = [digits for digits in uniform if repaired(digits, sizes, params) == digits]
    if params["begin"] == KNOWN:
        mixes = mixes_by_sensitivity(params, ctx)["mixes"].values()
        first += [str(mix["layers"]) for mix in mixes]
    return [*dict.fromkeys(first)]


def chosen_of(trials: Sequence[Trial], params: Params) -> str:
    """The digits of the best mix of a search; within a budget, of the best that has several widths.

    Raises:
        MadlError: within the budget, every trial has one width for all layers.
    """
    if params.get("budget") is not None:
        trials = [trial for trial in trials if is_mixed(str(trial.notes["layers"]))]
    if not trials:
        raise MadlError("every trial has one width for all layers, so there is no mix to compare")
    return str(max(trials, key=lambda trial: trial.value).notes["layers"])


def is_mixed(digits: str) -> bool:
    """Whether not all layers have the same format."""
    return len(set(digits)) > 1


def judge_single_formats(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Validation loss and accuracy of each format that is offered, on all layers."""
    tried: list[Values] = []
    for index, text in enumerate(texts_of(params)):
        set_mix_(model, uniform_digits(model, index), params)
        judged = baseline.judge_on_validation(model, params, ctx.device)
        tried.append({"format": text, **judged})
    return {"tried": tried}


def mixes_by_sensitivity(params: Params, ctx: Context) -> Values:
    """How far each layer at each width moves the model, all others at the widest; mixes by that.

    "ordered" makes narrow first what moves a loss least; the mixes of `design.ALLOCATED_BY` move
    the model least, added up. Made once: a search and a training take the same mixes.
    """

    def make() -> Values:
        model = baseline.fine_tuned(params, ctx)
        sizes, widths = layer_sizes(model), widths_of(params)
        plain = plain_losses(model, params, ctx)
        narrower = [width for width in widths if width < max(widths)]
        moves = by_measure(layer_moves(model, plain, sizes, narrower, params, ctx))
        by_loss = moves["moved"]
        order = sorted(by_loss, key=lambda layer: by_loss[layer][str(design.NARROW_BITS)])
        mixes = {"ordered": narrowed(sizes, order, params)}
        for name, measure in design.ALLOCATED_BY.items():
            mixes[name] = allocated(moves[measure], sizes, params)
        judged = {name: judge_beside(model, mix, plain, params, ctx) for name, mix in mixes.items()}
        return {"names": [*sizes], "sizes": [*sizes.values()], **moves, "mixes": judged}

    names = ("validation_examples", "formats", "budget")
    return search.memoized(ctx, baseline.recipe(params, names), make)


def allocated(
    moves: Mapping[str, Mapping[str, float]], sizes: Mapping[str, int], params: Params
) -> str:
    """The digits of the mix within the budget of which the summed `moves` are least."""
    widths = widths_of(params)
    costs = [[moves[layer].get(str(width), 0.0) for width in widths] for layer in sizes]
    counts = [*sizes.values()]
    return "".join(map(str, allocate(costs, counts, widths, room(counts, params))))


def judge_beside(
    model: nn.Module, digits: str, plain: Sequence[float], params: Params, ctx: Context
) -> Values:
    """A mix's digits, bits, validation loss and accuracy, and how far it moves the plain losses."""
    bits = set_mix_(model, digits, params)
    judged = on_validation(model, params, ctx)
    validation = {"validation_loss": judged.loss, "validation_accuracy": judged.accuracy}
    return {"layers": digits, "bits": bits, **validation, **distances(judged.losses, plain)}


# ---- one layer at a time ------------------------------------------------------------------------

Move = tuple[str, int, dict[str, float]]  # a layer, its width, and how far that moves the model


def on_validation(model: nn.Module, params: Params, ctx: Context) -> Evaluation:
    return evaluate(model, baseline.load_splits(params).validation, device=ctx.device)


def plain_losses(model: nn.Module, params: Params, ctx: Context) -> list[float]:
    """The loss of each validation sentence with all layers at the widest format; it stays set."""
    widths = widths_of(params)
    set_mix_(model, uniform_digits(model, widths.index(max(widths))), params)
    return on_validation(model, params, ctx).losses


def layer_moves(
    model: nn.Module,
    plain: Sequence[float],
    layers: Iterable[str],
    widths: Sequence[int],
    params: Params,
    ctx: Context,
) -> Iterator[Move]:
    """Yield (layer, width, how far that layer alone at that width moves the plain losses).

    The model has all layers at the widest format, and is left so.
    """
    formats = dict(zip(widths_of(params), map(read_format, texts_of(params))))
    for layer in layers:
        for width in widths:
            before = precision.set_layer_(model, layer, formats[width])
            losses = on_validation(model, params, ctx).losses
            set_module_(model, layer, before)
            yield layer, width, distances(losses, plain)


def distances(losses: Sequence[float], plain: Sequence[float]) -> dict[str, float]:
    """How far sentences' losses are from plain ones, on average, in nats.

    `moved` is the mean distance, up or down: in the mean itself, which is `signed`, they cancel,
    and a layer that ruins as many sentences as it mends would seem to do nothing. It holds the
    jitter of rounding, which `divergence`, that of the plain answers from these, hardly does.
    """
    differences = [loss - before for loss, before in zip(losses, plain, strict=True)]
    return {
        "moved": fmean(map(abs, differences)),
        "signed": fmean(differences),
        "divergence": fmean(map(divergence, plain, losses)),
    }


def divergence(plain: float, loss: float) -> float:
    """The Kullback-Leibler divergence of a plain answer from another one of the same sentence.

    Of two labels, a sentence's loss gives both probabilities: exp(-loss) is that of its own.
    """
    p_loss, q_loss = max(plain, LEAST_LOSS), max(loss, LEAST_LOSS)
    p, others = math.exp(-p_loss), [-math.expm1(-x) for x in (p_loss, q_loss)]
    return p * (q_loss - p_loss) + others[0] * math.log(others[0] / others[1])


def by_measure(moves: Iterable[Move]) -> dict[str, dict[str, dict[str, float]]]:
    """Measure → layer → width → how far it moves the model."""
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for layer, width, measured in moves:
        for measure, nats in measured.items():
            tables.setdefault(measure, {}).setdefault(layer, {})[str(width)] = nats
    return tables


def repeat_sensitivity(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Sensitivities of a block's layers, or of the head's, on a seed by which nothing is chosen."""
    number = None if params["block"] == "head" else int(params["block"] or 0)
    layers = [layer for layer in precision.layer_names(model) if block(layer) == number]
    plain = plain_losses(model, params, ctx)
    moves = by_measure(layer_moves(model, plain, layers, [design.NARROW_BITS], params, ctx))
    return {**moves, **baseline.judge_on_test(model, params, ctx.device)}


# ---- models -------------------------------------------------------------------------------------


def judge_mix(params: Params, ctx: Context) -> Values:
    """Judge a model with its mix, trained on (QAT) if the case's `part` is "trained"."""
    model = baseline.fine_tuned(params, ctx)
    bits = set_mix_(model, mix_digits(model, params, ctx), params)
    if params["part"] == "trained":
        baseline.retrain_(model, params, ctx.device)
    is_tuning = params["seed"] == TUNING_SEED
    judge = baseline.judge_on_validation if is_tuning else baseline.judge_on_test
    return {"bits": bits, **judge(model, params, ctx.device)}


def mix_digits(model: nn.Module, params: Params, ctx: Context) -> str:
    """The digits of a case's mix: as written, by an order, a search or sensitivity, or uniform."""
    if params.get("layers") is not None:
        return str(params["layers"])
    if params.get("order") is not None:
        sizes = layer_sizes(model)
        return narrowed(sizes, order_of([*sizes], params), params)
    if params.get("sampler") is not None:
        return chosen_of(run_search(model, params, ctx), params)
    if params.get("budget") is not None:
        return str(mixes_by_sensitivity(params, ctx)["mixes"][params["mix"]]["layers"])
    return uniform_digits(model)


def order_of(layers: Sequence[str], params: Params) -> list[str]:
    """The layers from the last to the first, or in an order that seed and `order` draw."""
    if params["order"] == LAST_FIRST:
        return [*layers[::-1]]
    return random.Random(f"{params['seed']} {params['order']}").sample(layers, len(layers))
