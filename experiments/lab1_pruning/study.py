"""Prune a model, train it on, judge it; time one of its layers.

Weights are ranked within a layer. Inputs are pruned by L1 through a threshold for each layer, at
random through features that are the same for every token; see `compression.prune.prune_inputs_`.

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

from experiments.lab1_pruning import design
from madl.compression import prune
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Values
from madl.machine import timing
from madl.training import baseline, compressed
from madl.training.data import batches_by_length, middle_batch
from madl.training.train import EVALUATION_BATCH, evaluate

BINS = 60


def run(params: Params, ctx: Context) -> Values:
    """Run one case: a pruned model, judged, or the costs or the magnitudes of a layer.

    A model is judged on validation on the tuning seed, on test on any other.
    """
    if params["part"] == "cost":
        return layer_costs(params, ctx)
    if params["part"] == "magnitudes":
        return magnitudes(compressed.build(params, ctx), params)
    is_tuning = params["seed"] == TUNING_SEED
    judge = baseline.judge_on_validation if is_tuning else baseline.judge_on_test
    if params["part"] == "nothing":
        return judge(build_control(params, ctx), params, ctx.device)
    model = compressed.build(params, ctx)
    before = [layer.weight.detach().clone() for layer in linear_layers(model)]
    masks = prune_(model, params)
    values: Values = {"kept": prune.magnitude_share(before, masks)} if masks else {}
    if params.get("recovery") is not None:
        train_on_(model, masks, params, ctx)
    values["zeros"] = zeros(model, params)
    if params.get("pruning") == "fresh random":
        values |= judged_twice(model, params, ctx)
    return {**values, **judge(model, params, ctx.device)}


def build_control(params: Params, ctx: Context) -> nn.Module:
    """The model with nothing removed, trained by 1.1's recipe: its checkpoint, if it is there."""
    tune = {name: params[name.replace("tune", "recovery")] for name in compressed.TUNE_FIELDS}
    return compressed.build({**params, **tune}, ctx)


def prune_(model: nn.Module, params: Params) -> list[Tensor]:
    """Prune a model's weights, inputs or both; returns the masks of its weights, or no masks."""
    part, method, seed = params["part"], str(params.get("pruning")), int(params["seed"] or 0)
    sparsity = float(params["sparsity"] or 0)
    masks: list[Tensor] = []
    how: Any = {"sparsity": sparsity, "method": method, "seed": seed}
    if part in ("weights", "both"):
        batch = calibration(params) if method == "wanda" else None
        masks = prune.prune_(model, **how, calibration=batch)
    if part in ("inputs", "both"):
        batch = calibration(params) if method == "l1" else None
        prune.prune_inputs_(model, **how, calibration=batch)
    return masks


def calibration(params: Params) -> dict[str, Tensor]:
    """A batch of training sentences of middle length: for L1's thresholds of inputs, and Wanda."""
    data = baseline.load_splits(params).train.first(32 * design.CALIBRATION_SENTENCES)
    return middle_batch(data, design.CALIBRATION_SENTENCES)


def train_on_(model: nn.Module, masks: list[Tensor], params: Params, ctx: Context) -> None:
    """Train a pruned model on; masked weights stay zero."""
    baseline.retrain_(model, params, ctx.device, prefix="recovery_")
    for layer, mask in zip(linear_layers(model), masks):
        assert not layer.weight.detach().cpu()[~mask].any(), "a mask did not hold"


def zeros(model: nn.Module, params: Params) -> Values:
    """Shares of zeros, and of products left, in all layers, on validation without padding."""
    probe = baseline.load_splits(params).validation.first(design.PROBE_SENTENCES)
    batches = batches_by_length(probe, EVALUATION_BATCH)
    return prune.product_zeros(model.cpu(), (probe.batch(indices) for indices in batches))


def judged_twice(model: nn.Module, params: Params, ctx: Context) -> Values:
    """Evaluate validation twice: how many sentences `changed` between right and wrong."""
    data = baseline.load_splits(params).validation
    first, again = (evaluate(model, data, device=ctx.device).correct for _ in range(2))
    return {"changed": sum(a != b for a, b in zip(first, again, strict=True)), "of": len(data)}


