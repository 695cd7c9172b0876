"""Fake quantization of any model's Linear layers: one straight-through estimator, one layer class.

A rule says by a regular expression which layers take which format; `quantize_` applies the rules
and refuses one that matches nothing. Training keeps float32 master weights and quantizes them at
each step; in evaluation a weight is quantized once and kept until it changes.

Source: straight-through estimator, Bengio et al. 2013, arXiv:1308.3432.
Shapes: x (…, in_features), weight (out_features, in_features), bias (out_features).
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernels import linear_bf16
from madl.errors import MadlError
from madl.formats.base import NumberFormat
from madl.formats.rounding import fields_of_cpp


class _StraightThrough(torch.autograd.Function):
    """Quantize forward; pass the gradient on as it is, beyond the range too.

    A weight that has left the range can come back: masking its gradient would leave it there.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, number_format: NumberFormat) -> Tensor:
        return number_format.quantize(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        return grad, None


def fake_quantize(x: Tensor, number_format: NumberFormat) -> Tensor:
    """Round `x` to the format's values, with a straight-through gradient; shape and dtype stay."""
    if not torch.is_grad_enabled():
        return number_format.quantize(x)
    return _StraightThrough.apply(x, number_format)  # pyright: ignore


def _exact_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, number_format: NumberFormat | None = None
) -> Tensor:
    """A Linear of operands that bfloat16 holds exactly; given a format, `x` is rounded first."""
    is_fast = x.is_cpu and linear_bf16.is_fast()
    fields = fields_of_cpp(x, number_format) if number_format is not None and is_fast else None
    if fields is not None:
        return linear_bf16.linear_bf16(x, weight, bias, *fields)
    q = _apply(x, number_format)
    return (linear_bf16.linear_bf16 if is_fast else F.linear)(q, weight, bias)


class _Bf16Products(torch.autograd.Function):
    """Autograd of a Linear of exact bfloat16 operands; the result and the gradients are float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        need_x, need_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if need_weight else None, weight if need_x else None)
        return _exact_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])  # (rows, out_features)
        d_x = d_weight = None
        if weight is not None:
            d_x = linear_bf16.product_bf16(rows, weight).view(*grad.shape[:-1], weight.shape[1])
        if x is not None:
            d_weight = linear_bf16.product_bf16(rows.t(), x.reshape(len(rows), x.shape[-1]))
        return d_x, d_weight, rows.sum(0) if ctx.needs_input_grad[2] else None


Products = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Formats for the Linear layers whose full name matches `pattern`; None leaves a part as it is.

    `products` says how weight and input are multiplied. `bfloat16` is for formats whose values
    bfloat16 holds exactly: every product is then exact, and sums and results stay float32, so that
    results and gradients differ from `float32` in the order of summation only. It is faster on CPUs
    with AMX; with AVX512_BF16 alone, gradients take float32 products, and elsewhere all products
    are float32.

    Raises:
        ValueError: bfloat16 products of a part whose values bfloat16 does not hold.
    """

    pattern: str = ".*"
    weight: NumberFormat | None = None
    bias: NumberFormat | None = None
    input: NumberFormat | None = None
    products: Products = "float32"

    def __post_init__(self) -> None:
        if self.products not in ("float32", "bfloat16"):
            raise ValueError(f"products is 'float32' or 'bfloat16', got {self.products!r}")
        if self.products == "float32":
            return
        for part, number_format in (("weight", self.weight), ("input", self.input)):
            if number_format is None or not number_format.exact_in_bf16:
                name = "float32" if number_format is None else number_format.name
                raise ValueError(
                    f"bfloat16 would round the {part}, which is {name}; use products='float32'"
                )

    @classmethod
    def uniform(cls, number_format: NumberFormat, *, products: Products = "float32") -> "Rule":
        """A rule for all layers, with the same format for weight, bias and input."""
        f = number_format
        return cls(weight=f, bias=f, input=f, products=products)

    @classmethod
    def operands(
        cls, weight: NumberFormat | None, input: NumberFormat | None, *, pattern: str = ".*"
    ) -> "Rule":
        """A rule with a format for weight and bias and one for the input.

        Where both are exact in bfloat16, so are products: faster, and only the order of a sum
        changes.
        """
        is_exact = all(f is not None and f.exact_in_bf16 for f in (weight, input))
        products = "bfloat16" if is_exact else "float32"
        return cls(pattern=pattern, weight=weight, bias=weight, input=input, products=products)


@dataclass(frozen=True, slots=True)
class _Quantized:
    """A parameter's quantized values, valid as long as the parameter (the master) is unchanged.

    Holding the master's memory makes its address a name: no other tensor can have it.
    """

    master: Tensor
    version: int
    values: Tensor

    def is_of(self, master: Tensor) -> bool:
        """Whether these values are of this tensor as it is now."""
        return master.data_ptr() == self.master.data_ptr() and master._version == self.version


