"""One pruned layer by itself: which weights its mask keeps, and what its zeros cost.

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
from torch import Tensor

from madl.compression import prune
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params
from madl.machine import timing
from madl.training import compressed

LAYER = 4  # the first feed-forward matrix, the largest kind
BINS = 60
TOKENS = 256


def histogram(weights: Sequence[Tensor], masks: Sequence[Tensor]) -> dict[str, Any]:
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


# ---- what zeros cost ----------------------------------------------------------------------------


def costs(params: Params, ctx: Context) -> dict[str, Any]:
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
        function = "experiments.lab1_pruning.pruned_layer:timed_products"
        processes = int(params["processes"] or 1)
        found = timing.over_processes(function, argument, processes=processes)
    return {**found, "bytes": {str(s): _bytes(_pruned(weight, s)) for s in sparsities}}


def _pruned(weight: Tensor, sparsity: float) -> Tensor:
    (mask,) = prune.weight_masks([weight], sparsity=sparsity, method="l1")
    return weight.detach() * mask


@torch.no_grad()
def timed_products(argument: Mapping[str, Any]) -> dict[str, Any]:
    """Products of one input with the weight: dense, and at each sparsity masked and as CSR.

    For `machine.fresh.call`. `inputs` is the dense product of inputs that a threshold prunes first.
    """
    torch.set_num_threads(argument["threads"])
    device, budget_s = argument["device"], argument["budget_s"]
    weight = torch.from_numpy(np.load(argument["path"])).to(device)
    pruned = {str(s): _pruned(weight, s) for s in argument["sparsities"]}
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
