"""A format for every layer: by searches, for all layers alike, and put together by sensitivity.

Quantizing is deterministic and nothing is trained on, so a model is a function of its choices. A
trial is judged on the first validation sentences, what a search chose on all of them, and on the
test split only what is reported.

Where one layer varies at a time, the outputs of the blocks before it are kept from one evaluation
(in memory, float32) and given again: the losses are those of a plain evaluation to the last bit. A
block may read nothing but its predecessor's output and what all blocks are given.

Units: bits per weight; changes of a loss in ten-thousandths of a nat, as whole numbers.
"""

import random
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from torch import nn

from madl.compression.quantize import set_module_
from madl.formats.fixed import FixedPoint
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline, precision, search
from madl.training.data import Encoded
from madl.training.precision import LayerFormat, Operands, Precision
from madl.training.train import Evaluation, evaluate
from madl.training.width_space import PARTS_OF_A_NAT, Choice, Choices, Space, block, numbers

Outputs = list[list[Any]]  # of every block: what it gave for each batch, in their order


def run(params: Params, ctx: Context) -> Values:
    """A case: of a search, of what is the same everywhere, or of single layers."""
    part = {
        **{"search": searched, "uniform": uniform, "alone": alone},
        **{"sensitivity": assembled, "blind": dealt},
    }[str(params["part"])]
    return part(baseline.fine_tuned(params, ctx), params, ctx)


def format_of(choice: Choice) -> LayerFormat:
    """The number formats of a layer's operands."""
    width, fraction, given = choice
    weight = FixedPoint(width=width, frac_width=fraction)
    if fraction == given:
        return weight
    return Operands(weight=weight, input=FixedPoint(width=width, frac_width=given))


def precision_of(choices: Choices) -> Precision:
    return {layer: format_of(choice) for layer, choice in choices.items()}


# ---- searches -----------------------------------------------------------------------------------


def trial(model: nn.Module, choices: Choices, params: Params, ctx: Context) -> dict[str, float]:
    """What a search is told: the accuracy of a model within the budget, else the bits too many.

    A model over the budget is worth less than any within it, and is not evaluated.
    """
    formats = precision_of(choices)
    bits, budget = precision.mean_bits(model, formats), Space.of(params).budget
    if bits > budget:
        return {"value": budget - bits, "bits": bits}
    data = baseline.load_splits(params).validation.first(int(params["trial_examples"] or 0))
    accuracy = precision.judge(model, formats, data, ctx.device).accuracy
    return {"value": accuracy, "bits": bits}


