"""Fine-tuning and evaluation of a classifier: two plain loops.

Both are deterministic for a seed on one machine and number of threads.
Units: learning rate per AdamW step.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madl.machine.device import cpu_info
from madl.training.data import Encoded, batches_by_length, shuffled_batches

log = logging.getLogger(__name__)

EVALUATION_BATCH = 64
LOG_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train: AdamW, linear warm-up over a tenth of the steps, then linear decay to zero.

    `bf16` runs the matrix products in bfloat16 by autocast; master weights stay float32.

    Raises:
        ValueError: a number that cannot train anything.
    """

    epochs: int = 1
    learning_rate: float = 5e-5
    batch_size: int = 32
    weight_decay: float = 0.01
    seed: int = 0
    bf16: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0:
            raise ValueError(f"epochs, batch size and learning rate are positive, got {self}")

    def num_steps(self, num_examples: int) -> int:
        """The number of steps of a training on so many examples."""
        return self.epochs * math.ceil(num_examples / self.batch_size)


def train(
    model: nn.Module,
    data: Encoded,
    recipe: Recipe,
    *,
    device: str = "cpu",
    after_epoch: Callable[[int], None] = lambda epoch: None,
    after_step: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """Train in place; returns the loss of every step. Leaves the model in evaluation mode.

    The callbacks get the number of the epoch (from 0) or of the steps done (from 1).
    """
    torch.manual_seed(recipe.seed)
    model.to(device).train()
    optimizer = optimizer_of(model, recipe)
    total = recipe.num_steps(len(data))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: rate_at(i, total))
    progress = _Progress("training", total)
    losses: list[float] = []
    for epoch in range(recipe.epochs):
        for indices in shuffled_batches(data, recipe.batch_size, seed=recipe.seed * 1000 + epoch):
            if not model.training:  # a callback has judged it
                model.train()
            batch = _to(data.batch(indices), device)
            loss = take_step(model, batch, optimizer, bf16=recipe.bf16)
            schedule.step()
            losses.append(loss.item())
            progress.step(f"loss {loss.item():.3f}")
            after_step(len(losses))
        model.eval()
        after_epoch(epoch)
    return losses


def optimizer_of(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over all parameters that require a gradient."""
    groups = _decay_groups(model, recipe.weight_decay)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)


def take_step(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    bf16: bool = False,
) -> Tensor:
    """Forward, backward, gradients clipped to a norm of one, update; returns the loss."""
    with _autocast(batch["labels"].device.type, enabled=bf16):
        loss: Tensor = model(**batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def _decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups, with weight decay on matrices only: not on biases and norms, as in BERT."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def rate_at(step: int, total: int) -> float:
    """The share of the learning rate, 0…1, at step 0 … total - 1: warm-up, then linear decay."""
    warm_up = max(total // 10, 1)
    return min((step + 1) / warm_up, (total - step) / max(total - warm_up, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Whether each example is classified correctly, and its cross-entropy, in the split's order."""

    correct: list[bool]
    losses: list[float]

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / len(self.correct)


@torch.no_grad()
def evaluate(
    model: nn.Module, data: Encoded, *, device: str = "cpu", bf16: bool = False
) -> Evaluation:
    """Evaluate a classifier on every example; it is left in evaluation mode."""
    model.to(device).eval()
    places: list[int] = []
    parts: list[Tensor] = []
    progress = _Progress("evaluating", math.ceil(len(data) / EVALUATION_BATCH))
    for indices in batches_by_length(data, EVALUATION_BATCH):
        with _autocast(device, enabled=bf16):
            output = model(**_to(data.batch(indices), device))
        places += indices
        parts.append(output.logits.float().cpu())  # (B, classes)
        progress.step()
    logits = torch.cat(parts)[torch.tensor(places).argsort()]  # (N, classes), in the split's order
    labels = torch.tensor(data.labels)
    losses: list[float] = F.cross_entropy(logits, labels, reduction="none").tolist()
    return Evaluation(correct=(logits.argmax(-1) == labels).tolist(), losses=losses)


def has_fast_bf16(device: str) -> bool:
    """Whether products in bfloat16 take less time than in float32 here.

    On CPUs: those of AMX tiles, and of AMD's cores. An Intel core without AMX does as many
    bfloat16 as float32 operations a cycle, and a step takes 1.4 to 1.6 times as long.
    """
    if device == "cuda":
        return torch.cuda.is_bf16_supported()
    is_amd = "AuthenticAMD" in cpu_info("vendor_id")
    return torch.cpu._is_amx_tile_supported() or (is_amd and torch.cpu._is_avx512_bf16_supported())


def _autocast(device: str, *, enabled: bool) -> torch.autocast:
    return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled)


def _to(batch: Mapping[str, Tensor], device: str) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


class _Progress:
    """Logs every few seconds how far a loop is and how long the rest takes."""

    def __init__(self, loop: str, total: int) -> None:
        self.loop, self.total, self.done = loop, total, 0
        self.started = self.logged = time.perf_counter()

    def step(self, detail: str = "") -> None:
        self.done += 1
        now = time.perf_counter()
        if now - self.logged >= LOG_EVERY_S:
            self.logged = now
            rest_s = (now - self.started) / self.done * (self.total - self.done)
            log.info("%s %d/%d %s %.0f s left", self.loop, self.done, self.total, detail, rest_s)
