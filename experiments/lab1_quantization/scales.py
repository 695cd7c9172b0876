"""Integers whose scale is a real number: of the largest value, of least squared error, or learned.

Source of the learned step: LSQ, Esser et al. 2020, arXiv:1902.08153.
Shapes: x (…, in_features), weight (out_features, in_features).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression.quantize import Rule, replace_linears_, watched_inputs
from madl.formats.base import NumberFormat

SHARES = [i / 20 for i in range(6, 21)]  # of the largest magnitude, that clipping tries


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped(NumberFormat):
    """Symmetric integers of a row or a whole tensor, clipped where the squared error is least."""

    width: int
    per: Literal["row", "tensor"]

    @property
    def name(self) -> str:
        return f"clipped({self.width},{self.per})"

    @property
    def bits(self) -> float:
        return float(self.width)

    def quantize_reference(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True)  # (…, 1)
        if self.per == "tensor":
            largest = largest.amax().expand_as(largest)
        best, least = torch.zeros_like(x), torch.full_like(largest, math.inf)
        most = 2 ** (self.width - 1) - 1
        for share in SHARES:
            scale = (largest * share / most).clamp(min=math.ldexp(1.0, -126))
            q = (x / scale).round_().clamp_(-most, most).mul_(scale)
            error = (q - x).square_().sum(-1, keepdim=True)
            if self.per == "tensor":
                error = error.sum().expand_as(error)
            best, least = torch.where(error < least, q, best), torch.minimum(error, least)
        return best


class LearnedStep(nn.Module):
    """Rounds to integers times a step that training learns by LSQ's gradient, one for all of x."""

    zero: Tensor

    def __init__(self, width: int, start: Tensor) -> None:
        """`start` holds values as they will come: their mean magnitude sets the first step."""
        super().__init__()
        self.low, self.high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        self.factor = 1 / math.sqrt(start.numel() * self.high)
        self.step = nn.Parameter((2 * start.abs().mean() / math.sqrt(self.high)).reshape(1))
        self.register_buffer("zero", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch._fake_quantize_learnable_per_tensor_affine(
            x, self.step, self.zero, self.low, self.high, self.factor
        )


class LearnedStepLinear(nn.Linear):
    """A Linear that rounds its weight and its input by a learned step each; its bias stays FP32."""

    def __init__(self, linear: nn.Linear, width: int, inputs: Tensor) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.of_weight = LearnedStep(width, linear.weight.detach())
        self.of_input = LearnedStep(width, inputs)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(self.of_input(input), self.of_weight(self.weight), self.bias)


def learn_steps_(model: nn.Module, width: int, batch: Mapping[str, Tensor]) -> None:
    """Make every Linear a `LearnedStepLinear`; `batch` sets the first steps of inputs."""
    inputs: dict[nn.Linear, Tensor] = {}
    with watched_inputs(model, lambda layer, x: inputs.update({layer: x.clone()})):
        model(**batch)
    replace_linears_(
        model, [Rule()], lambda layer, _: LearnedStepLinear(layer, width, inputs[layer])
    )
