"""Unstructured pruning: which values are removed, and masks that stay applied while training.

A mask of weights is drawn once. The weights that it removes are set to zero at once, and from then
on their gradients, too: an optimizer that starts after that (AdamW, SGD) leaves them at zero, its
decay and the clipping of gradients see kept weights only, and training is the same as with a mask
at every forward. Inputs differ from token to token, so there is no fixed set of small ones: a layer
prunes its inputs by a rule that is set once and holds in training and in evaluation, so that
evaluation is deterministic (`INPUT_METHODS`).

Values are ranked before they are quantized: zero stays zero in every format that has one (binary,
scaled binary and residual signs have none), so that pruning first or quantizing first gives the
same product. `product_zeros` counts the zeros that the product then sees.

Sources: magnitude pruning, Han et al. 2015, arXiv:1506.02626; wanda, Sun et al. 2023,
arXiv:2306.11695; two of four, Mishra et al. 2021, arXiv:2104.08378.
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

from madl.compression.quantize import linear_layers, watched_inputs
from madl.errors import MadlError

METHODS = ("random", "l1", "wanda", "2:4")
INPUT_METHODS = ("random", "l1", "fresh random")

Batch = Mapping[str, Tensor]


def check(*, sparsity: float, method: str, known: Sequence[str] = METHODS) -> None:
    """Raise MadlError for a sparsity outside 0 ≤ sparsity < 1, or an unknown method."""
    if not 0 <= sparsity < 1:
        raise MadlError(f"sparsity is the share removed, from 0 to below 1; got {sparsity}")
    if method not in known:
        raise MadlError(f"unknown pruning method {method!r}; known: {', '.join(known)}")


def weight_masks(
    weights: Sequence[Tensor],
    *,
    sparsity: float,
    method: str,
    seed: int = 0,
    norms: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """One mask per weight: `random` and `l1` rank all its values, `2:4` four neighbours of a row.

    `wanda` ranks each row, by magnitude times the norm of the input feature that it multiplies
    (`norms`, one vector a weight). Exactly `round(sparsity · n)` of the n values that are ranked
    together are removed.

    Raises:
        MadlError: an unknown method or sparsity, or rows that `2:4` cannot cut into fours.
    """
    check(sparsity=sparsity, method=method)
    generator = torch.Generator().manual_seed(seed)
    masks: list[Tensor] = []
    for i, weight in enumerate(weights):
        num_together = {"wanda": weight.shape[-1], "2:4": 4}.get(method, weight.numel())
        if method == "2:4" and (sparsity != 0.5 or weight.shape[-1] % num_together):
            raise MadlError("2:4 removes half, of rows whose length is a multiple of four")
        scores = _scores(weight, method, generator)
        if method == "wanda":
            assert norms is not None, "wanda needs the norms of inputs"
            scores = scores * norms[i]
        masks.append(_keep_highest(scores.reshape(-1, num_together), sparsity).view_as(weight))
    return masks


def _scores(x: Tensor, method: str, generator: torch.Generator) -> Tensor:
    """A score for each value, of which the lowest are pruned: its magnitude, or a random number."""
    return torch.rand(x.shape, generator=generator) if method == "random" else x.detach().abs()


def _keep_highest(scores: Tensor, sparsity: float) -> Tensor:
    """The mask that removes the lowest scores of each row, of equal ones the first."""
    num_removed = round(sparsity * scores.shape[-1])
    lowest = scores.argsort(dim=-1, stable=True)[:, :num_removed]
    return torch.ones_like(scores, dtype=torch.bool).scatter_(-1, lowest, False)


def prune_(
    model: nn.Module,
    *,
    sparsity: float,
    method: str,
    seed: int = 0,
    calibration: Batch | None = None,
) -> list[Tensor]:
    """Prune the weight of every Linear layer, and hold it so (`mask_`); returns the masks.

    `wanda` takes the norms of its inputs from the `calibration` batch.
    """
    weights = [layer.weight for layer in linear_layers(model)]
    norms = None if calibration is None else _input_norms(model, calibration)
    masks = weight_masks(weights, sparsity=sparsity, method=method, seed=seed, norms=norms)
    mask_(model, masks)
    return masks


def _input_norms(model: nn.Module, batch: Batch) -> list[Tensor]:
    """For every Linear layer, the norm of each feature of its input over the batch's tokens."""
    norms: dict[nn.Linear, Tensor] = {}
    with watched_inputs(
        model, lambda layer, x: norms.update({layer: x.flatten(0, -2).norm(dim=0)})
    ):
        model(**batch)
    return [norms[layer] for layer in linear_layers(model)]


@torch.no_grad()
def mask_(model: nn.Module, masks: Sequence[Tensor]) -> None:
    """Set the weights of every Linear layer to zero where its mask says so, and hold them there.

    Not handled: an optimizer with momentum from before; copies of the model, which are not held.
    """
    for layer, mask in zip(linear_layers(model), masks, strict=True):
        hook = _GradientMask(mask.to(layer.weight))
        layer.weight.mul_(hook.mask)
        layer.weight.register_post_accumulate_grad_hook(hook)


