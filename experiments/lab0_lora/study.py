"""Full fine-tuning, frozen embeddings, low-rank adapters: what they reach, and what a step costs.

Every way starts from the same pretrained encoder with the same untrained head, which learns in
all of them, and takes one pass over all training sentences of its seed's draw, in the same order.
Training multiplies in bfloat16 where that is fast; what was trained is judged in float32.

A step's memory is counted from the tensors (weights, AdamW's two moments, what autograd saves), and
measured: the most that torch's allocator held during a step, on top of the weights and
moments that lie there between steps.

Units: learning rates of AdamW; bytes; seconds a call.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from madl.compression import lora, size
from madl.compression.lora import LoraRule
from madl.logbook.records import Params, Values
from madl.machine import timing
from madl.machine.memory import keep_freed_pages, saved_for_backward
from madl.training import baseline, models
from madl.training.data import Encoded
from madl.training.train import Recipe, has_fast_bf16, optimizer_of, take_step, train

FROZEN = "embeddings"
STEP_BATCH = 8
PROBE_SENTENCES = 128  # whose logits are compared before and after fusing
SAMPLES = 3  # of each variant in a process; the processes are what a verdict's interval takes apart


def prepared(params: Params, method: str) -> nn.Module:
    """The pretrained model with the parts frozen that this method leaves alone."""
    seed = int(params["seed"] or 0)
    model = models.load_pretrained(str(params["model"]), seed=seed)
    if method == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(FROZEN not in name.split("."))
    if method == "lora":
        torch.manual_seed(seed)
        rank, alpha = int(params["rank"] or 0), float(params["alpha"] or 0)
        encoder = re.escape(str(model.base_model_prefix))  # its Linear layers take adapters;
        rule = LoraRule(pattern=rf"{encoder}\..*", rank=rank, alpha=alpha)
        lora.adapt_(model, [rule], also_train=rf"(?!{encoder}\.).*")  # what is around it is new
    return model


def with_room(sentences: Encoded, params: Params, pads: int) -> Encoded:
    """Each sentence cut so that the model has positions for as many pads behind the longest."""
    longest = models.longest_input(str(params["model"]))
    room = None if longest is None else longest - pads
    return replace(sentences, token_ids=[ids[:room] for ids in sentences.token_ids])


# ---- training and judging -----------------------------------------------------------------------


def trained(params: Params, device: str) -> nn.Module:
    """After one pass; or before any."""
    model = prepared(params, str(params["method"]))
    if params["method"] == "untrained":
        return model
    recipe = baseline.training_recipe(params, bf16=has_fast_bf16(device))
    train(model, baseline.load_splits(params).train, recipe, device=device)
    return model


def validated(params: Params, device: str) -> Values:
    """What there is to choose a learning rate by."""
    return baseline.judge_on_validation(trained(params, device), params, device)


def judged(params: Params, device: str, *, tolerance: float) -> Values:
    """One way of training, on test; LoRA once more with its adapters fused."""
    model = trained(params, device)
    values: dict[str, Any] = {
        "bf16": has_fast_bf16(device),
        "num_trainable": lora.num_trainable(model),
        **baseline.judge_on_test(model, params, device),
    }
    if params["method"] == "lora":
        values["fused"] = fused(model, params, device, tolerance=tolerance)
    return values


def fused(model: nn.Module, params: Params, device: str, *, tolerance: float) -> Values:
    """Put the adapters into the weights: how far that moves a logit, and what is answered then."""
    test = baseline.load_splits(params).test.first(PROBE_SENTENCES)
    probe = {name: tensor.to(device) for name, tensor in test.batch(range(len(test))).items()}
    with torch.no_grad():
        beside = model(**probe).logits  # (B, classes)
        layers = lora.merge_(model)
        largest = float((model(**probe).logits - beside).abs().max())
    assert largest <= tolerance, f"fusing {len(layers)} layers moves a logit by {largest:g}"
    return {"largest": largest, **baseline.judge_on_test(model, params, device)}


# ---- what a step costs --------------------------------------------------------------------------


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
        shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
        tiny = BertForSequenceClassification(BertConfig(**shape, intermediate_size=512))
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
    }


def _ways(params: Params, device: str) -> dict[str, nn.Module]:
    return {method: prepared(params, method).to(device) for method in ("full", "frozen", "lora")}


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
    recipe = Recipe(learning_rate=1e-6)
    steps = {
        method: partial(take_step, model, batch, optimizer_of(model.train(), recipe), bf16=bf16)
        for method, model in ways.items()
    }
    forward = torch.no_grad()(lambda model: model(**batch))
    passes = {"adapters": partial(forward, beside), "fused": partial(forward, fused)}
    budget = {"budget_s": float(params["budget_s"]), "min_samples": SAMPLES}
    compare = partial(timing.compare, device=device, **budget)
    measured = compare(steps, memory=argument["process"] == 0) | compare(passes)
    return {"measurements": {name: one.to_json() for name, one in measured.items()}, "bf16": bf16}


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
        "saved": saved,
    }
