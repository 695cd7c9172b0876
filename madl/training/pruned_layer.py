"""One pruned layer by itself: how large its weights are, and what its zeros cost in time and bytes.

Units: seconds a call; bytes of the stored weight.
"""

import zlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from madl.compression import prune
from madl.machine.timing import compare

BINS = 60
TOKENS = 256


def histogram(weight: Tensor) -> dict[str, Any]:
    """Counts of the magnitudes up to their 99.9th percentile, and the median."""
    magnitude = weight.detach().abs().flatten()
    top = float(magnitude.quantile(0.999))
    counts = torch.histc(magnitude, bins=BINS, min=0.0, max=top)
    return {"counts": counts.tolist(), "top": top, "median": float(magnitude.median())}


def costs(
    weight: Tensor, sparsities: Iterable[float], device: str, *, budget_s: float
) -> dict[str, Any]:
    """The layer's product, dense with zeros and as CSR, and its bytes, by sparsity."""
    weight = weight.detach().to(device)
    found: dict[str, Any] = {}
    for sparsity in sparsities:
        (mask,) = prune.weight_masks([weight], sparsity=sparsity, method="l1")
        found[str(sparsity)] = _cost_of(weight * mask, device, budget_s)
    return found


@torch.no_grad()
def _cost_of(weight: Tensor, device: str, budget_s: float) -> dict[str, Any]:
    x = torch.randn(TOKENS, weight.shape[1], device=device)  # (tokens, in_features)
    full = torch.randn_like(weight)
    sparse = weight.to_sparse_csr()
    assert torch.allclose(sparse @ x.T, F.linear(x, weight).T, atol=1e-3)
    timed = compare(
        {
            "dense": lambda: F.linear(x, full),
            "masked": lambda: F.linear(x, weight),
            "csr": lambda: sparse @ x.T,
        },
        device=device,
        budget_s=budget_s,
    )
    num_kept = int((weight != 0).sum())
    return {
        "samples_s": {name: measurement.samples_s for name, measurement in timed.items()},
        "dense_bytes": 4 * weight.numel(),
        # a value and a 32-bit column for each kept weight, and where each row starts
        "csr_bytes": 8 * num_kept + 4 * (weight.shape[0] + 1),
        "zip_bytes": len(zlib.compress(weight.cpu().numpy().tobytes(), 6)),
    }
