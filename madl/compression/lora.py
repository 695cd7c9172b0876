"""Low-rank adapters on any model's Linear layers: add by rule, train, merge back.

An adapted layer computes W x + b + (alpha / rank) · B A x. W and b stand still; A starts random and
B at zero, so that the adapted model starts as the model it adapts. Merging adds the product to W
once and leaves a plain Linear.

Source: Hu et al. 2021, "LoRA", arXiv:2106.09685.
Shapes: W (out, in), A (rank, in), B (out, rank).
Invariants: a rule that takes no layer, or a rank that a layer cannot have, changes nothing at all.
Not handled: dropout in front of the adapter; adapters on embeddings or convolutions.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.compression import size
from madl.compression.quantize import set_module_
from madl.errors import MadlError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRule:
    """An adapter for the Linear layers whose full name matches `pattern`.

    Raises:
        ValueError: a rank below one, or an alpha that scales the adapter away.
    """

    pattern: str = ".*"
    rank: int
    alpha: float

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"the rank of an adapter is at least 1, got {self.rank}")
        if self.alpha <= 0:
            raise ValueError(f"alpha is positive, got {self.alpha:g}")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A Linear that stands still, and a low-rank product that learns beside it."""

    def __init__(self, linear: nn.Linear, rule: LoraRule) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.rule = rule
        down = linear.weight.new_empty(rule.rank, linear.in_features)
        up = linear.weight.new_zeros(linear.out_features, rule.rank)
        self.lora_a, self.lora_b = nn.Parameter(down), nn.Parameter(up)
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # as nn.Linear starts
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        low = F.linear(input, self.lora_a)  # (…, rank)
        return F.linear(input, self.weight, self.bias) + self.rule.scale * F.linear(
            low, self.lora_b
        )

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain Linear with the product in its weight."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta", bias=False)
        weight = self.weight + self.rule.scale * (self.lora_b @ self.lora_a)  # (out, in)
        linear.weight, linear.bias = nn.Parameter(weight), self.bias
        return linear.train(self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rule.rank}, alpha={self.rule.alpha:g}"


def adapt_(
    model: nn.Module, rules: Sequence[LoraRule], *, also_train: str | None = None
) -> dict[str, LoraRule]:
    """Freeze the model and add adapters, first match wins; returns layer name → rule.

    `also_train` is a pattern of parameter names that keep learning: a new head, for example.

    Raises:
        MadlError: a rule that took no layer, or a pattern that took no parameter.
        ValueError: a rank above the smaller dimension of a layer, where it would save nothing.
    """
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    taken: dict[str, LoraRule] = {}
    for name in linears:
        rule = next((rule for rule in rules if re.fullmatch(rule.pattern, name)), None)
        if rule is not None:
            taken[name] = rule
    _check(linears, rules, taken)
    unfrozen = [
        name for name, _ in model.named_parameters() if re.fullmatch(also_train or "", name)
    ]
    if also_train is not None and not unfrozen:
        names = ", ".join(name for name, _ in model.named_parameters())
        raise MadlError(f"the pattern {also_train!r} matches no parameter; there are: {names}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in unfrozen)
    for name, rule in taken.items():
        set_module_(model, name, LoraLinear(linears[name], rule))
    return taken


def _check(
    linears: dict[str, nn.Linear], rules: Sequence[LoraRule], taken: dict[str, LoraRule]
) -> None:
    for rule in rules:
        if rule not in taken.values():
            raise MadlError(
                f"adapter rule {rule.pattern!r} took no Linear layer; "
                f"layers: {', '.join(linears) or 'none'}"
            )
    for name, rule in taken.items():
        linear = linears[name]
        if isinstance(linear, LoraLinear):
            raise ValueError(f"{name} has an adapter already; merge it first")
        largest = min(linear.in_features, linear.out_features)
        if rule.rank > largest:
            raise ValueError(
                f"rank {rule.rank} is above the smaller dimension of {name} "
                f"({linear.in_features} → {linear.out_features}); at most {largest}"
            )


def merge_(model: nn.Module) -> list[str]:
    """Put every adapter into its weight; returns the names of the layers that had one.

    Raises:
        MadlError: there is no adapter.
    """
    adapted = {name: m for name, m in model.named_modules() if isinstance(m, LoraLinear)}
    if not adapted:
        raise MadlError("there is no adapter to merge; add one with adapt_")
    for name, layer in adapted.items():
        set_module_(model, name, layer.merged())
    return list(adapted)


def num_trainable(model: nn.Module) -> int:
    """Parameters that learn, each counted once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def nested_sum(model: nn.Module) -> int:
    """The sum over all submodules of the parameters below each: every parameter once a level.

    No count of anything; it is what adding up a listing of the modules gives.
    """
    return sum(size.num_parameters(module) for module in model.modules() if module is not model)
