"""Low-rank adapters on any model's Linear layers: add them, train, merge them back.

An adapted layer computes W x + b + (alpha / rank) · B A x. W and b are frozen; A starts random and
B at zero, so that the adapted model starts as the model it adapts. Merging adds the product to W
once and leaves a plain Linear.

Source: Hu et al. 2021, "LoRA", arXiv:2106.09685.
Shapes: W (out, in), A (rank, in), B (out, rank).
Not handled: dropout in front of the adapter; adapters on embeddings or convolutions; a layer that
has an adapter already.
"""

import math
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression import size
from madl.compression.quantize import named_linears, set_module_
from madl.errors import MadlError


class LoraLinear(nn.Linear):
    """A Linear with a trainable low-rank product beside its weight, which `adapt_` freezes."""

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias, self.scale = linear.weight, linear.bias, alpha / rank
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # as nn.Linear starts
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        low = F.linear(input, self.lora_a)  # (…, rank)
        return F.linear(input, self.weight, self.bias) + self.scale * F.linear(low, self.lora_b)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain Linear whose weight includes the low-rank product."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta", bias=False)
        weight = self.weight + self.scale * (self.lora_b @ self.lora_a)  # (out, in)
        linear.weight, linear.bias = nn.Parameter(weight), self.bias
        return linear.train(self.training)


def adapt_(
    model: nn.Module, *, layers: str = ".*", also_train: str = "", rank: int, alpha: float
) -> list[str]:
    """Freeze the model and add adapters; returns the names of the layers that have one.

    `layers` is a regular expression for names of Linear layers, `also_train` one for names of
    parameters that keep learning: a new head's, for example.

    Raises:
        MadlError: no Linear layer has such a name.
    """
    linears = named_linears(model)
    adapted = [name for name in linears if re.fullmatch(layers, name)]
    if not adapted:
        known = ", ".join(linears) or "none"
        raise MadlError(f"the pattern {layers!r} matches no Linear layer; there are: {known}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(re.fullmatch(also_train, name) is not None)
    for name in adapted:
        set_module_(model, name, LoraLinear(linears[name], rank=rank, alpha=alpha))
    return adapted


def merge_(model: nn.Module) -> list[str]:
    """Merge every adapter into its layer's weight; returns the names of the layers that had one."""
    adapted = {name: m for name, m in model.named_modules() if isinstance(m, LoraLinear)}
    for name, layer in adapted.items():
        set_module_(model, name, layer.merged())
    return list(adapted)


def num_trainable(model: nn.Module) -> int:
    """The number of parameters that learn, shared ones counted once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def nested_sum(model: nn.Module) -> int:
    """The sum of the parameter counts of all submodules: a parameter counts once at every level.

    It is no count of parameters, but what adding up a listing of the modules gives.
    """
    return sum(size.num_parameters(module) for module in model.modules() if module is not model)
