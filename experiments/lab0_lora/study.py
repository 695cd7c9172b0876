"""Full fine-tuning, frozen embeddings, low-rank adapters: what they reach, and what a step costs.

Every way starts from the same pretrained encoder with the same untrained head, which learns in
all of them, and sees the same sentences in the same order. Each tries as many learning rates;
validation chooses, and what it has chosen is judged on test once. Products are bfloat16 where that
is fast, in training and in judging alike.

A step's memory is counted from the tensors (weights, AdamW's two moments, gradients, what autograd
saves), and measured: the most that torch's allocator held during a step, on top of the weights and
moments that lie there between steps.

Units: learning rates of AdamW; bytes; seconds a call.
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
from madl.machine import timing
from madl.machine.memory import keep_freed_pages, saved_for_backward
from madl.training import baseline, models
from madl.training.data import Encoded, batches_by_length
from madl.training.train import Recipe, has_fast_bf16, optimizer_of, take_step, train

ADAPTED = r".*\.(query|key|value|dense)"  # every Linear of the encoder and its pooler
HEAD = r"classifier\..*"  # is new, so it learns in every method
FROZEN = "embeddings"
EVALUATION_BATCH = 32
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


# ---- training and judging -----------------------------------------------------------------------


def untrained(params: Params, device: str) -> Values:
    """The pretrained encoder with its new head, before any training."""
    bf16 = has_fast_bf16(device)
    model = prepared(params, "before")
    judged = baseline.judge(model, params, device, bf16=bf16)
    return {"num_trainable": 0, "bf16": bf16, **judged}


def trained(params: Params, device: str, *, probe: int, tolerance: float) -> Values:
    """One way of training at the learning rate that validation prefers, judged on test.

    LoRA is judged once more with its adapters fused.
    """
    method, bf16 = str(params["method"]), has_fast_bf16(device)
    model, tried = _tuned(params, device)
    chosen = max(tried, key=_preference)
    values: dict[str, Any] = {
        "bf16": bf16,
        "tried": tried,
        **chosen,
        "num_trainable": lora.num_trainable(model),
        **baseline.judge_on_test(model, params, device, bf16=bf16),
    }
    if method == "lora":
        values["fused"] = fused(model, params, device, sentences=probe, tolerance=tolerance)
        values["fused"]["judged"] = baseline.judge(model, params, device, bf16=bf16)
    return values


def learning_rates(params: Params) -> list[float]:
    """What a case tries: numbers with spaces between."""
    return [float(rate) for rate in str(params["tune_learning_rates"]).split()]


def _tuned(params: Params, device: str) -> tuple[nn.Module, list[dict[str, Any]]]:
    """The model that validation prefers, and what each learning rate came to."""
    best: nn.Module | None = None
    tried: list[dict[str, Any]] = []
    for rate in learning_rates(params):
        model = _trained_at(params, device, rate)
        judged = baseline.judge_on_validation(model, params, device, bf16=has_fast_bf16(device))
        tried.append({"learning_rate": rate, **judged})
        if max(tried, key=_preference) is tried[-1]:
            best = model
    assert best is not None, "no learning rate was given"
    return best, tried


def _preference(found: Mapping[str, Any]) -> tuple[float, float]:
    return found["validation_accuracy"], -found["validation_loss"]


def _trained_at(params: Params, device: str, rate: float) -> nn.Module:
    model = prepared(
        params,
        str(params["method"]),
        rank=int(params.get("rank") or 0),
        alpha=float(params.get("alpha") or 0),
    )
    examples = baseline.load_splits(params).train.first(int(params["tune_examples"] or 0))
    train(model, examples, _recipe(params, device, rate), device=device)
    return model


def _recipe(params: Params, device: str, rate: float) -> Recipe:
    return baseline.training_recipe(
        {**params, "tune_learning_rate": rate},
        prefix="tune_",
        epochs=1,
        bf16=has_fast_bf16(device),
    )


# ---- fusing -------------------------------------------------------------------------------------


def fused(
    model: nn.Module, params: Params, device: str, *, sentences: int, tolerance: float
) -> dict[str, Any]:
    """Put the adapters into the weights: how far that moves the logits of some test sentences.

    In float32, so that what differs is the order of the sums.
    """
    probe = baseline.load_splits(params).test.first(sentences)
    adapted = _logits(model, probe, device)
    names = lora.merge_(model)
    merged = _logits(model, probe, device)
    apart = (merged - adapted).abs().amax(-1)  # (sentences,)
    return {
        "layers": len(names),
        "largest": float(apart.max()),
        "beyond": int((apart > tolerance).sum()),
        "other_answers": int((merged.argmax(-1) != adapted.argmax(-1)).sum()),
        "logit_scale": float(adapted.abs().max()),
        "sentences": len(probe),
    }


@torch.no_grad()
def _logits(model: nn.Module, data: Encoded, device: str) -> Tensor:
    model.eval()
    batches = (data.batch(rows) for rows in batches_by_length(data, EVALUATION_BATCH))
    return torch.cat(
        [model(**{k: v.to(device) for k, v in batch.items()}).logits.cpu() for batch in batches]
    )


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
