"""Full fine-tuning, frozen embeddings, low-rank adapters: the models, fusing, what each costs.

Every way starts from the same pretrained encoder with the same untrained head, which learns in
all of them.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from madl.compression import lora, size
from madl.compression.lora import LoraRule
from madl.logbook.records import Params, Values
from madl.machine.memory import saved_for_backward
from madl.machine.timing import compare
from madl.training import baseline, models
from madl.training.data import Encoded, batches_by_length

ADAPTED = r".*\.(query|key|value|dense)"  # every Linear of the encoder and its pooler
HEAD = r"classifier\..*"  # is new, so it learns in every method
FROZEN = "embeddings"
STEP_BATCH = 8
EVALUATION_BATCH = 32

# BERT-tiny's configuration.
TINY: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}


def prepared(params: Params, method: str, *, rank: int = 0, alpha: float = 0.0) -> nn.Module:
    """The pretrained model with the parts frozen that this method leaves alone."""
    seed = int(params["seed"] or 0)
    model = models.load_pretrained(str(params["model"]), seed=seed)
    if method == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(FROZEN not in name.split("."))
    if method == "lora":
        torch.manual_seed(seed)
        rule = LoraRule(pattern=ADAPTED, rank=rank, alpha=alpha)
        lora.adapt_(model, [rule], also_train=HEAD)
    return model


def fused(
    model: nn.Module, params: Params, device: str, *, sentences: int, tolerance: float
) -> Values:
    """Put the adapters into the weights: how far that moves the logits of some test sentences."""
    probe = baseline.load_splits(params).test.first(sentences)
    adapted = _logits(model, probe, device)
    names = lora.merge_(model)
    apart = (_logits(model, probe, device) - adapted).abs().amax(-1)  # (sentences,)
    return {
        "layers": len(names),
        "largest": float(apart.max()),
        "beyond": int((apart > tolerance).sum()),
        "logit_scale": float(adapted.abs().max()),
        "sentences": len(probe),
        **({"judged": baseline.judge(model, params, device)} if params["judge_fused"] else {}),
    }


@torch.no_grad()
def _logits(model: nn.Module, data: Encoded, device: str) -> Tensor:
    model.eval()
    batches = (data.batch(rows) for rows in batches_by_length(data, EVALUATION_BATCH))
    return torch.cat(
        [model(**{k: v.to(device) for k, v in batch.items()}).logits.cpu() for batch in batches]
    )


# ---- costs --------------------------------------------------------------------------------------


def costs(params: Params, device: str, *, alpha: float) -> Values:
    """Step time, interleaved; bytes that a step holds, counted; parameters of two models."""
    ranks = [int(rank) for rank in str(params["ranks"]).strip("()").split(",") if rank.strip()]
    rows = baseline.load_splits(params).train.batch(range(STEP_BATCH))
    batch = {name: tensor.to(device) for name, tensor in rows.items()}
    ways = {method: prepared(params, method) for method in ("full", "frozen")}
    ways |= {f"lora {r}": prepared(params, "lora", rank=r, alpha=alpha) for r in ranks}
    ways = {name: model.to(device) for name, model in ways.items()}
    budget = float(params["budget_s"] or 0)
    held = {name: _held_bytes(model, batch) for name, model in ways.items()}
    steps = {name: _step(model, batch) for name, model in ways.items()}
    timed = compare(steps, device=device, budget_s=budget)
    plain = models.load_pretrained(str(params["model"]), seed=0)
    with torch.device("meta"):  # shapes without weights
        tiny = BertForSequenceClassification(BertConfig(**TINY))
    return {
        "steps": {name: m.to_json() for name, m in timed.items()},
        "held": held,
        "inference": _inference(ways[f"lora {max(ranks)}"], batch, device, budget),
        "trainable": {name: lora.num_trainable(model) for name, model in ways.items()},
        "parameters": {
            "this model": [size.num_parameters(plain), lora.nested_sum(plain)],
            "BERT-tiny": [size.num_parameters(tiny), lora.nested_sum(tiny)],
        },
        "tokens": int(batch["input_ids"].numel()),
    }


def _step(model: nn.Module, batch: Mapping[str, Tensor]) -> Callable[[], None]:
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-6, fused=True)
    model.train()

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _held_bytes(model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, int]:
    """What a step has in memory at its fullest: counted from the tensors, no allocator asked."""
    every = list(model.parameters())
    learning = sum(p.numel() * p.element_size() for p in every if p.requires_grad)
    model.train()
    return {
        "weights": sum(p.numel() * p.element_size() for p in every),
        "gradients": learning,
        "optimizer": 2 * learning,
        "activations": saved_for_backward(lambda: model(**batch), exclude=every),
    }


def _inference(
    adapted: nn.Module, batch: Mapping[str, Tensor], device: str, budget_s: float
) -> dict[str, Any]:
    """A forward pass with the adapters beside the weights, and in them."""
    merged = copy.deepcopy(adapted).eval()
    lora.merge_(merged)
    adapted.eval()

    def forward(model: nn.Module) -> Callable[[], object]:
        return torch.no_grad()(lambda: model(**batch))

    calls = {"adapters": forward(adapted), "fused": forward(merged)}
    timed = compare(calls, device=device, budget_s=budget_s)
    return {name: m.to_json() for name, m in timed.items()}
