"""Our adapters beside `peft`: the same model, data, start and recipe, taking turns in one run.

`python cli.py bench lora [--sentences 128] [--rank 8] [--budget 5]` needs the extra `bench` (peft).
Correctness first: both are given the same A and B, so that they must train to the same logits up to
rounding. Then the steps are timed interleaved, and forward passes with and without merging.
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._command import call, seconds, whole
from madl.compression.lora import LoraLinear, LoraRule, adapt_, merge_, num_trainable
from madl.logbook import stats
from madl.machine.timing import Measurement, compare
from madl.training import data, models
from madl.training.train import Recipe, evaluate, train

LAYERS = ("query", "key", "value", "dense")
ALPHA = 16.0
BATCH = 8
TOLERANCE = 1e-3  # of a logit after training: two orders of summation, amplified by every step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=whole, default=128)
    parser.add_argument("--rank", type=whole, default=8)
    parser.add_argument("--budget", type=seconds, default=5.0, help="seconds a variant")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--dataset", default="movie-snippets")
    options = parser.parse_args()

    splits = data.load_dataset(options.dataset)
    tokenizer = models.load_tokenizer(options.model)
    training = data.encode(splits.train.first(options.sentences), tokenizer, max_length=128)
    validation = data.encode(splits.validation, tokenizer, max_length=128)
    start = models.load_pretrained(options.model, seed=0)
    ours, theirs = _ours(copy.deepcopy(start), options.rank), _peft(start, options.rank)
    _same_start(ours, theirs)
    print(f"trainable: ours {num_trainable(ours):,}, peft {num_trainable(theirs):,}")

    # Dropout draws the same numbers on both sides, because train() seeds and the order is the same.
    recipe = Recipe(learning_rate=2e-3, batch_size=BATCH)
    losses = {name: train(m, training, recipe) for name, m in _named(ours, theirs).items()}
    accuracy = {n: evaluate(m, validation).accuracy for n, m in _named(ours, theirs).items()}
    batch = validation.batch(range(32))
    apart = (_logits(ours, batch) - _logits(theirs, batch)).abs().max().item()
    for name in losses:
        print(f"{name:<5} last loss {losses[name][-1]:.6f}, validation {accuracy[name]:.1%}")
    verdict = "same" if apart <= TOLERANCE else "DIFFERENT"
    print(f"largest difference of a logit after training: {apart:.1e} ({verdict})")

    step_batch = training.batch(range(BATCH))
    steps = {f"{n} step": _step(m, step_batch) for n, m in _named(ours, theirs).items()}
    _report(compare(steps, budget_s=options.budget), "peft step", "ours step")
    fused = copy.deepcopy(ours)
    merge_(fused)
    peft_fused = copy.deepcopy(theirs).merge_and_unload()
    print(
        "largest difference of a logit after merging: "
        f"ours {(_logits(fused, batch) - _logits(ours, batch)).abs().max().item():.1e}, "
        f"peft {(_logits(peft_fused, batch) - _logits(theirs, batch)).abs().max().item():.1e}"
    )
    forwards = {
        "ours forward": ours,
        "peft forward": theirs,
        "ours merged": fused,
        "peft merged": peft_fused,
    }
    timed = compare(
        {name: lambda m=model: _logits(m, step_batch) for name, model in forwards.items()},
        budget_s=options.budget,
    )
    _report(timed, "peft forward", "ours forward")
    _report(timed, "peft merged", "ours merged")


def _named(ours: nn.Module, theirs: nn.Module) -> dict[str, nn.Module]:
    return {"ours": ours, "peft": theirs}


def _ours(model: nn.Module, rank: int) -> nn.Module:
    pattern = rf".*\.({'|'.join(LAYERS)})"
    rule = LoraRule(pattern=pattern, rank=rank, alpha=ALPHA)
    adapt_(model, [rule], also_train=r"classifier\..*")
    return model


def _peft(model: nn.Module, rank: int) -> Any:
    try:
        import peft
    except ImportError as error:
        raise SystemExit(
            f"{error}; this benchmark needs peft: pip install -e '.[bench]'"
        ) from error
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=ALPHA,
        lora_dropout=0.0,
        target_modules=list(LAYERS),
        modules_to_save=["classifier"],
    )
    return peft.get_peft_model(model, config)


def _same_start(ours: nn.Module, theirs: Any) -> None:
    """Give peft's adapters the A that ours were drawn with; B is zero on both sides."""
    with torch.no_grad():
        for name, layer in ours.named_modules():
            if isinstance(layer, LoraLinear):
                peer = theirs.get_submodule(f"base_model.model.{name}")
                peer.lora_A["default"].weight.copy_(layer.lora_a)
                assert not peer.lora_B["default"].weight.any()


def _logits(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(**batch).logits


def _step(model: nn.Module, batch: Mapping[str, Tensor]) -> Callable[[], None]:
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-6, fused=True)

    def step() -> None:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _report(timed: Mapping[str, Measurement], baseline: str, candidate: str) -> None:
    for name in (baseline, candidate):
        one = timed[name]
        spread = statistics.quantiles(one.samples_s, n=4)
        print(
            f"{name:<13} median {1e3 * one.median_s:.2f} ms "
            f"[{1e3 * spread[0]:.2f}, {1e3 * spread[2]:.2f}], {len(one.samples_s)} samples"
        )
    a, b = timed[baseline], timed[candidate]
    made = stats.ratio([a.samples_s], [b.samples_s], contention=[b.contention])
    print(f"{candidate} against {baseline}: {made.estimate():i} as fast")
    if made.blocked:
        print(f"  which decides nothing yet: {made.blocked}")


if __name__ == "__main__":
    call(main)