class _GradientMask:
    """Hook on a weight: sets the gradient to zero where the weight was removed."""

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
    """Prune the inputs of every Linear layer from now on; returns the hooks, to be removed to stop.

    `random` drops the same features of every token, `l1` every value up to a threshold, one a
    layer. `fresh random` draws another mask at every forward, in evaluation too.

    Thresholds are set by one forward of the `calibration` batch, in which each layer gets the
    outputs of layers that are pruned already: a layer's threshold is set so that `round(sparsity ·
    n)` of the n values in its input are dropped, and all that equal the threshold. On other
    sentences it drops more or fewer; `product_zeros` counts.

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
    handles = [layer.register_forward_pre_hook(p) for layer, p in zip(layers, pruners)]
    if calibration is not None:
        model.eval()(**calibration)
    return handles


class _Pruner:
    """Hook that prunes a layer's input; the threshold of `l1` is set at the first call."""

    def __init__(
        self, method: str, sparsity: float, features: int, generator: torch.Generator
    ) -> None:
        self.sparsity = sparsity
        self.rule: Callable[[Tensor], Tensor] | None = None
        if method == "random":
            mask = _keep_highest(torch.rand(1, features, generator=generator), sparsity)[0]
            self.rule = lambda x: x * mask.to(x.device)
        elif method == "fresh random":
            self.rule = lambda x: x * (torch.rand_like(x) >= sparsity)

    def __call__(self, _: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        x = arguments[0]
        if self.rule is None:
            self.rule = self._threshold(x)
        return (self.rule(x),)

    def _threshold(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """A rule that zeroes values up to a threshold, which prunes `sparsity` of this input."""
        removed = round(self.sparsity * x.numel())
        if removed == 0:
            return lambda x: x
        threshold = float(x.detach().abs().flatten().kthvalue(removed).values)
        return lambda x: F.hardshrink(x, threshold)  # zero up to the threshold, itself beyond


# ---- zeros --------------------------------------------------------------------------------------


@torch.no_grad()
def product_zeros(model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
    """Shares 0…1 of zero `weights` and `inputs`, and of nonzero `products`, in all Linear layers.

    Weights and inputs are those that are multiplied: pruned, masked and quantized. A product is
    nonzero if both factors are. Tokens that a batch's `attention_mask` (B, T) hides are not
    counted.
    """
    counts: Counter[str] = Counter()
    shown: Tensor | None = None  # the tokens of a batch that are counted: (B, T)
    nonzero: dict[nn.Module, Tensor] = {}  # weights of each input feature: (in_features,)
    for layer in linear_layers(model):
        nonzero[layer] = (_multiplied(layer, "weight", layer.weight) != 0).sum(0)
        counts["weights"] += layer.weight.numel()
        counts["zero weights"] += layer.weight.numel() - int(nonzero[layer].sum())

    def count(layer: nn.Linear, x: Tensor) -> None:
        x = _multiplied(layer, "input", x)
        hides = shown is not None and x.shape[:-1] == shown.shape
        x = x[shown] if hides else x.flatten(0, -2)  # (tokens, in_features)
        nonzero_inputs = (x != 0).sum(0)  # (in_features,)
        counts["inputs"] += x.numel()
        counts["zero inputs"] += x.numel() - int(nonzero_inputs.sum())
        counts["products"] += x.numel() * layer.out_features
        counts["nonzero products"] += int((nonzero_inputs * nonzero[layer]).sum())

    with watched_inputs(model, count):
        for batch in batches:
            shown = batch["attention_mask"].bool() if "attention_mask" in batch else None
            model(**batch)
    return {
        "weights": counts["zero weights"] / counts["weights"],
        "inputs": counts["zero inputs"] / counts["inputs"],
        "products": counts["nonzero products"] / counts["products"],
    }


def _multiplied(layer: nn.Linear, part: str, x: Tensor) -> Tensor:
    """A layer's weight or input (`part`) as its product sees it: quantized if it has a format."""
    rule: Any = getattr(layer, "rule", None)  # of a QuantizedLinear
    number_format = None if rule is None else getattr(rule, part)
    return x if number_format is None else number_format.quantize(x)


@torch.no_grad()
def magnitude_share(weights: Sequence[Tensor], masks: Sequence[Tensor]) -> Mapping[str, float]:
    """Shares 0…1 that masks keep of the weights' summed magnitudes (`l1`) and squares (`l2`)."""
    magnitude = sum(float((w * m).abs().sum()) for w, m in zip(weights, masks))
    energy = sum(float((w * m).square().sum()) for w, m in zip(weights, masks))
    return {
        "l1": magnitude / sum(float(w.abs().sum()) for w in weights),
        "l2": energy / sum(float(w.square().sum()) for w in weights),
    }
