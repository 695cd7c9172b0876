"""What a case of the pruning study runs: a model pruned, judged, trained on; one layer timed.

Weights are ranked within a layer. Inputs are pruned by L1 through a threshold a layer, by chance
through features that are the same for every token; see `compression.prune.prune_inputs_`.

Units: seconds a call, bytes of the stored weight; magnitudes as the weights have them.
"""

import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression import prune
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.machine import timing
from madl.training import baseline, compressed
from madl.training.data import batches_by_length
from madl.training.precision import for_few_steps_
from madl.training.train import EVALUATION_BATCH, evaluate, train

CALIBRATION = 32  # training sentences that set the rules of inputs, alike in length: no padding
LAYER = 4  # the first feed-forward matrix, the largest kind: shown and timed
BINS = 60
TOKENS = 256

Values = dict[str, Any]


def run(params: Params, ctx: Context) -> Values:
    """One case, by its part."""
    of_part = {"cost": costs, "draws": draws, "rates": rates}
    return of_part.get(str(params["part"]), _point)(params, ctx)


def _point(params: Params, ctx: Context) -> Values:
    """Judged before training on, and after it where `recovery_…` parameters ask for it."""
    model, masks = _pruned(params, ctx)
    values: Values = {"zeros": _zeros(model, params)}
    if params["part"] in ("weights", "mask"):
        weights = [one.weight for one in linear_layers(compressed.build(params, ctx))]
        values["kept"] = prune.magnitude_share(weights, masks)
        values["histogram"] = histogram(weights, masks)
    if params["part"] != "nothing":  # that model is judged by question 1.1
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


def histogram(weights: Sequence[Tensor], masks: Sequence[Tensor]) -> Values:
    """How many weights of the layer, and how many that its mask keeps, are of each magnitude.

    The bins, all of one width, reach from zero to the 99.9th percentile (`top`).
    """
    magnitude, mask = weights[LAYER].detach().abs(), masks[LAYER]
    top = float(magnitude.flatten().quantile(0.999))
    all_weights, kept = (
        torch.histc(found, bins=BINS, min=0.0, max=top).tolist()
        for found in (magnitude, magnitude[mask])
    )
    return {"all": all_weights, "kept": kept, "top": top}


# ---- what zeros cost, in one layer --------------------------------------------------------------


def costs(params: Params, ctx: Context) -> Values:
    """The layer's product in several processes, dense, masked and as CSR, and its bytes."""
    weight = linear_layers(compressed.build(params, ctx))[LAYER].weight
    sparsities = [float(one) for one in str(params["sparsities"]).split(", ")]
    with tempfile.TemporaryDirectory(prefix="madl-layer-") as folder:
        path = Path(folder) / "weight.npy"
        np.save(path, weight.detach().numpy())
        argument = {
            **{"path": str(path), "sparsities": sparsities, "device": ctx.device},
            **{"budget_s": params["budget_s"], "threads": torch.get_num_threads()},
        }
        function = "experiments.lab1_pruning.study:timed_products"
        processes = int(params["processes"] or 1)
        found = timing.over_processes(function, argument, processes=processes)
    return {**found, "bytes": {str(s): _bytes(_masked(weight, s)) for s in sparsities}}


def _masked(weight: Tensor, sparsity: float) -> Tensor:
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method="l1")
    return weight.detach() * mask


@torch.no_grad()
def timed_products(argument: Mapping[str, Any]) -> Values:
    """Products of one input with the weight: dense, and at each sparsity masked and as CSR.

    For `machine.fresh.call`. `inputs` is the dense product of inputs that a threshold prunes first.
    """
    torch.set_num_threads(argument["threads"])
    device, budget_s = argument["device"], argument["budget_s"]
    weight = torch.from_numpy(np.load(argument["path"])).to(device)
    pruned = {str(s): _masked(weight, s) for s in argument["sparsities"]}
    x = torch.randn(TOKENS, weight.shape[1], device=device)  # (tokens, in_features)
    threshold = float(x.abs().median())
    calls: dict[str, timing.Call] = {
        "dense": lambda: F.linear(x, weight),
        "inputs": lambda: F.linear(F.hardshrink(x, threshold), weight),
    }
    for sparsity, masked in pruned.items():
        sparse = masked.to_sparse_csr()
        assert torch.allclose(sparse @ x.T, F.linear(x, masked).T, atol=1e-3)
        calls |= _products(x, sparsity, masked, sparse)
    subjects = {name: timing.observe(call, [x]) for name, call in calls.items()}
    measured = timing.compare(calls, device=device, budget_s=budget_s, subjects=subjects)
    return {"measurements": {name: one.to_json() for name, one in measured.items()}}


def _products(x: Tensor, sparsity: str, masked: Tensor, sparse: Tensor) -> dict[str, timing.Call]:
    return {
        f"masked {sparsity}": lambda: F.linear(x, masked),
        f"csr {sparsity}": lambda: sparse @ x.T,
    }


def _bytes(weight: Tensor) -> dict[str, int]:
    """Of the dense array, of CSR, and of the dense array through a general compressor."""
    kept = int((weight != 0).sum())
    return {
        "dense": 4 * weight.numel(),
        # a value and a 32-bit column for each kept weight, and where each row starts
        "csr": 8 * kept + 4 * (weight.shape[0] + 1),
        "zip": len(zlib.compress(weight.cpu().numpy().tobytes(), 6)),
    }
