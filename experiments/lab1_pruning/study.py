"""What a case of the pruning study runs: a model pruned, trained on, judged; one layer timed.

Weights are ranked within a layer. Inputs are pruned by L1 through a threshold a layer, by chance
through features that are the same for every token; see `compression.prune.prune_inputs_`.

Units: seconds a call, bytes of the stored weight; magnitudes as the weights have them.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression import prune
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.machine import timing
from madl.training import baseline, compressed
from madl.training.data import batches_by_length
from madl.training.train import EVALUATION_BATCH, evaluate, train

CALIBRATION = 32  # training sentences that set the rules of inputs, alike in length: no padding
PROBE = 32  # validation sentences on which zeros are counted
LAYER = 4  # the first feed-forward matrix, the largest kind: shown and timed
BINS = 60
TOKENS = 256


def judged(params: Params, ctx: Context) -> Values:
    """A point on the test split; or what is shown or timed of one layer."""
    if params["part"] == "cost":
        return costs(params, ctx)
    if params["part"] == "magnitudes":
        return magnitudes(compressed.build(params, ctx), params)
    model, counted = point(params, ctx)
    return {**counted, **baseline.judge_on_test(model, params, ctx.device)}


def validated(params: Params, ctx: Context) -> Values:
    """What there is to choose a learning rate by."""
    model, counted = point(params, ctx)
    return {**counted, **baseline.judge_on_validation(model, params, ctx.device)}


def point(params: Params, ctx: Context) -> tuple[nn.Module, Values]:
    """The starting model, pruned and trained on as the parameters say, and what was counted."""
    if params["part"] == "nothing" and params.get("tune_learning_rate") is None:
        return as_width_study(params, ctx), {}
    model = compressed.build(params, ctx)
    before = [layer.weight.detach().clone() for layer in linear_layers(model)]
    masks = prune_(model, params)
    values: Values = {"kept": prune.magnitude_share(before, masks)} if masks else {}
    if params.get("recovery") is not None:
        train_on_(model, masks, params, ctx)
    values["zeros"] = zeros(model, params)
    if params.get("pruning") == "fresh random":
        values |= judged_twice(model, params, ctx)
    return model, values


def as_width_study(params: Params, ctx: Context) -> nn.Module:
    """Nothing removed, trained on as question 1.1 does it: a checkpoint of its is taken."""
    same = {name: params[name.replace("tune", "recovery")] for name in compressed.TUNE_FIELDS}
    return compressed.build({**params, **same}, ctx)


def prune_(model: nn.Module, params: Params) -> list[Tensor]:
    """Mask weights and prune inputs; returns the masks of weights, where there are any."""
    part, method, seed = params["part"], str(params.get("pruning")), int(params["seed"] or 0)
    sparsity = float(params["sparsity"] or 0)
    masks: list[Tensor] = []
    if part in ("weights", "both"):
        masks = prune.prune_(model, sparsity=sparsity, method=method, seed=seed)
    if part in ("inputs", "both"):
        batch = calibration(params) if method == "l1" else None
        prune.prune_inputs_(model, sparsity=sparsity, method=method, seed=seed, calibration=batch)
    return masks


def calibration(params: Params) -> dict[str, Tensor]:
    """Sentences of the middle length."""
    data = baseline.load_splits(params).train.first(32 * CALIBRATION)
    batches = list(batches_by_length(data, CALIBRATION))
    return data.batch(batches[len(batches) // 2])


def train_on_(model: nn.Module, masks: list[Tensor], params: Params, ctx: Context) -> None:
    """The masks hold meanwhile."""
    examples = params["recovery_examples"]
    assert examples is None or isinstance(examples, int)
    data = baseline.load_splits(params).train.first(examples)
    recipe = baseline.training_recipe(params, prefix="recovery_", epochs=1)
    train(model, data, recipe, device=ctx.device)
    for layer, mask in zip(linear_layers(model), masks):
        assert not layer.weight.detach().cpu()[~mask].any(), "a mask did not hold"


def zeros(model: nn.Module, params: Params) -> Values:
    """Counted on validation sentences, padding left out."""
    probe = baseline.load_splits(params).validation.first(PROBE)
    batches = batches_by_length(probe, EVALUATION_BATCH)
    return prune.product_zeros(model.cpu(), (probe.batch(indices) for indices in batches))


def judged_twice(model: nn.Module, params: Params, ctx: Context) -> Values:
    """How many validation sentences are answered otherwise the second time."""
    data = baseline.load_splits(params).validation
    first, again = (evaluate(model, data, device=ctx.device).correct for _ in range(2))
    return {"changed": sum(a != b for a, b in zip(first, again, strict=True)), "of": len(data)}


# ---- one layer ----------------------------------------------------------------------------------


def magnitudes(model: nn.Module, params: Params) -> Values:
    """How many weights of the layer, and how many that each mask keeps, are of each magnitude.

    The bins, all of one width, reach from zero to the 99.9th percentile (`top`).
    """
    weights = [layer.weight.detach() for layer in linear_layers(model)]
    sparsity, seed = float(params["sparsity"] or 0), int(params["seed"] or 0)
    top = float(weights[LAYER].abs().flatten().quantile(0.999))

    def histogram(values: Tensor) -> list[float]:
        return torch.histc(values.abs(), bins=BINS, min=0.0, max=top).tolist()

    found: Values = {"top": top, "all": histogram(weights[LAYER])}
    for method in prune.METHODS:
        masks = prune.weight_masks(weights, sparsity=sparsity, method=method, seed=seed)
        found |= {method: histogram(weights[LAYER][masks[LAYER]])}
    return found


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
    return {**found, "bytes": {str(s): stored_bytes(masked(weight, s)) for s in sparsities}}


def masked(weight: Tensor, sparsity: float) -> Tensor:
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method="l1")
    return weight.detach() * mask


@torch.no_grad()
def timed_products(argument: Mapping[str, Any]) -> Values:
    """Products of one input with the weight: dense, and at each sparsity masked and as CSR.

    For `machine.fresh.call`.
    """
    torch.set_num_threads(argument["threads"])
    device, budget_s = argument["device"], argument["budget_s"]
    weight = torch.from_numpy(np.load(argument["path"])).to(device)
    x = torch.randn(TOKENS, weight.shape[1], device=device)  # (tokens, in_features)
    calls: dict[str, timing.Call] = {"dense": lambda: F.linear(x, weight)}
    for sparsity in argument["sparsities"]:
        calls |= products(x, str(sparsity), masked(weight, sparsity))
    subjects = {name: timing.observe(call, [x]) for name, call in calls.items()}
    measured = timing.compare(calls, device=device, budget_s=budget_s, subjects=subjects)
    return {"measurements": {name: one.to_json() for name, one in measured.items()}}


def products(x: Tensor, sparsity: str, weight: Tensor) -> dict[str, timing.Call]:
    sparse = weight.to_sparse_csr()
    assert torch.allclose(sparse @ x.T, F.linear(x, weight).T, atol=1e-3)
    return {
        f"masked {sparsity}": lambda: F.linear(x, weight),
        f"csr {sparsity}": lambda: sparse @ x.T,
    }


def stored_bytes(weight: Tensor) -> dict[str, int]:
    """Of the dense array, and of CSR in float32 with 32-bit columns."""
    kept = int((weight != 0).sum())
    return {"dense": 4 * weight.numel(), "csr": 8 * kept + 4 * (weight.shape[0] + 1)}
