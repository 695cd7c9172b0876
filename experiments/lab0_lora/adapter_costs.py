"""What a way of training costs: time and memory of a step, of a forward pass, and parameters.

A step is the one that `train` takes, on one fixed batch. Memory is counted from the tensors
(weights, AdamW's two moments, gradients, what autograd saves), and measured: the most that torch's
allocator held during a step, on top of the weights and moments that lie there between steps.

Units: bytes; seconds a call.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from experiments.lab0_lora.adapters import prepared
from madl.compression import lora, size
from madl.logbook.records import Params, Values
from madl.machine import timing
from madl.machine.memory import keep_freed_pages, saved_for_backward
from madl.training import baseline, models
from madl.training.train import Recipe, has_fast_bf16, optimizer_of, take_step

Measured = dict[str, timing.Measurement]
STEP_BATCH = 8
SAMPLES = 3  # of each variant in a process; the processes are what a verdict's interval takes apart

# BERT-tiny's configuration.
TINY: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}


def costs(params: Params, device: str) -> Values:
    """What is counted here, and what several fresh processes measure."""
    rows = baseline.load_splits(params).train.batch(range(STEP_BATCH))
    batch = {name: tensor.to(device) for name, tensor in rows.items()}
    ways = _ways(params, device)
    argument = {
        **{"params": dict(params), "device": device, "threads": torch.get_num_threads()},
        "batch": {name: tensor.tolist() for name, tensor in rows.items()},
    }
    plain = models.load_pretrained(str(params["model"]), seed=0)
    with torch.device("meta"):  # shapes without weights
        tiny = BertForSequenceClassification(BertConfig(**TINY))
    return {
        **timing.over_processes(
            f"{__name__}:measure", argument, processes=int(params["processes"] or 1)
        ),
        "counted": {method: counted(model, batch) for method, model in ways.items()},
        "trainable": {method: lora.num_trainable(model) for method, model in ways.items()},
        "parameters": {
            "this model": [size.num_parameters(plain), lora.nested_sum(plain)],
            "BERT-tiny": [size.num_parameters(tiny), lora.nested_sum(tiny)],
        },
        "tokens": batch["input_ids"].numel(),
    }


def _ways(params: Params, device: str) -> dict[str, nn.Module]:
    rank, alpha = int(params["rank"] or 0), float(params["alpha"] or 0)
    return {
        **{method: prepared(params, method).to(device) for method in ("full", "frozen")},
        "lora": prepared(params, "lora", rank=rank, alpha=alpha).to(device),
    }


def measure(argument: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of the three ways in turn, and forward passes in turn; for `timing.over_processes`.

    The first process takes the peak of the allocator too, which is the same in all of them.
    """
    keep_freed_pages()
    torch.set_num_threads(int(argument["threads"]))
    params, device = argument["params"], str(argument["device"])
    batch = {name: torch.tensor(rows, device=device) for name, rows in argument["batch"].items()}
    ways = _ways(params, device)
    bf16 = has_fast_bf16(device)
    beside, fused = copy.deepcopy(ways["lora"]).eval(), copy.deepcopy(ways["lora"]).eval()
    lora.merge_(fused)
    steps = {method: _step(model, batch, bf16) for method, model in ways.items()}
    passes = {"adapters": _forward(beside, batch), "fused": _forward(fused, batch)}

    def compare(calls: Mapping[str, Callable[[], object]], *, memory: bool = False) -> Measured:
        budget_s = float(params["budget_s"])
        return timing.compare(
            calls, device=device, budget_s=budget_s, min_samples=SAMPLES, memory=memory
        )

    measured = compare(steps, memory=argument["process"] == 0) | compare(passes)
    return {"measurements": {name: one.to_json() for name, one in measured.items()}, "bf16": bf16}


def _step(model: nn.Module, batch: Mapping[str, Tensor], bf16: bool) -> Callable[[], object]:
    optimizer = optimizer_of(model.train(), Recipe(learning_rate=1e-6))
    return lambda: take_step(model, batch, optimizer, bf16=bf16)


def _forward(model: nn.Module, batch: Mapping[str, Tensor]) -> Callable[[], object]:
    return torch.no_grad()(lambda: model(**batch))


def counted(model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, int]:
    """Bytes that a step has in memory at its fullest, from the tensors: no allocator is asked."""
    every = list(model.parameters())
    learning = sum(p.numel() * p.element_size() for p in every if p.requires_grad)
    device = batch["labels"].device.type
    model.train()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=has_fast_bf16(device)):
        saved = saved_for_backward(lambda: model(**batch), exclude=every)
    return {
        "weights": sum(p.numel() * p.element_size() for p in every),
        "optimizer": 2 * learning,
        "gradients": learning,
        "saved": saved,
    }
