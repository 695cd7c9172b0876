"""The coursework's measurement of packed DeBERTa-xlarge, on a CUDA device or replayed without one.

It evaluates the FP32 model, packs one Linear layer after another on the device, and evaluates
again; the peaks are those of torch's allocator. `replayed_peaks` runs the same program on tensors
without values and feeds a model of the allocator, for GPUs before Hopper: later workspaces are
larger.

Units: bytes.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DebertaConfig, DebertaForSequenceClassification

from experiments.lab4_memory.allocator import Allocator, CachingAllocator, DeviceAllocator
from experiments.lab4_memory.design import BLOCK, FP32, MXINT8, PACKED_FIRST, WORKSPACES, XLARGE
from experiments.lab4_memory.footprint import watching
from kernels import mxint8, mxint8_cuda
from madl.compression.quantize import linear_layers
from madl.errors import MadlError
from madl.machine import fresh

Peaks = dict[str, int]


def deberta_xlarge() -> nn.Module:
    """The coursework's model without values, on the meta device."""
    config: Any = DebertaConfig
    with torch.device("meta"):
        return DebertaForSequenceClassification(config(**XLARGE)).eval()


def packed_xlarge() -> nn.Module:
    """The coursework's model, each weight packed before it meets a device."""
    model = deberta_xlarge()
    for layer in linear_layers(model):
        pack(layer)
    return model


def inputs(length: int, *, device: str = "cpu") -> dict[str, Tensor]:
    """A batch of one sequence, which repeats one token."""
    ids = torch.ones((1, length), dtype=torch.long, device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def replayed_peaks(tokens: int) -> dict[str, Peaks]:
    """Variant → peaks of the coursework's measurement, by the model of the allocator."""
    packed = packed_xlarge()  # not on the device, so not counted
    peaks: dict[str, Peaks] = {}
    for evaluate, model in ((_packed_between, deberta_xlarge()), (_packed_first, packed)):
        allocator = CachingAllocator()
        with watching(allocator.allocate, allocator.free):
            on_device = model.to_empty(device="meta")
            for size in WORKSPACES:  # taken at the first product
                allocator.allocate(size)
            peaks |= evaluate(on_device, inputs(tokens, device="meta"), allocator)
            del on_device
    return peaks


def device_peaks(tokens: int) -> dict[str, Any]:
    """Variant → peaks of the coursework's measurement, by the CUDA device's own allocator.

    In two processes: each begins with nothing held. `kernel` says by which path the kernel that
    dequantizes was compiled.
    """
    function = f"{__name__}:{half_on_device.__name__}"
    between, first = (
        fresh.call(function, {"tokens": tokens, "is_packed": is_packed})
        for is_packed in (False, True)
    )
    return {**between, **first}


def half_on_device(argument: Mapping[str, Any]) -> dict[str, Any]:
    """The peaks of the model packed on the device, or before (`is_packed`), in this process.

    Raises:
        MadlError: no kernel of ours runs here, and torch's way to dequantize holds more.
    """
    batch, allocator = inputs(argument["tokens"], device="cuda"), DeviceAllocator()
    if (route := mxint8_cuda.route(batch["input_ids"].device.index)).cubin is None:
        raise MadlError(f"the kernel that dequantizes cannot run here: {route.reason}")
    kernel = {"kernel": route.path}
    if argument["is_packed"]:
        return kernel | _packed_first(packed_xlarge().to_empty(device="cuda"), batch, allocator)
    return kernel | _packed_between(deberta_xlarge().to_empty(device="cuda"), batch, allocator)


def _packed_between(
    model: nn.Module, batch: Mapping[str, Tensor], allocator: Allocator
) -> dict[str, Peaks]:
    """The peaks of a model in FP32, and after its layers were packed on the device one by one."""
    fp32 = _peaks(model, batch, allocator)
    for layer in linear_layers(model):
        pack(layer)
        allocator.empty_cache()
    return {FP32: fp32, MXINT8: _peaks(model, batch, allocator)}


def _packed_first(
    model: nn.Module, batch: Mapping[str, Tensor], allocator: Allocator
) -> dict[str, Peaks]:
    """The peaks of a model that was packed before it was moved to the device."""
    return {PACKED_FIRST: _peaks(model, batch, allocator)}


def _peaks(model: nn.Module, batch: Mapping[str, Tensor], allocator: Allocator) -> Peaks:
    """The most bytes requested and allocated during one evaluation."""
    allocator.reset_peaks()
    with torch.inference_mode():
        model(**batch)
    return {
        "requested_bytes": allocator.peak_requested_bytes,
        "allocated_bytes": allocator.peak_bytes,
    }


def pack(linear: Any) -> None:
    """Pack a layer's weight; each call dequantizes it to BF16 and casts it to the input's type.

    Memory is taken and freed in the order of the coursework's layer, which has room for the codes
    before it computes them.
    """
    rows = linear.weight.detach().view(-1, BLOCK)
    room = torch.empty_like(rows, dtype=torch.int8)
    mantissas, scales = mxint8.quantize_in_torch(rows, BLOCK)
    shape = linear.weight.shape
    linear.register_buffer("mantissas", mantissas.view(shape))
    linear.register_buffer("scales", scales.view(shape[0], -1))
    del room, rows
    linear.weight = None

    def forward(x: Tensor) -> Tensor:
        weight = mxint8.dequantize(linear.mantissas, linear.scales, BLOCK)
        return F.linear(x, weight.to(x.dtype), linear.bias)

    linear.forward = forward
