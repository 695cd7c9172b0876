"""Full fine-tuning, frozen embeddings, low-rank adapters: the models, their tuning, fusing.

Every way starts from the same pretrained encoder with the same untrained head, which learns in
all of them, and sees the same sentences in the same order. Each tries as many learning rates;
validation chooses, and what it has chosen is judged on test once. Products are bfloat16 where that
is fast, in training and in judging alike.

Units: learning rates of AdamW; movements of a row in shares of its length.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from madl.compression import lora
from madl.compression.lora import LoraRule
from madl.logbook.records import Params, Values
from madl.training import baseline, models
from madl.training.data import Encoded, batches_by_length
from madl.training.train import Recipe, has_fast_bf16, rate_at, train

ADAPTED = r".*\.(query|key|value|dense)"  # every Linear of the encoder and its pooler
HEAD = r"classifier\..*"  # is new, so it learns in every method
FROZEN = "embeddings"
EVALUATION_BATCH = 32


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

    LoRA is judged once more with its adapters fused; of full fine-tuning, what it did to the rows
    of the word table is measured too.
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
    if method == "full":
        values["rows"] = _rows_of(model, params, float(chosen["learning_rate"]))
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


# ---- what training does to an embedding table ---------------------------------------------------


def _rows_of(model: nn.Module, params: Params, rate: float) -> Values:
    """What became of the word table's rows: those that training sentences hold, and the others."""
    examples = baseline.load_splits(params).train.first(int(params["tune_examples"] or 0))
    read = sorted({token for ids in examples.token_ids for token in ids})
    before, after = (_word_table(one) for one in (prepared(params, "full"), model))
    recipe = _recipe(params, "cpu", rate)
    return moved_rows(before, after, read) | {
        "decay": decayed(recipe, recipe.num_steps(len(examples)))
    }


def _word_table(model: Any) -> Tensor:
    return model.get_input_embeddings().weight.detach().cpu()


def moved_rows(before: Tensor, after: Tensor, read: Sequence[int]) -> dict[str, Any]:
    """How far rows moved, the median of those read and the two extremes of all others.

    Shapes: tables (rows, width); `read` indexes rows. A row of zeros, as padding has, is no word.
    """
    length = before.norm(dim=1)  # (rows,)
    moved = (after - before).norm(dim=1) / length
    is_read = torch.zeros(len(moved), dtype=torch.bool)
    is_read[list(read)] = True
    others = moved[~is_read & (length > 0)]
    return {
        "rows": len(moved),
        "read": int(is_read.sum()),
        "read_median": float(moved[is_read].median()),
        "others_least": float(others.min()),
        "others_most": float(others.max()),
    }


def decayed(recipe: Recipe, steps: int) -> float:
    """By which share of its length weight decay alone shortens a row during a training."""
    rates = (recipe.learning_rate * rate_at(i, steps) for i in range(steps))
    return 1 - math.prod(1 - rate * recipe.weight_decay for rate in rates)


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