class QuantizedLinear(nn.Linear):
    """A Linear whose input, weight and bias pass through number formats.

    Invariants: the parameters stay full-precision masters. Evaluation without gradients keeps the
    quantized weight and bias until a forward that could train, or an in-place update that PyTorch
    counts (`load_state_dict`); a fused optimizer's step is not counted. Copies of the layer keep no
    quantized values. A weight that is computed at every access (a pruned one) is quantized each
    time.

    Not handled: writing through `weight.data` between two evaluations.
    """

    def __init__(self, linear: nn.Linear, rule: Rule) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.rule = rule
        self.train(linear.training)
        self._frozen: dict[str, _Quantized] = {}

    def forward(self, input: Tensor) -> Tensor:
        weight = self._quantized("weight", self.weight, self.rule.weight)
        bias = None
        if self.bias is not None:  # pyright: ignore[reportUnnecessaryComparison] - may be None
            bias = self._quantized("bias", self.bias, self.rule.bias)
        is_exact = self.rule.products == "bfloat16"
        if is_exact and not torch.is_grad_enabled():
            return _exact_linear(input, weight, bias, self.rule.input)
        x = _apply(input, self.rule.input)
        return _Bf16Products.apply(x, weight, bias) if is_exact else F.linear(x, weight, bias)  # pyright: ignore

    def _quantized(self, part: str, master: Tensor, number_format: NumberFormat | None) -> Tensor:
        """A parameter rounded to its format; `part` is its name. In evaluation it is kept."""
        if number_format is None:
            return master
        if self.training or torch.is_grad_enabled():
            self._frozen.pop(part, None)
            return fake_quantize(master, number_format)
        frozen = self._frozen.get(part)
        if frozen is not None and frozen.is_of(master):
            return frozen.values
        values = number_format.quantize(master)
        if self._parameters.get(part) is master:  # not what a parametrization computes anew
            self._frozen[part] = _Quantized(master.detach(), master._version, values)
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frozen": {}}

    def extra_repr(self) -> str:
        formats = {part: getattr(self.rule, part) for part in ("input", "weight", "bias")}
        shown = ", ".join(f"{part}={f.name}" for part, f in formats.items() if f is not None)
        return f"{super().extra_repr()}, {shown}, products={self.rule.products}"


def _apply(x: Tensor, number_format: NumberFormat | None) -> Tensor:
    """Fake-quantize `x`; without a format it stays as it is."""
    return x if number_format is None else fake_quantize(x, number_format)


def named_linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Name → layer of every Linear layer, quantized or not, in the model's order."""
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [*named_linears(model).values()]


@contextlib.contextmanager
def watched_inputs(model: nn.Module, watch: Callable[[nn.Linear, Tensor], None]) -> Generator[None]:
    """Within the context, in evaluation mode, `watch` gets every Linear layer and its input."""

    def hook(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        watch(cast("nn.Linear", layer), arguments[0])

    handles = [layer.register_forward_pre_hook(hook) for layer in linear_layers(model)]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()


def quantize_(model: nn.Module, rules: Sequence[Rule]) -> dict[str, Rule]:
    """Replace every Linear that a rule matches by a `QuantizedLinear`; returns layer name → rule.

    Raises:
        MadlError: a rule that took no layer, as the first rule that matches a layer takes it.
    """
    return replace_linears_(model, rules, QuantizedLinear)


def replace_linears_(
    model: nn.Module, rules: Sequence[Rule], make: Callable[[nn.Linear, Rule], nn.Module]
) -> dict[str, Rule]:
    """`quantize_` with any layer that `make` makes of a Linear and its rule."""
    linears = named_linears(model)
    taken: dict[str, Rule] = {}
    for name, linear in linears.items():
        rule = next((rule for rule in rules if re.fullmatch(rule.pattern, name)), None)
        if rule is not None:
            layer = make(linear, rule)
            layer._forward_pre_hooks = linear._forward_pre_hooks  # which prune inputs; shared
            set_module_(model, name, layer)
            taken[name] = rule
    for rule in rules:
        if rule not in taken.values():
            raise MadlError(
                f"quantization rule {rule.pattern!r} took no Linear layer; "
                f"layers: {', '.join(linears) or 'none'}"
            )
    return taken


def set_module_(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one with that full name in the model."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


@torch.no_grad()
def range_use(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, float]:
    """Shares 0…1 of weights and inputs that quantization loses, over all layers of the model.

    `weight_zeroed`, `input_zeroed`: nonzero values that become zero, as the step is too coarse.
    `weight_saturated`, `input_saturated`: values beyond the largest representable one.

    Shapes: `batch` is what the model's forward takes; inputs are those of every layer on it.
    """
    counts: Counter[str] = Counter()

    def count(layer: nn.Linear, part: Literal["weight", "input"], x: Tensor) -> None:
        number_format = getattr(layer.rule, part) if isinstance(layer, QuantizedLinear) else None
        if number_format is None:
            return
        counts[part] += x.numel()
        counts[f"{part}_zeroed"] += int(((number_format.quantize(x) == 0) & (x != 0)).sum())
        if number_format.range is not None:
            low, high = number_format.range
            counts[f"{part}_saturated"] += int((~((x >= low) & (x <= high))).sum())

    for layer in linear_layers(model):
        count(layer, "weight", layer.weight)
    with watched_inputs(model, lambda layer, x: count(layer, "input", x)):
        model(**batch)
    return {
        f"{part}_{loss}": counts[f"{part}_{loss}"] / max(counts[part], 1)
        for part in ("weight", "input")
        for loss in ("zeroed", "saturated")
    }
