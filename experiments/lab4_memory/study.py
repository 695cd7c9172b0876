"""A model's memory in evaluation: predicted from its parameter list, simulated, and measured.

Units: bytes. Resident memory is anonymous memory in whole pages, after free pages were given back;
a peak is the high-water mark of one evaluation above what is held before it.
Not handled: systems without /proc, where resident memory is unknown.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F

from experiments.lab4_memory import design, footprint, ledger, replay
from madl.compression.pack import MXINT8, pack_, packed_layers
from madl.compression.quantize import linear_layers
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.machine import fresh
from madl.training import models

Json = Mapping[str, Any]


def run(params: Params, ctx: Context) -> Values:
    """Predict a model's memory, simulate or measure the coursework's, or measure the default's."""
    match params["what"]:
        case "replay":
            return replay.replayed_peaks(params["tokens"])
        case "cuda":
            return replay.device_peaks(params["tokens"])
        case "resident":
            return fresh.call(f"{__name__}:{hold_and_evaluate.__name__}", params)
        case _ if params["of"] == design.LARGE:
            return predict(replay.deberta_xlarge())
        case _:
            return predict_default(params)


def predict(model: Any, activation_bytes: int = 0) -> dict[str, Any]:
    """A model's ledger of bytes, its largest Linear weight's size, and the given activations."""
    counted = ledger.ledger(
        model, bits=design.MANTISSA_BITS, scale_bits=design.SCALE_BITS, block=design.BLOCK
    )
    return {
        "ledger": asdict(counted),
        "activation_bytes": activation_bytes,
        "largest_weight": max(layer.weight.numel() for layer in linear_layers(model)),
    }


def predict_default(params: Json) -> dict[str, Any]:
    """Predict the memory of a pretrained model, with the activations of one evaluation."""
    model: Any = models.load_pretrained(params["model"], seed=0).eval()
    batch = replay.inputs(length_of(params))
    with torch.inference_mode():
        live = footprint.live_bytes(lambda: model(**batch))
    return predict(model, live)


def length_of(params: Json) -> int:
    """The tokens of an input: as many as asked for, or as the model has positions for."""
    return min(params["length"], models.longest_input(params["model"]) or params["length"])


def hold_and_evaluate(argument: Json) -> dict[str, Any]:
    """Load one variant of the model: the bytes that it holds, and the peaks of its evaluations.

    In a fresh process whose allocator keeps no block that was freed.
    """
    torch.set_num_threads(1)
    footprint.give_back_freed_blocks()
    batch, is_packed = replay.inputs(length_of(argument)), argument["variant"] == design.MXINT8
    warm_up(argument["model"], batch)  # code and buffers that any model needs
    footprint.return_freed_pages()
    before = footprint.resident_bytes()
    model = own_copy(models.load_pretrained(argument["model"], seed=0))
    if is_packed:
        pack_(model, [MXINT8])
    footprint.return_freed_pages()
    after = footprint.resident_bytes()
    assert before is not None
    assert after is not None
    values = {"model_bytes": after - before, **evaluation_peaks(model, batch)}
    if is_packed:
        write_weights_out(model)
        values["written_out"] = evaluation_peaks(model, batch)
    return values


def evaluation_peaks(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Peak bytes of an evaluation above those held before: of resident memory, and of tensors."""
    footprint.return_freed_pages()
    with torch.inference_mode():
        peak = footprint.peak_resident_bytes(lambda: model(**batch))
        live = footprint.live_bytes(lambda: model(**batch))
    return {"peak_bytes": peak, "live_bytes": live}


def warm_up(name: str, batch: Mapping[str, Any]) -> None:
    """Load, evaluate and pack a model, so that what any model needs is there."""
    model: Any = models.load_pretrained(name, seed=0).eval()
    with torch.inference_mode():
        model(**batch)
        pack_(model, [MXINT8])
        model(**batch)


def own_copy(model: Any) -> Any:
    """The model with weights in memory of its own: a loaded file is only mapped."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model.eval()


def write_weights_out(model: Any) -> None:
    """Have each packed layer dequantize its weight before it multiplies."""

    def write_out(layer: Any) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, layer.dequantized().float(), layer.bias)

        layer.forward = forward

    for layer in packed_layers(model).values():
        write_out(layer)
