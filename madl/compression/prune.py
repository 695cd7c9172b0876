"""Unstructured pruning: which values are removed, and masks that stay applied while training.

A mask of weights is drawn once. What it removes is zero at once, and so is its gradient from then
on: an optimizer that starts after that (AdamW, SGD) leaves it at zero, its decay and the clipping
of gradients see kept weights only, and training is what it is with a mask at every forward. Inputs
differ from token to token, so there is no fixed set of small ones: a layer prunes what it is given,
by a rule that is set once and holds in training and in evaluation, so that evaluation is
deterministic (`INPUT_METHODS`).

Values are ranked before they are quantized: zero stays zero in every format that has one (binary,
scaled binary and residual signs have none), so that pruning first or quantizing first gives the
same product. What the product then sees, `product_zeros` counts.

Source: magnitude pruning, Han et al. 2015, arXiv:1506.02626.
Shapes: weight (out_features, in_features), input (…, in_features), masks alike; True is kept.
Units: sparsity is the share removed, 0 ≤ sparsity < 1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from madl.compression.quantize import linear_layers
from madl.errors import MadlError

METHODS = ("random", "l1")
INPUT_METHODS = (*METHODS, "fresh random")

Batch = Mapping[str, Tensor]


def check(*, sparsity: float, method: str, known: Sequence[str] = METHODS) -> None:
    """Raises: MadlError: a sparsity outside 0 … 1, or an unknown method."""
    if not 0 <= sparsity < 1:
        raise MadlError(f"sparsity is the share removed, from 0 to below 1; got {sparsity}")
    if method not in known:
        raise MadlError(f"unknown pruning method {method!r}; known: {', '.join(known)}")


def weight_masks(
    weights: Sequence[Tensor], *, sparsity: float, method: str, seed: int = 0
) -> list[Tensor]:
    """One mask a weight, each ranked by itself.

    Exactly `round(sparsity · n)` of the n values of a weight are removed.
    """
    check(sparsity=sparsity, method=method)
    generator = torch.Generator().manual_seed(seed)
    scores = [_scores(weight, method, generator) for weight in weights]
    return [_keep_highest(score.flatten(), sparsity).view_as(score) for score in scores]


def _scores(x: Tensor, method: str, generator: torch.Generator) -> Tensor:
    return x.detach().abs() if method == "l1" else torch.rand(x.shape, generator=generator)


def _keep_highest(scores: Tensor, sparsity: float) -> Tensor:
    """Mask over a vector of scores: the lowest are removed, of equal ones the first."""
    num_removed = round(sparsity * scores.numel())
    if num_removed == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    threshold = scores.kthvalue(num_removed).values  # sorting all takes several times as long
    mask = scores >= threshold
    equal = (scores == threshold).nonzero().flatten()
    mask[equal[: num_removed - int((~mask).sum())]] = False
    return mask


def prune_(model: nn.Module, *, sparsity: float, method: str, seed: int = 0) -> list[Tensor]:
    """Mask the weight of every Linear layer; returns the masks."""
    weights = [layer.weight for layer in linear_layers(model)]
    masks = weight_masks(weights, sparsity=sparsity, method=method, seed=seed)
    mask_(model, masks)
    return masks


@torch.no_grad()
def mask_(model: nn.Module, masks: Sequence[Tensor]) -> None:
    """Set the weights of every Linear layer to zero where its mask says so, and hold them there.

    Not handled: an optimizer with momentum from before; copies of the model, which are not held.
    """
    for layer, mask in zip(linear_layers(model), masks, strict=True):
        weight, kept = layer.weight, _Kept(mask.to(layer.weight))
        weight.mul_(kept.mask)
        weight.register_post_accumulate_grad_hook(kept)


class _Kept:
    """The hook on one weight: its gradient is zero where the weight was removed."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __call__(self, weight: Tensor) -> None:
        assert weight.grad is not None
        self.mask = self.mask.to(weight.grad)  # in float32: a product with booleans converts them
        weight.grad.mul_(self.mask)


# ---- inputs -------------------------------------------------------------------------------------


