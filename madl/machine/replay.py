"""The coursework's measurement of packed DeBERTa-xlarge, on a CUDA device or replayed without one.

It evaluates the FP32 model, packs one Linear layer after another on the device, and evaluates
again; the peaks are those of torch's allocator. `replayed` runs the same program on tensors without
values and feeds a model of the allocator, for GPUs before Hopper: later workspaces are larger.

Source: microsoft/deberta-xlarge, the first version, from its configuration alone.
Units: bytes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from madl.machine import fresh, memory
from madl.machine.allocator import MIB, Allocator, CachingAllocator, DeviceAllocator

if TYPE_CHECKING:
    from torch import nn

BLOCK = 32
WORKSPACES = (8 * MIB + 2**17, MIB)  # what cuBLAS and cuBLASLt take and keep on GPUs before Hopper
WRITTEN_BYTES = 2 + 4  # of a weight that is dequantized to BF16 and then cast to FP32
PACKED_FIRST = "MXINT8, packed before"
XLARGE = {
    "vocab_size": 50265,
    "hidden_size": 1024,
    "num_hidden_layers": 48,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_biased_input": False,
    "max_relative_positions": -1,
    "pos_att_type": ["c2p", "p2c"],
    "num_labels": 6,
}


def deberta_xlarge() -> "nn.Module":
    """The coursework's model without values, on the meta device."""
    import torch
    from transformers import DebertaConfig, DebertaForSequenceClassification

    config: Any = DebertaConfig
    with torch.device("meta"):
        return DebertaForSequenceClassification(config(**XLARGE)).eval()


def packed_xlarge() -> "nn.Module":
    """The same, each weight packed before it meets a device."""
    model = deberta_xlarge()
    for layer in linears(model):
        pack(layer)
    return model


def linears(model: "nn.Module") -> list[Any]:
    """The Linear layers."""
    from torch import nn

    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def inputs(length: int, *, device: str = "cpu") -> dict[str, Any]:
    """One sequence of one token, over and over."""
    import torch

    ids = torch.ones((1, length), dtype=torch.long, device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def replayed(tokens: int) -> dict[str, dict[str, int]]:
    """What `on_gpu` would find, from the model of the allocator."""
    packed = packed_xlarge()  # not on the device, so not counted
    values: dict[str, dict[str, int]] = {}
    for evaluate, model in ((_packed_between, deberta_xlarge()), (_packed_first, packed)):
        allocator = CachingAllocator()
        with memory.watching(allocator.allocate, allocator.free):
            on_device = model.to_empty(device="meta")
            for size in WORKSPACES:  # taken at the first product
                allocator.allocate(size)
            values |= evaluate(on_device, inputs(tokens, device="meta"), allocator)
            del on_device
    return values


def on_gpu(tokens: int) -> dict[str, dict[str, int]]:
    """Peaks of the CUDA device's own allocator, in two processes: each begins with nothing held."""
    halves = (
        fresh.call(f"{__name__}:half_on_gpu", {"tokens": tokens, "is_packed": is_packed})
        for is_packed in (False, True)
    )
    return {kind: peaks for half in halves for kind, peaks in half.items()}


def half_on_gpu(argument: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The peaks of the model packed on the device, or before; as `fresh.call` wants it."""
    batch, allocator = inputs(argument["tokens"], device="cuda"), DeviceAllocator()
    if argument["is_packed"]:
        return _packed_first(packed_xlarge().to_empty(device="cuda"), batch, allocator)
    return _packed_between(deberta_xlarge().to_empty(device="cuda"), batch, allocator)


def _packed_between(
    model: "nn.Module", batch: Mapping[str, Any], allocator: Allocator
) -> dict[str, dict[str, int]]:
    """Evaluated in FP32, packed on the device layer after layer, and evaluated again."""
    fp32 = _peaks(model, batch, allocator)
    for layer in linears(model):
        pack(layer)
        allocator.empty_cache()
    return {"FP32": fp32, "MXINT8": _peaks(model, batch, allocator)}


def _packed_first(
    model: "nn.Module", batch: Mapping[str, Any], allocator: Allocator
) -> dict[str, dict[str, int]]:
    """Evaluated by a model that was packed before it was moved to the device."""
    return {PACKED_FIRST: _peaks(model, batch, allocator)}


def _peaks(model: "nn.Module", batch: Mapping[str, Any], allocator: Allocator) -> dict[str, int]:
    import torch

    allocator.reset_peaks()
    with torch.inference_mode():
        model(**batch)
    return {
        "requested_bytes": allocator.peak_requested_bytes,
        "allocated_bytes": allocator.peak_bytes,
    }


def pack(linear: Any) -> None:
    """Pack a weight; the layer then writes it out in BF16 and casts it to its input's type.

    Memory is taken and freed in the order of the coursework's layer, which has room for the codes
    before it computes them.
    """
    import torch
    import torch.nn.functional as F

    from kernels import mxint8

    rows = linear.weight.detach().view(-1, BLOCK)
    room = torch.empty_like(rows, dtype=torch.int8)
    mantissas, scales = mxint8.quantize_in_torch(rows, BLOCK)
    shape = linear.weight.shape
    linear.register_buffer("mantissas", mantissas.view(shape))
    linear.register_buffer("scales", scales.view(shape[0], -1))
    del room, rows
    linear.weight = None

    def forward(x: Any) -> Any:
        weight = mxint8.dequantize(linear.mantissas, linear.scales, BLOCK)
        return F.linear(x, weight.to(x.dtype), linear.bias)

    linear.forward = forward
