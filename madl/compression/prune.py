"""Unstructured pruning: which values are removed, and masks that stay applied while training.

A mask is drawn once. On a weight it is a parametrization, so every forward and every gradient sees
the pruned weight; `fuse_masks_` makes it permanent. On an input it is either a fixed set of
features (random) or the smallest magnitudes of each token (L1), the same rule in training and in
evaluation, so that evaluation is deterministic.

Source: magnitude pruning, Han et al. 2015, arXiv:1506.02626.
Shapes: weight (out_features, in_features), input (…, in_features), masks alike; True is kept.
Units: sparsity is the share removed, 0 ≤ sparsity < 1.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from madl.compression.quantize import linear_layers
from madl.errors import MadlError

_Hook = Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor]]

METHODS = ("random", "l1")
SCOPES = ("local", "global")


def check(*, sparsity: float, method: str, scope: str = "local") -> None:
    """Raises: MadlError: a sparsity outside 0 … 1, an unknown method or scope."""
    if not 0 <= sparsity < 1:
        raise MadlError(f"sparsity is the share removed, from 0 to below 1; got {sparsity}")
    if method not in METHODS:
        raise MadlError(f"unknown pruning method {method!r}; known: {', '.join(METHODS)}")
    if scope not in SCOPES:
        raise MadlError(f"unknown pruning scope {scope!r}; known: {', '.join(SCOPES)}")


def weight_masks(
    weights: Sequence[Tensor], *, sparsity: float, method: str, scope: str = "local", seed: int = 0
) -> list[Tensor]:
    """One mask a weight; `global` ranks all weights together, `local` each by itself.

    Exactly `round(sparsity · n)` of the n values ranked together are removed.
    """
    check(sparsity=sparsity, method=method, scope=scope)
    generator = torch.Generator().manual_seed(seed)
    scores = [_scores(weight, method, generator) for weight in weights]
    if scope == "local":
        return [_keep_highest(score.flatten(), sparsity).view_as(score) for score in scores]
    flat = _keep_highest(torch.cat([score.flatten() for score in scores]), sparsity)
    parts = flat.split([score.numel() for score in scores])
    return [part.view_as(score) for part, score in zip(parts, scores)]


def _scores(x: Tensor, method: str, generator: torch.Generator) -> Tensor:
    return x.detach().abs() if method == "l1" else torch.rand(x.shape, generator=generator)


def _keep_highest(scores: Tensor, sparsity: float) -> Tensor:
    """Mask over a vector of scores: the lowest are removed, of equal ones the first."""
    removed = scores.argsort(stable=True)[: round(sparsity * scores.numel())]
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[removed] = False
    return mask


class _Masked(nn.Module):
    """The parametrization: the weight where it is kept, zero elsewhere."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


def prune_(
    model: nn.Module, *, sparsity: float, method: str, scope: str = "local", seed: int = 0
) -> None:
    """Mask the weight of every Linear layer until `fuse_masks_`."""
    layers = linear_layers(model)
    weights = [layer.weight for layer in layers]
    masks = weight_masks(weights, sparsity=sparsity, method=method, scope=scope, seed=seed)
    for layer, mask in zip(layers, masks):
        parametrize.register_parametrization(layer, "weight", _Masked(mask.to(layer.weight.device)))


def fuse_masks_(model: nn.Module) -> None:
    """Write the zeros into the weights and remove the masks."""
    for layer in linear_layers(model):
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)


def weight_sparsity(model: nn.Module) -> float:
    """The share of zeros among the Linear layers' weights, counted."""
    weights = [layer.weight for layer in linear_layers(model)]
    return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def prune_inputs_(
    model: nn.Module, *, sparsity: float, method: str, seed: int = 0
) -> list[RemovableHandle]:
    """Prune what every Linear layer is given, from now on; remove the handles to stop."""
    check(sparsity=sparsity, method=method)
    generator = torch.Generator().manual_seed(seed)
    return [
        layer.register_forward_pre_hook(_input_pruner(layer, sparsity, method, generator))
        for layer in linear_layers(model)
    ]


def _input_pruner(
    layer: nn.Linear, sparsity: float, method: str, generator: torch.Generator
) -> _Hook:
    fixed = _keep_highest(torch.rand(layer.in_features, generator=generator), sparsity)

    def largest(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        return (_keep_largest_of_each_token(arguments[0], sparsity),)

    def same_features(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        return (arguments[0] * fixed.to(arguments[0].device),)

    return largest if method == "l1" else same_features


def _keep_largest_of_each_token(x: Tensor, sparsity: float) -> Tensor:
    num_removed = round(sparsity * x.shape[-1])
    if num_removed == 0:
        return x
    removed = x.detach().abs().topk(num_removed, dim=-1, largest=False, sorted=False).indices
    return x.scatter(-1, removed, 0.0)


def fresh_random_inputs_(model: nn.Module, *, sparsity: float) -> list[RemovableHandle]:
    """The confounded variant: another random mask at every forward, evaluation too."""
    check(sparsity=sparsity, method="random")

    def fresh(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        return (arguments[0] * (torch.rand_like(arguments[0]) >= sparsity),)

    return [layer.register_forward_pre_hook(fresh) for layer in linear_layers(model)]


def magnitude_share(weights: Sequence[Tensor], masks: Sequence[Tensor]) -> Mapping[str, float]:
    """How much of the weights' summed magnitude and energy the masks keep."""
    kept = sum(float((w * m).abs().sum()) for w, m in zip(weights, masks))
    energy = sum(float((w * m).square().sum()) for w, m in zip(weights, masks))
    return {
        "l1": kept / sum(float(w.abs().sum()) for w in weights),
        "l2": energy / sum(float(w.square().sum()) for w in weights),
    }