def searched(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Every study of a case; of what they chose, the best is tested."""
    layers, space = precision.layer_names(model), Space.of(params)

    def objective(point: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
        choices = space.choices(point, layers)
        coarsest = min(choices[layer][1] for layer in layers if block(layer) is None)
        found = trial(model, choices, params, ctx)
        return found["value"], {"bits": found["bits"], "head": coarsest}

    studies = [
        search.search(
            search.study_folder(ctx, {**params, "study": study}),
            space.parameters(layers),
            objective,
            sampler=str(params["sampler"]),
            seed=1000 * int(params["seed"] or 0) + study,
            trials=int(params["trials"] or 0),
        )
        for study in range(int(params["studies"] or 0))
    ]
    values: dict[str, Any] = {
        "layers": layers,
        "studies": [[{"value": one.value, **one.notes} for one in study] for study in studies],
        "settings": search.settings(str(params["sampler"])),
        "sentences": len(baseline.load_splits(params).validation),
    }
    chosen: list[dict[str, Any]] = []
    for study in studies:
        best = max(study, key=lambda one: one.value)
        choices = space.choices(best.point, layers)
        chosen.append({"choices": choices, **best.notes, **_validated(model, choices, params, ctx)})
    best = max(chosen, key=_preferred)
    return {**values, "chosen": chosen, **best, **_tested(model, best["choices"], params, ctx)}


def _preferred(judged: Mapping[str, Any]) -> tuple[float, float]:
    """What validation prefers is the largest."""
    return judged["validation_accuracy"], -judged["validation_loss"]


def _validated(model: nn.Module, choices: Choices, params: Params, ctx: Context) -> Values:
    precision.set_precision_(model, precision_of(choices))
    return baseline.judge_on_validation(model, params, ctx.device)


def _tested(model: nn.Module, choices: Choices, params: Params, ctx: Context) -> Values:
    precision.set_precision_(model, precision_of(choices))
    return baseline.judge_on_test(model, params, ctx.device)


# ---- what searches are held against -------------------------------------------------------------


def uniform(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Each of the space's formats within the budget on all layers, on a trial's sentences.

    At the widths that the case tests also those around them, where it says so. The better half of
    each of these widths is chosen from on all of validation, and its best is tested.
    """
    layers, space = precision.layer_names(model), Space.of(params)
    offered, tested = space.uniform(), numbers(params["tested"])
    around = [one for width in tested for one in space.around(width)] if params["around"] else []

    def everywhere(choice: Choice) -> Choices:
        return dict.fromkeys(layers, choice)

    tried: list[dict[str, Any]] = [
        {"choice": one, "offered": one in offered, **trial(model, everywhere(one), params, ctx)}
        for one in dict.fromkeys((*offered, *around))
    ]
    at: dict[str, Values] = {}
    for width in tested:
        judged = [
            {"choice": one["choice"], **_validated(model, everywhere(one["choice"]), params, ctx)}
            for one in better_half([one for one in tried if one["choice"][0] == width])
        ]
        best = max(judged, key=_preferred)
        test = _tested(model, everywhere(best["choice"]), params, ctx)
        at[str(width)] = {"judged": judged, "bits": float(width), **best, **test}
    return {"trials": tried, "at": at}


def better_half(tried: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By value, the first of equal ones; of an odd number, the one in the middle too."""
    return sorted(tried, key=lambda one: -one["value"])[: -(-len(tried) // 2)]


# ---- one layer at a time ------------------------------------------------------------------------


def alone(model: nn.Module, params: Params, ctx: Context) -> Values:
    """What each other format does in one layer to some sentences, all layers else the base."""
    data = baseline.load_splits(params).validation.first(int(params["sentences"] or 0))
    base = precision.uniform(model, format_of(_choice(params["base"])))
    found: dict[str, Any] = {}
    for other in str(params["others"]).split(", "):
        judged = one_at_a_time(model, base, format_of(_choice(other)), data, ctx.device)
        found[other] = _changes(*judged)
    return {"layers": precision.layer_names(model), "alone": found}


def _changes(plain: Evaluation, found: Mapping[str, Evaluation]) -> dict[str, list[int]]:
    return {
        layer: [round(PARTS_OF_A_NAT * (a - b)) for a, b in zip(judged.losses, plain.losses)]
        for layer, judged in found.items()
    }


def assembled(model: nn.Module, params: Params, ctx: Context) -> Values:
    """What one narrow layer among wide ones does to each sentence; and a model made of that.

    Every other sentence decides the order in which layers become narrow; a page can test on the
    rest what these say.
    """
    wide, narrow = (_choice(params[end]) for end in ("wide", "narrow"))
    data, layers = baseline.load_splits(params).validation, precision.layer_names(model)
    everywhere = precision.uniform(model, format_of(wide))
    judged = one_at_a_time(model, everywhere, format_of(narrow), data, ctx.device)
    changes = _changes(*judged)
    models = [
        {layer: narrow if layer in taken else wide for layer in layers}
        for taken in narrowed({layer: change[::2] for layer, change in changes.items()})
    ]
    bits = [precision.mean_bits(model, precision_of(one)) for one in models]
    count = next(i for i, one in enumerate(bits) if one <= Space.of(params).budget)
    path: list[dict[str, Any]] = []
    for i in sorted({count, *steps(len(layers), int(params["steps"] or 1))}):
        judged = _validated(model, models[i], params, ctx)
        path.append({"narrow": i, "bits": bits[i], **judged})
    return {
        **{"layers": layers, "changes": changes, "path": path, "choices": models[count]},
        **next(one for one in path if one["narrow"] == count),
        **_tested(model, models[count], params, ctx),
    }


def dealt(model: nn.Module, params: Params, ctx: Context) -> Values:
    """The same two formats in orders drawn at random: of several, the one that validation prefers.

    As many layers become narrow in each as its budget asks for.
    """
    wide, narrow = (_choice(params[end]) for end in ("wide", "narrow"))
    layers, budget = precision.layer_names(model), Space.of(params).budget
    tried: list[dict[str, Any]] = []
    for draw in range(int(params["draws"] or 0)):
        order = random.Random(1000 * int(params["seed"] or 0) + draw).sample(layers, len(layers))
        choices, count = dict.fromkeys(layers, wide), 0
        while precision.mean_bits(model, precision_of(choices)) > budget:
            choices[order[count]], count = narrow, count + 1
        bits = precision.mean_bits(model, precision_of(choices))
        judged = _validated(model, choices, params, ctx)
        tried.append({"choices": choices, "narrow": count, "bits": bits, **judged})
    best = max(tried, key=_preferred)
    return {"tried": tried, **best, **_tested(model, best["choices"], params, ctx)}


def _choice(text: Any) -> Choice:
    width, fraction, given = numbers(text)
    return width, fraction, given


def narrowed(changes: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Which layers are narrow in each model from none to all: first those that move a loss least.

    By the mean distance, up or down: in the mean itself they cancel, and a layer that ruins as many
    sentences as it mends would seem to do nothing.
    """
    order = sorted(changes, key=lambda layer: fmean(map(abs, changes[layer])))
    return [order[:count] for count in range(len(order) + 1)]


def steps(num_layers: int, count: int) -> list[int]:
    """How many layers are narrow in so many models on the way, from none to all."""
    return sorted({round(num_layers * i / max(count - 1, 1)) for i in range(count)})


# ---- what comes before the varied block is computed once -----------------------------------------


def one_at_a_time(
    model: nn.Module, everywhere: Precision, other: LayerFormat, data: Encoded, device: str = "cpu"
) -> tuple[Evaluation, dict[str, Evaluation]]:
    """The model in a precision, and with the other format in each of its Linear layers alone."""
    precision.set_precision_(model, everywhere)
    with recorded(model) as outputs:
        plain = evaluate(model, data, device=device)
    found: dict[str, Evaluation] = {}
    for name in precision.layer_names(model):
        before = precision.set_layer_(model, name, other)
        with replayed(model, outputs[: block(name)]):  # of the head: all
            found[name] = evaluate(model, data, device=device)
        set_module_(model, name, before)
    return plain, found


def blocks(model: nn.Module) -> nn.ModuleList:
    """The encoder's blocks, in the order in which they run: the model's first list of modules."""
    return next(module for module in model.modules() if isinstance(module, nn.ModuleList))


@contextmanager
def recorded(model: nn.Module) -> Generator[Outputs]:
    """Keep what every block gives while this lasts."""
    outputs: Outputs = [[] for _ in blocks(model)]

    def keep(number: int) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            outputs[number].append(output)

        return hook

    hooks = [one.register_forward_hook(keep(i)) for i, one in enumerate(blocks(model))]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def replayed(model: nn.Module, outputs: Sequence[Sequence[Any]]) -> Generator[None]:
    """While this lasts, the first blocks give what they gave, to the same batches in order."""
    every = blocks(model)
    skipped = list(every)[: len(outputs)]
    for i, kept in enumerate(outputs):
        every[i] = _Replay(kept)
    try:
        yield
    finally:
        for i, one in enumerate(skipped):
            every[i] = one


class _Replay(nn.Module):
    """Gives what was kept, one batch a call."""

    def __init__(self, kept: Sequence[Any]) -> None:
        super().__init__()
        self._left = iter(kept)

    def forward(self, *_: Any, **__: Any) -> Any:
        return next(self._left)
