"""One point of the pruning study: a model pruned, judged, trained on and judged again."""

from typing import Any

from torch import Tensor, nn

from experiments.lab1_pruning import pruned_layer
from madl.compression import prune
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.training import baseline, compressed
from madl.training.data import batches_by_length
from madl.training.precision import for_few_steps_
from madl.training.train import EVALUATION_BATCH, evaluate, train

CALIBRATION = 32  # training sentences that set the rules of inputs, alike in length: no padding

Values = dict[str, Any]


def study(params: Params, ctx: Context) -> Values:
    """Before training on, and after it where `recovery_…` parameters ask for it."""
    model, masks = _pruned(params, ctx)
    values: Values = {"zeros": _zeros(model, params)}
    if params["part"] in ("weights", "mask"):
        weights = [one.weight for one in linear_layers(compressed.build(params, ctx))]
        values["kept"] = prune.magnitude_share(weights, masks)
        values["histogram"] = pruned_layer.histogram(weights, masks)
    if params["part"] != "nothing":  # that model is the width study's, which has judged it
        values["before"] = _judged(model, params, ctx)
    if params.get("pruning") == "fresh random":
        values |= _judged_twice(model, params, ctx)
    if params.get("recovery_examples") is not None:
        _train_on_(model, masks, params, ctx)
        values["after"] = _judged(model, params, ctx)
        values["zeros_after"] = _zeros(model, params)
    return values


def _judged(model: nn.Module, params: Params, ctx: Context) -> Values:
    """On validation too where something is chosen by it: among points that chance did not prune."""
    by_chance = str(params.get("pruning")).endswith("random")
    judge = baseline.judge_on_test if by_chance else baseline.judge
    return judge(model, params, ctx.device)


def _judged_twice(model: nn.Module, params: Params, ctx: Context) -> Values:
    """How many validation sentences are answered otherwise the second time."""
    data = baseline.load_splits(params).validation
    first, again = (evaluate(model, data, device=ctx.device).correct for _ in range(2))
    return {"changed": sum(a != b for a, b in zip(first, again, strict=True)), "of": len(data)}


def draws(params: Params, ctx: Context) -> Values:
    """Several random masks at one sparsity, judged on validation before any training."""
    found: list[Values] = []
    for draw in range(int(params["draws"] or 0)):
        model, _ = _pruned(params, ctx, draw=draw)
        found.append(baseline.judge_on_validation(model, params, ctx.device))
    return {"draws": found}


def rates(params: Params, ctx: Context) -> Values:
    """One point trained on at several learning rates, judged on validation."""
    found: dict[str, Values] = {}
    for rate in str(params["rates"]).split(", "):
        model, masks = _pruned(params, ctx)
        _train_on_(model, masks, {**params, "recovery_learning_rate": float(rate)}, ctx)
        found[rate] = baseline.judge_on_validation(model, params, ctx.device)
    return {"rates": found}


def _pruned(
    params: Params, ctx: Context, *, draw: int | None = None
) -> tuple[nn.Module, list[Tensor]]:
    """The starting model with weights masked and inputs pruned, and the masks it was given."""
    model, part = compressed.build(params, ctx, exact_products=True), params["part"]
    method, sparsity = str(params.get("pruning")), float(params["sparsity"] or 0)
    seed = int(params.get("mask") or params["seed"] or 0) if draw is None else draw
    masks: list[Tensor] = []
    if part not in ("nothing", "inputs"):
        masks = prune.prune_(model, sparsity=sparsity, method=method, seed=seed)
    if part in ("inputs", "both"):
        batch = _calibration(params) if method.startswith("l1") else None
        prune.prune_inputs_(model, sparsity=sparsity, method=method, seed=seed, calibration=batch)
    return model, masks


def _calibration(params: Params) -> dict[str, Tensor]:
    """Sentences of the middle length."""
    data = baseline.load_splits(params).train.first(32 * CALIBRATION)
    batches = list(batches_by_length(data, CALIBRATION))
    return data.batch(batches[len(batches) // 2])


def _zeros(model: nn.Module, params: Params) -> dict[str, float]:
    """Counted on validation sentences, padding left out."""
    probe = baseline.load_splits(params).validation.first(int(params["probe_examples"] or 0))
    batches = batches_by_length(probe, EVALUATION_BATCH)
    return prune.product_zeros(model.cpu(), (probe.batch(indices) for indices in batches))


def _train_on_(model: nn.Module, masks: list[Tensor], params: Params, ctx: Context) -> None:
    """The masks hold meanwhile."""
    data = baseline.load_splits(params).train.first(int(params["recovery_examples"] or 0))
    recipe = baseline.training_recipe(params, prefix="recovery_", epochs=1)
    for_few_steps_(model)
    train(model, data, recipe, device=ctx.device)
    for layer, mask in zip(linear_layers(model), masks):
        assert not layer.weight.detach().cpu()[~mask].any(), "a mask did not hold"