# ---- one layer ----------------------------------------------------------------------------------


def magnitudes(model: nn.Module, params: Params) -> Values:
    """Histograms of the layer's weights by magnitude: of all, and of those that each mask keeps.

    The bins, all of one width, reach from zero to the 99.9th percentile (`top`).
    """
    weights = [layer.weight.detach() for layer in linear_layers(model)]
    sparsity, seed = float(params["sparsity"] or 0), int(params["seed"] or 0)
    top = float(weights[design.LAYER].abs().flatten().quantile(0.999))

    def histogram(values: Tensor) -> list[float]:
        return torch.histc(values.abs(), bins=BINS, min=0.0, max=top).tolist()

    values: Values = {"top": top, "all": histogram(weights[design.LAYER])}
    for method in ("random", "l1"):
        masks = prune.weight_masks(weights, sparsity=sparsity, method=method, seed=seed)
        values[method] = histogram(weights[design.LAYER][masks[design.LAYER]])
    return values


def layer_costs(params: Params, ctx: Context) -> Values:
    """One layer's times, dense, smaller, masked and as CSR, from several processes; its bytes."""
    weight = linear_layers(compressed.build(params, ctx))[design.LAYER].weight
    sparsities = list(map(float, str(params["sparsities"]).split(", ")))
    with tempfile.TemporaryDirectory(prefix="madl-layer-") as folder:
        path = Path(folder) / "weight.npy"
        np.save(path, weight.detach().numpy())
        argument = {
            **{"path": str(path), "sparsities": sparsities, "device": ctx.device},
            **{"budget_s": params["budget_s"], "threads": torch.get_num_threads()},
        }
        function = "experiments.lab1_pruning.study:timed_products"
        processes = int(params["processes"] or 1)
        times = timing.over_processes(function, argument, processes=processes)
    return {**times, "bytes": {str(s): stored_bytes(masked(weight, s)) for s in sparsities}}


def masked(weight: Tensor, sparsity: float) -> Tensor:
    """The weight with the share `sparsity` of its values, the smallest magnitudes, set to zero."""
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method="l1")
    return weight.detach() * mask


@torch.no_grad()
def timed_products(argument: Mapping[str, Any]) -> Values:
    """Time products of one input with the weight: dense, with half of its rows, masked and as CSR.

    A fresh process calls it.
    """
    torch.set_num_threads(argument["threads"])
    device, budget_s = argument["device"], argument["budget_s"]
    weight = torch.from_numpy(np.load(argument["path"])).to(device)
    x = torch.randn(design.TIMED_TOKENS, weight.shape[1], device=device)  # (tokens, in_features)
    rows = weight[: len(weight) // 2]
    calls: dict[str, timing.Call] = {
        "dense": lambda: F.linear(x, weight),
        "half of the rows": lambda: F.linear(x, rows),
    }
    for sparsity in argument["sparsities"]:
        calls |= products(x, str(sparsity), masked(weight, sparsity))
    subjects = {name: timing.observe(call, [x]) for name, call in calls.items()}
    times = timing.compare(calls, device=device, budget_s=budget_s, subjects=subjects)
    return {"measurements": {name: time.to_json() for name, time in times.items()}}


def products(x: Tensor, sparsity: str, weight: Tensor) -> dict[str, timing.Call]:
    """Calls of the product with a masked weight, as it is and as CSR, by name."""
    sparse = weight.to_sparse_csr()
    assert torch.allclose(sparse @ x.T, F.linear(x, weight).T, atol=1e-3)
    return {
        f"masked {sparsity}": lambda: F.linear(x, weight),
        f"csr {sparsity}": lambda: sparse @ x.T,
    }


def stored_bytes(weight: Tensor) -> dict[str, int]:
    """Bytes of the dense array, and of CSR in float32 with 32-bit columns."""
    nonzero = int((weight != 0).sum())
    return {"dense": 4 * weight.numel(), "csr": 8 * nonzero + 4 * (weight.shape[0] + 1)}
