"""A model's memory in evaluation: what its parameter list predicts, and what a fresh process holds.

Units: bytes. Resident memory is anonymous memory in whole pages, after free pages were given back;
a peak is the high-water mark of one evaluation above what is held before it.
Not handled: systems without /proc, where resident memory is unknown.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F

from madl.compression.pack import MXINT8, pack_, packed_layers
from madl.machine import fresh, memory, replay
from madl.machine.replay import BLOCK
from madl.training import models

BITS = SCALE_BITS = 8
Json = Mapping[str, Any]


def predict(model: Any, activation_bytes: int = 0) -> dict[str, Any]:
    """The ledger of a model, and what else its parameter list says."""
    counted = memory.ledger(model, bits=BITS, scale_bits=SCALE_BITS, block=BLOCK)
    return {
        "ledger": asdict(counted),
        "activation_bytes": activation_bytes,
        "largest_weight": max(layer.weight.numel() for layer in replay.linears(model)),
    }


def predict_default(params: Json) -> dict[str, Any]:
    """The same of a pretrained model, with the activations of one evaluation."""
    model: Any = models.load_pretrained(params["model"], seed=0).eval()
    batch = replay.inputs(length_of(params))
    with torch.inference_mode():
        live = memory.live_bytes(lambda: model(**batch))
    return predict(model, live)


def length_of(params: Json) -> int:
    """As many tokens as asked for, or as the model has positions for."""
    return min(params["length"], models.longest_input(params["model"]) or params["length"])


def resident(params: Json) -> dict[str, Any]:
    """What a fresh process of one variant holds, and what an evaluation adds, whose allocator keeps
    no block that was freed.
    """
    return fresh.call(f"{__name__}:hold_and_evaluate", params)


def hold_and_evaluate(argument: Json) -> dict[str, Any]:
    torch.set_num_threads(1)
    memory.give_back_freed_blocks()
    batch, is_packed = replay.inputs(length_of(argument)), argument["variant"] == "MXINT8"
    warm_up(argument["model"], batch)  # code and buffers that any model needs
    memory.return_freed_pages()
    before = memory.resident_bytes()
    model = own_copy(models.load_pretrained(argument["model"], seed=0))
    if is_packed:
        pack_(model, [MXINT8])
    memory.return_freed_pages()
    held = memory.resident_bytes()
    assert before is not None
    assert held is not None
    values = {"model_bytes": held - before, **evaluated(model, batch)}
    if is_packed:
        write_weights_out(model)
        values["written_out"] = evaluated(model, batch)
    return values


def evaluated(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What one evaluation holds beside the model: pages, and tensors."""
    memory.return_freed_pages()
    with torch.inference_mode():
        peak = memory.peak_resident_bytes(lambda: model(**batch))
        live = memory.live_bytes(lambda: model(**batch))
    return {"peak_bytes": peak, "live_bytes": live}


def warm_up(name: str, batch: Mapping[str, Any]) -> None:
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
