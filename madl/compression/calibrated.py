"""Rounding of weights that learns from a few sentences: clipping, GPTQ, SmoothQuant, rotations.

A Linear's function does not change if its input is mapped by an invertible matrix and its weight by
the inverse. `Basis` is such a map: SmoothQuant's factors, a Hadamard rotation, or outliers that a
test puts in. Clipping and GPTQ choose among the values that a format has.

Sources: GPTQ, Frantar et al. 2022, arXiv:2210.17323; SmoothQuant, Xiao et al. 2022,
arXiv:2211.10438; Hadamard rotations, QuaRot, Ashkboos et al. 2024, arXiv:2404.00456.
Shapes: weight (out_features, in_features), inputs (…, in_features).
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.formats.blocked import Blocked
from madl.formats.scales import block_scales, round_under

SHARES = tuple(i / 20 for i in range(10, 21))  # of a block's largest magnitude, that clipping tries
Map = Callable[[Tensor], Tensor]  # of the last dimension, linear
DAMPING = 0.01  # of the mean of the Hessian's diagonal, which GPTQ adds to it


def clipped(weight: Tensor, number_format: Blocked, shares: Sequence[float] = SHARES) -> Tensor:
    """The weight in the format, each block clipped to the share of least squared error.

    A share of one is the format as it is. A scale of the whole tensor is that of the whole weight.
    """
    blocks, peak = _blocks(weight, number_format), weight.abs().amax()
    largest = blocks.abs().amax(-1, keepdim=True)  # (out, blocks, 1)
    best, least = torch.zeros_like(blocks), torch.full_like(largest, torch.inf)
    for share in shares:
        scales = block_scales(largest * share, number_format, peak)
        values = round_under(blocks, scales, number_format)
        error = (values - blocks).square().sum(-1, keepdim=True)
        best, least = torch.where(error < least, values, best), torch.minimum(error, least)
    return best.flatten(-2)[..., : weight.shape[-1]]


def _blocks(x: Tensor, number_format: Blocked) -> Tensor:
    """Rows as blocks, the last one filled up by zeros: (out_features, blocks, block)."""
    block = min(number_format.block, x.shape[-1])
    return F.pad(x, (0, -x.shape[-1] % block)).unflatten(-1, (-1, block))


class Hessian:
    """The `sum` of x xᵀ of a Linear's inputs, and the `largest` magnitude of each channel."""

    def __init__(self, in_features: int) -> None:
        self.sum = torch.zeros(in_features, in_features)
        self.largest = torch.zeros(in_features)

    def add(self, inputs: Tensor) -> None:
        rows = inputs.reshape(-1, inputs.shape[-1])
        self.sum.addmm_(rows.T, rows)
        self.largest = torch.maximum(self.largest, rows.abs().amax(0))

    def mapped(self, into: Map) -> Tensor:
        """The sum of x xᵀ after a linear map of the inputs: (in_features, in_features)."""
        return into(into(self.sum).T)


def gptq(
    weight: Tensor, hessian: Tensor, number_format: Blocked, *, damping: float = DAMPING
) -> Tensor:
    """The weight in the format, column by column: each one's error is spread over the next columns.

    A block has the scale of its values when its first column comes; a value that grows beyond it
    saturates. Columns whose inputs were always zero become zero.

    Shapes: hessian (in_features, in_features), the sum of x xᵀ.
    """
    weight, hessian = weight.clone(), hessian.clone()
    dead = hessian.diagonal() == 0
    hessian.diagonal()[dead] = 1.0
    weight[:, dead] = 0.0
    hessian.diagonal().add_(damping * hessian.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    upper = torch.linalg.cholesky(inverse, upper=True)  # its rows say how an error is spread
    values = torch.empty_like(weight)
    peak = weight.abs().amax()
    block = min(number_format.block, weight.shape[-1])
    for start in range(0, weight.shape[-1], block):
        end = min(start + block, weight.shape[-1])
        scales = block_scales(weight[:, start:end].abs().amax(-1), number_format, peak)  # (out,)
        errors = torch.zeros_like(weight[:, start:end])
        for i in range(start, end):
            values[:, i] = round_under(weight[:, i], scales, number_format)
            error = (weight[:, i] - values[:, i]) / upper[i, i]
            weight[:, i:end] -= error[:, None] * upper[i, i:end]
            errors[:, i - start] = error
        weight[:, end:] -= errors @ upper[start:end, end:]
    return values


# ---- another basis of the input -----------------------------------------------------------------


class Basis(nn.Module):
    """A Linear whose input is mapped before it, and whose weight was mapped by the inverse.

    In exact arithmetic the function is that of the Linear. What is rounded are the mapped input and
    weight. A basis of a basis maps by both, the first one first.
    """

    linear: nn.Linear
    into: Map

    def __init__(self, layer: "nn.Linear | Basis", into: Map, weight_into: Map) -> None:
        super().__init__()
        first = layer.into if isinstance(layer, Basis) else None
        self.linear = layer.linear if isinstance(layer, Basis) else layer
        self.into = into if first is None else _composed(first, into)
        self.linear.weight = nn.Parameter(weight_into(self.linear.weight.detach()))

    def forward(self, input: Tensor) -> Tensor:
        return self.linear(self.into(input))


def _composed(first: Map, then: Map) -> Map:
    def both(x: Tensor) -> Tensor:
        return then(first(x))

    return both


def scaled(layer: nn.Linear | Basis, factors: Tensor) -> Basis:
    """The layer with each input channel times a factor, its column of the weight divided by it."""
    return Basis(layer, lambda x: x * factors, lambda weight: weight / factors)


def smoothing(weight: Tensor, largest: Tensor, alpha: float = 0.5) -> Tensor:
    """SmoothQuant's factors for `scaled`: large inputs shrink, their columns of the weight grow.

    Shapes: largest (in_features), the largest magnitude of each input channel.
    """
    of_weight = weight.abs().amax(0).clamp(min=1e-5)
    return of_weight.pow(1 - alpha) / largest.clamp(min=1e-5).pow(alpha)


def rotated(layer: nn.Linear | Basis, block: int) -> Basis:
    """The layer with each block of its input, and of its weight's rows, times a Hadamard matrix.

    Raises:
        ValueError: the block is no power of two, or does not divide the number of inputs.
    """
    linear = layer.linear if isinstance(layer, Basis) else layer
    if linear.in_features % block:
        raise ValueError(f"blocks of {block} do not divide {linear.in_features} inputs")
    matrix = hadamard(block)

    def turn(x: Tensor) -> Tensor:
        return (x.unflatten(-1, (-1, block)) @ matrix).flatten(-2)

    return Basis(layer, turn, turn)


def hadamard(order: int) -> Tensor:
    """The orthonormal and symmetric matrix of ±1/√order, Sylvester's construction.

    Raises:
        ValueError: the order is no power of two.
    """
    if order < 1 or order & (order - 1):
        raise ValueError(f"the order of a Hadamard matrix is a power of two here, got {order}")
    matrix = torch.ones(1, 1)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / order**0.5
