"""A model's memory in evaluation: what its parameter list predicts, and what a fresh process holds.

Units: bytes. Resident memory is anonymous memory in whole pages, after free pages were given back;
a peak is the high-water mark of one evaluation above what is held before it.
Not handled: systems without /proc, where resident memory is unknown.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from madl.compression.pack import MXINT8, pack_, packed_layers
from madl.machine import fresh, memory, replay
from madl.machine.replay import BLOCK
from madl.training import models

BITS = SCALE_BITS = 8
Json = Mapping[str, Any]


def predict(model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger, and the activations where there is a batch to count them on."""
    counted = memory.ledger(model, bits=BITS, scale_bits=SCALE_BITS, block=BLOCK)
    with torch.inference_mode():
        activations = memory.live_bytes(lambda: model.eval()(**batch)) if batch else 0
    return {
        "ledger": asdict(counted),
        "activation_bytes": activations,
        "largest_weight": max(layer.weight.numel() for layer in replay.linears(model)),
    }


def resident(checkpoint: Path, params: Json) -> dict[str, Any]:
    """Memory of a fresh process that does nothing but hold the model and evaluate; and of another,
    under `nothing_kept`, whose allocator keeps no block that was freed.
    """
    argument = {**params, "checkpoint": str(checkpoint)}
    usual, bare = (
        fresh.call(f"{__name__}:hold_and_evaluate", {**argument, "keeps_blocks": keeps})
        for keeps in (True, False)
    )
    return {**usual, "nothing_kept": bare}


def hold_and_evaluate(argument: Json) -> dict[str, Any]:
    """Of one variant of a checkpoint: what it holds, and what an evaluation adds."""
    torch.set_num_threads(1)
    if not argument["keeps_blocks"]:
        memory.give_back_freed_blocks()
    batch = replay.inputs(argument["length"], batch=argument["batch"])
    is_packed = argument["variant"] == "MXINT8"
    warm_up(argument, batch)  # code and buffers that any model needs
    memory.return_freed_pages()
    before = memory.resident_bytes()
    model = own_copy(models.load_checkpoint(Path(argument["checkpoint"])))
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


def warm_up(argument: Json, batch: Mapping[str, Any]) -> None:
    model: Any = models.load_checkpoint(Path(argument["checkpoint"])).eval()
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
