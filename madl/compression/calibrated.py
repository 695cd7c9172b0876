"""Rounding of weights that learns from a few sentences: scale search, GPTQ, SmoothQuant, rotations.

A Linear's function does not change if its input is mapped, and its weight and bias undo that.
`Basis` is such a map: SmoothQuant's factors, a Hadamard rotation, or outliers that a test puts in.
Scale search and GPTQ choose among the values that a format has.

Sources: GPTQ, Frantar et al. 2022, arXiv:2210.17323; SmoothQuant, Xiao et al. 2022,
arXiv:2211.10438; Hadamard rotations, and GPTQ after them, QuaRot, Ashkboos et al. 2024,
arXiv:2404.00456; a second scale for each block, Four Over Six, Cook et al. 2025, arXiv:2512.02010;
corrected biases, Nagel et al. 2019, arXiv:1906.04721.
Shapes: weight (out_features, in_features), inputs (…, in_features).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression import roles
from madl.compression.quantize import named_linears, watched_inputs
from madl.formats.blocked import Blocked
from madl.formats.scales import block_scales, round_under

SHARES = tuple(i / 20 for i in range(10, 41))  # of a block's largest magnitude: 0.5 … 2
Batch = Mapping[str, Tensor]  # input_ids, attention_mask: (B, T)
DAMPING = 0.01  # of the mean of the Hessian's diagonal, which GPTQ adds to it


def scale_searched(
    weight: Tensor, number_format: Blocked, shares: Sequence[float] = SHARES
) -> Tensor:
    """The weight in the format, each block under the scale of least squared error.

    Each share of the block's largest magnitude gives a scale to try, as if it were the largest. A
    share of one is the format as it is; below it, the largest values saturate; above it, the
    largest codes go unused: Four Over Six tries 1 and 1.5. A scale of the whole tensor is that of
    the whole weight.
    """
    blocks, peak = _blocks(weight, number_format), weight.abs().amax()
    largest = blocks.abs().amax(-1, keepdim=True)  # (out, blocks, 1)
    best, least = torch.zeros_like(blocks), torch.full_like(largest, torch.inf)
    for share in shares:
        scales = block_scales(largest * share, number_format, peak)
        values = round_under(blocks, scales, number_format)
        error = (values - blocks).square_().sum(-1, keepdim=True)
        best, least = torch.where(error < least, values, best), torch.minimum(error, least)
    return best.flatten(-2)[..., : weight.shape[-1]]


def saturated(x: Tensor, number_format: Blocked) -> float:
    """The share of values, 0…1, that lie beyond the largest one of the format in their block."""
    blocks = _blocks(x, number_format)
    largest = blocks.abs().amax(-1, keepdim=True)
    inverse, _ = block_scales(largest, number_format, x.abs().amax())
    beyond = (blocks * inverse).abs() > number_format.grid.high
    return float(beyond.sum()) / x.numel()


def _blocks(x: Tensor, number_format: Blocked) -> Tensor:
    """Rows as blocks, the last one filled up by zeros: (…, blocks, block)."""
    block = min(number_format.block, x.shape[-1])
    return F.pad(x, (0, -x.shape[-1] % block)).unflatten(-1, (-1, block))


def gptq(
    weight: Tensor, hessian: Tensor, number_format: Blocked, *, damping: float = DAMPING
) -> Tensor:
    """The weight in the format, column by column: each one's error is spread over the next columns.

    A block has the scale of its values when its first column comes; a value that grows beyond it
    saturates. Columns whose inputs were always zero become zero.

    Shapes: hessian (in_features, in_features), the sum of x xᵀ over inputs x.
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
    """A Linear behind maps of its input (`into`), which its weight and bias undo.

    In exact arithmetic the function is that of the layer it is made of, which stays as it was. What
    is rounded are the mapped input and weight. Maps of several bases follow each other; their
    factors and matrices are buffers, and move with the layer. A map may need a bias where there
    was none.
    """

    linear: nn.Linear
    into: nn.Sequential

    def __init__(
        self,
        layer: "nn.Linear | Basis",
        *then: nn.Module,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        before, linear = _parts(layer)
        self.into = nn.Sequential(*before, *then)
        self.linear = nn.Linear(linear.in_features, linear.out_features, device="meta")
        weight = linear.weight if weight is None else weight
        self.linear.weight = nn.Parameter(weight.detach())
        bias = _bias(linear) if bias is None else bias
        kept = None if bias is None else nn.Parameter(bias.detach())
        self.linear.register_parameter("bias", kept)

    def forward(self, input: Tensor) -> Tensor:
        return self.linear(self.into(input))


def _parts(layer: nn.Linear | Basis) -> tuple[Sequence[nn.Module], nn.Linear]:
    """The maps of a layer's input, and the Linear behind them."""
    return ([*layer.into], layer.linear) if isinstance(layer, Basis) else ([], layer)


def _bias(linear: nn.Linear) -> Tensor | None:
    return linear.bias


class _Held(nn.Module):
    """A map that holds a tensor, as a buffer."""

    held: Tensor

    def __init__(self, held: Tensor) -> None:
        super().__init__()
        self.register_buffer("held", held)


class _Times(_Held):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.held


class _Plus(_Held):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.held


class _Turn(_Held):
    def forward(self, x: Tensor) -> Tensor:
        """Each block of the last dimension times the matrix held: (block, block)."""
        return (x.unflatten(-1, (-1, len(self.held))) @ self.held).flatten(-2)


def scaled(layer: nn.Linear | Basis, factors: Tensor) -> Basis:
    """The layer with each input channel times a factor, its column of the weight divided by it."""
    return Basis(layer, _Times(factors), weight=_parts(layer)[1].weight / factors)


def shifted(layer: nn.Linear | Basis, offsets: Tensor) -> Basis:
    """The layer with an offset added to each input channel, and taken off again by the bias."""
    linear = _parts(layer)[1]
    bias, added = _bias(linear), linear.weight @ offsets  # (out_features,)
    return Basis(layer, _Plus(offsets), bias=-added if bias is None else bias - added)


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
    linear = _parts(layer)[1]
    if linear.in_features % block:
        raise ValueError(f"blocks of {block} do not divide {linear.in_features} inputs")
    turn = _Turn(hadamard(block).to(linear.weight.device))
    return Basis(layer, turn, weight=turn(linear.weight))


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


# ---- the inputs of an encoder's layers ----------------------------------------------------------


def encoder_linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Name → layer of the Linear layers in the encoder's blocks, in the model's order."""
    return {k: v for k, v in named_linears(model).items() if roles.block(k) is not None}


def input_of(layer: str) -> str:
    """The name of a layer's input, which query, key and value of a block share."""
    role = roles.role(layer)
    return f"{roles.block(layer)} {'x' if role in ('query', 'key', 'value') else role}"


def see_inputs(
    model: nn.Module, batches: Iterable[Batch], see: Callable[[str, Tensor], None]
) -> None:
    """Run the model; `see` gets the name of each Linear of the encoder, and the tokens it sees.

    Padding is left out, and so are inputs that are no tokens (DeBERTa's relative positions).

    Shapes: batches' attention_mask (B, T); what `see` gets (tokens, in_features).
    """
    names = {linear: name for name, linear in encoder_linears(model).items()}
    for batch in batches:
        is_word = batch["attention_mask"].bool()

        def watch(linear: nn.Linear, x: Tensor, is_word: Tensor = is_word) -> None:
            if linear in names and x.shape[:-1] == is_word.shape:
                see(names[linear], x[is_word])

        with watched_inputs(model, watch):
            model(**batch)


def hessians(
    model: nn.Module, layers: Mapping[str, Basis], batches: Iterable[Batch]
) -> dict[str, Tensor]:
    """Name → sum of x xᵀ over inputs x as the layer maps them: (in_features, in_features)."""
    sums: dict[str, Tensor] = {}

    def see(name: str, x: Tensor) -> None:
        rows = layers[name].into(x)
        if name not in sums:
            sums[name] = rows.new_zeros(rows.shape[-1], rows.shape[-1])
        sums[name].addmm_(rows.T, rows)

    see_inputs(model, batches, see)
    return sums


def mean_errors(
    model: nn.Module, layers: Mapping[str, nn.Module], batches: Iterable[Batch]
) -> dict[str, Tensor]:
    """Name → mean over tokens of a layer's output less the model's: (out_features,)."""
    linears = encoder_linears(model)
    sums: dict[str, Tensor] = {}
    counts = dict.fromkeys(layers, 0)

    def see(name: str, x: Tensor) -> None:
        error = (layers[name](x) - linears[name](x)).sum(0)
        sums[name] = sums[name] + error if name in sums else error
        counts[name] += len(x)

    see_inputs(model, batches, see)
    return {name: total / counts[name] for name, total in sums.items()}


def largest_inputs(
    model: nn.Module, layers: Mapping[str, Basis], batches: Iterable[Batch]
) -> dict[str, Tensor]:
    """Name → largest magnitude of each input channel as the layer maps it: (in_features,)."""
    largest: dict[str, Tensor] = {}

    def see(name: str, x: Tensor) -> None:
        magnitude = layers[name].into(x).abs().amax(0)
        largest[name] = torch.maximum(magnitude, largest.setdefault(name, magnitude))

    see_inputs(model, batches, see)
    return largest
