"""Linear layers whose weight is stored as MXINT8 and, on a CPU, multiplied as integers.

`quantize_` simulates a format on float32 weights; `pack_` takes the same rules and stores 8.25 bits
a weight instead. On a CPU both compute the same function, up to the order of summation:

    pack_(model, [MXINT8])  # any model, Hugging Face's too

On a CPU the input is quantized too and the products are integers (`kernels/mxint8.py`). On a CUDA
GPU only the weight is MXINT8, and the input is taken as it is (`kernels/mxint8_cuda.py`).

Source: OCP Microscaling Formats (MX) v1.0.
Shapes: x (…, in_features), weight (out_features, in_features), bias (out_features).
Not handled: gradients; train with `quantize_`, then pack what came out.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from kernels import mxint8, mxint8_cuda
from madl.compression.quantize import Rule, replace_linears_
from madl.formats.blocked import MXInt

MXINT8 = Rule(weight=MXInt(), input=MXInt())


class MXInt8Linear(nn.Module):
    """A Linear with a packed MXINT8 weight and, on a CPU, MXINT8 inputs; for inference.

    Invariants: the weight is held once; on a CPU, and in a state dict from there, it is in the
    order in which the kernel reads it.
    """

    packed: Tensor
    packed_scales: Tensor

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, block: int = mxint8.GROUP
    ) -> None:
        super().__init__()
        mxint8.check_group(block)
        self.in_features, self.out_features, self.block = in_features, out_features, block
        groups = mxint8.num_groups(in_features, block)
        self._hold(
            torch.zeros(out_features, in_features, dtype=torch.int8),
            torch.zeros(out_features, groups, dtype=torch.uint8),
        )
        self.bias: nn.Parameter | None
        zeros = nn.Parameter(torch.zeros(out_features), requires_grad=False) if bias else None
        self.register_parameter("bias", zeros)

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, block: int = mxint8.GROUP) -> "MXInt8Linear":
        """A packed layer with the weight of a float32 or bfloat16 Linear, rounded to MXINT8."""
        has_bias: bool = linear.bias is not None  # pyright: ignore - may be None
        packed = cls(linear.in_features, linear.out_features, bias=has_bias, block=block)
        packed._hold(*mxint8.quantize(linear.weight.detach().cpu(), block))
        if packed.bias is not None:
            packed.bias.data = linear.bias.detach().float().cpu()
        return packed.to(linear.weight.device).train(linear.training)

    def _hold(self, mantissas: Tensor, scales: Tensor) -> None:
        """Keep a weight, given row by row, in the order that its device's kernel reads."""
        self.is_arranged = mantissas.device.type == "cpu"
        if self.is_arranged:
            mantissas, scales = mxint8.arrange(mantissas, scales, self.block)
        self.register_buffer("packed", mantissas)
        self.register_buffer("packed_scales", scales)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "MXInt8Linear":
        """Move or convert the layer; its weight is rearranged when it moves to or from a CPU."""
        if (fn(self.packed_scales[:0]).device.type == "cpu") != self.is_arranged:
            self._hold(*(fn(code) for code in self.codes()))
        bias = self.bias
        values = None if bias is None else bias.data
        super()._apply(fn, recurse)
        if bias is not None and values is not None:  # float32, whatever the model is converted to
            bias.data = values.to(bias.device)
        return self

    def codes(self) -> tuple[Tensor, Tensor]:
        """(mantissas, scales) of the weight, row by row: (out, in) and (out, groups)."""
        if not self.is_arranged:
            return self.packed, self.packed_scales
        return mxint8.restore(
            *(self.packed, self.packed_scales),
            out_features=self.out_features,
            in_features=self.in_features,
        )

    def dequantized(self) -> Tensor:
        """The weight as bfloat16, which holds it exactly."""
        mantissas, scales = self.codes()
        return mxint8.dequantize(mantissas, scales, self.block)

    def forward(self, input: Tensor) -> Tensor:
        if input.is_cpu:
            buffers, bias = self._buffers, self._parameters["bias"]  # 1 µs sooner than by name
            panels, scales = buffers["packed"], buffers["packed_scales"]
            return mxint8.linear(input, panels, scales, bias, self.out_features, self.block)
        return mxint8_cuda.linear(input, self.packed, self.packed_scales, self.bias, self.block)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, block={self.block}"
        )


def pack_(model: nn.Module, rules: Sequence[Rule]) -> dict[str, Rule]:
    """Replace every Linear that a rule matches by an `MXInt8Linear`; returns layer name → rule.

    Raises:
        MadlError: a rule that took no layer, as the first rule that matches a layer takes it.
        ValueError: a rule that is not MXINT8 for weight and input.
    """
    for rule in rules:
        _block_of(rule)
    return replace_linears_(model, rules, _pack)


def _pack(linear: nn.Linear, rule: Rule) -> MXInt8Linear:
    return MXInt8Linear.from_linear(linear, block=_block_of(rule))


def _block_of(rule: Rule) -> int:
    """The block size of a rule. Raises ValueError: the rule is not MXINT8 for weight and input."""
    weight = rule.weight
    if not isinstance(weight, MXInt) or weight.width != 8 or rule.input != weight or rule.bias:
        names = [None if f is None else f.name for f in (rule.weight, rule.input, rule.bias)]
        raise ValueError(
            "packed layers have mxint8 weights and inputs and a float32 bias, got "
            f"weight={names[0]}, input={names[1]}, bias={names[2]}"
        )
    mxint8.check_group(weight.block)
    return weight.block


def packed_layers(model: nn.Module) -> dict[str, MXInt8Linear]:
    """Name → layer of all packed layers."""
    return {name: m for name, m in model.named_modules() if isinstance(m, MXInt8Linear)}