@torch.no_grad()
def prune_inputs_(
    model: nn.Module,
    *,
    sparsity: float,
    method: str,
    seed: int = 0,
    calibration: Batch | None = None,
) -> list[RemovableHandle]:
    """Prune what every Linear layer is given, from now on; remove the handles to stop.

    `random` drops the same features of every token, `l1` every value up to a threshold, one a
    layer. `fresh random` draws another mask at every forward, in evaluation too.

    Thresholds are set by one forward of the `calibration` batch, layer after layer, each by what it
    is given behind those pruned already: `round(sparsity · n)` of the n values that a layer is
    given there are dropped, and what equals the threshold. On other sentences a threshold drops
    more or fewer; `product_zeros` counts.

    Shapes: `calibration` is what the model's forward takes; padding is counted like any token.

    Raises:
        MadlError: an unknown method, or `l1` without a calibration batch.
    """
    check(sparsity=sparsity, method=method, known=INPUT_METHODS)
    if method == "l1" and calibration is None:
        raise MadlError(f"pruning inputs by {method!r} needs a calibration batch")
    generator = torch.Generator().manual_seed(seed)
    layers = linear_layers(model)
    pruners = [_Pruner(method, sparsity, layer.in_features, generator) for layer in layers]
    handles = [layer.register_forward_pre_hook(one) for layer, one in zip(layers, pruners)]
    if calibration is not None:
        model.eval()(**calibration)
    return handles


class _Pruner:
    """The hook on one layer; its rule is set at once, or by the first input that it is given."""

    def __init__(
        self, method: str, sparsity: float, features: int, generator: torch.Generator
    ) -> None:
        self.sparsity = sparsity
        self.rule: Callable[[Tensor], Tensor] | None = None
        if method == "random":
            kept = _keep_highest(torch.rand(features, generator=generator), sparsity)
            self.rule = lambda x: x * kept.to(x.device)
        elif method == "fresh random":
            self.rule = lambda x: x * (torch.rand_like(x) >= sparsity)

    def __call__(self, _: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        x = arguments[0]
        if self.rule is None:
            self.rule = self._threshold(x)
        return (self.rule(x),)

    def _threshold(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        removed = round(self.sparsity * x.numel())
        if removed == 0:
            return lambda x: x
        threshold = float(x.detach().abs().flatten().kthvalue(removed).values)
        return lambda x: F.hardshrink(x, threshold)  # zero up to the threshold, itself beyond


# ---- what was done ------------------------------------------------------------------------------


@torch.no_grad()
def product_zeros(model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
    """What the Linear layers multiply on these batches, counted: shares 0…1 over all layers.

    `weights` and `inputs` that are zero when they are multiplied, pruned, masked and quantized;
    `products` whose two factors are both different from zero. Tokens that a batch's
    `attention_mask` (B, T) hides are not counted.
    """
    counts: Counter[str] = Counter()
    layers = linear_layers(model)
    shown: Tensor | None = None  # the tokens of a batch that are counted: (B, T)
    nonzero: dict[nn.Module, Tensor] = {}  # weights of each input feature: (in_features,)
    for layer in layers:
        nonzero[layer] = (_multiplied(layer, "weight", layer.weight) != 0).sum(0)
        counts["weights"] += layer.weight.numel()
        counts["zero weights"] += layer.weight.numel() - int(nonzero[layer].sum())

    def count(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Linear)
        x = _multiplied(layer, "input", arguments[0])
        hides = shown is not None and x.shape[:-1] == shown.shape
        x = x[shown] if hides else x.flatten(0, -2)  # (tokens, in_features)
        kept = (x != 0).sum(0)  # (in_features,)
        counts["inputs"] += x.numel()
        counts["zero inputs"] += x.numel() - int(kept.sum())
        counts["products"] += x.numel() * layer.out_features
        counts["nonzero products"] += int((kept * nonzero[layer]).sum())

    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    model.eval()
    for batch in batches:
        shown = batch["attention_mask"].bool() if "attention_mask" in batch else None
        model(**batch)
    for hook in hooks:
        hook.remove()
    return {
        "weights": counts["zero weights"] / counts["weights"],
        "inputs": counts["zero inputs"] / counts["inputs"],
        "products": counts["nonzero products"] / counts["products"],
    }


def _multiplied(layer: nn.Linear, part: str, x: Tensor) -> Tensor:
    """A weight or an input as the layer's product sees it."""
    rule: Any = getattr(layer, "rule", None)  # of a QuantizedLinear
    number_format = None if rule is None else getattr(rule, part)
    return x if number_format is None else number_format.quantize(x)


@torch.no_grad()
def magnitude_share(weights: Sequence[Tensor], masks: Sequence[Tensor]) -> Mapping[str, float]:
    """How much of the weights' summed magnitude and energy the masks keep."""
    kept = sum(float((w * m).abs().sum()) for w, m in zip(weights, masks))
    energy = sum(float((w * m).square().sum()) for w, m in zip(weights, masks))
    return {
        "l1": kept / sum(float(w.abs().sum()) for w in weights),
        "l2": energy / sum(float(w.square().sum()) for w in weights),
    }
