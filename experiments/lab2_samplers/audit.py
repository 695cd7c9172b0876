"""What a search's parameters do: does each change what is built, and what does asking cost?

A name that a constructor accepts and ignores makes a search over nothing. The audit varies one
parameter at a time and compares what is built: the number of parameters, and the output on the same
sentences from the same weights. It looks from several points, as a parameter may be idle at some.
"""

import hashlib
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from madl.compression.size import num_parameters
from madl.compression.subnetwork import KINDS
from madl.logbook.records import Scalar
from madl.training import baseline
from madl.training.search import Effect, Point, Space, effects, refuse_idle, search
from madl.training.supernet import LINEAR, Supernet

COURSE_CONFIG = {  # a small BERT, to try configuration fields on
    "vocab_size": 64,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}
COURSE_SPACE: Space = {
    "num_layers": (2, 4, 8),
    "num_heads": (2, 4, 8),
    "num_hidden_layers": (2, 4, 8),
    "num_attention_heads": (2, 4, 8),
    "hidden_size": (32, 48, 64),
    "intermediate_size": (32, 64, 128),
}
PROBE_SENTENCES, PROBE_TOKENS = 4, 16
VIEWPOINTS = 1  # drawn at random, beside the largest and the smallest
ASKED = 40  # trials of a study that is timed
TIMED = 3  # such studies of each sampler


def largest(choices: Space) -> Point:
    """The point that builds the most: every size the model's own, every layer a Linear one."""
    return {name: LINEAR if LINEAR in values else values[-1] for name, values in choices.items()}


def of_space(net: Supernet, choices: Space) -> list[dict[str, Any]]:
    """What each parameter of a search over sub-networks changes, seen from the largest one.

    Raises:
        MadlError: a parameter does not change the output, there or seen from other points.
    """
    batch, drawn = _probe(net), random.Random(0)

    def seen_from(base: Point) -> list[Effect]:
        found = effects(choices, lambda point: _signature(net.build(point), batch), base=base)
        refuse_idle([replace(one, changes=_but_size(one)) for one in found])
        return found

    seen_from({name: values[0] for name, values in choices.items()})
    for _ in range(VIEWPOINTS):
        seen_from({name: drawn.choice(list(values)) for name, values in choices.items()})
    return list(map(_effect, seen_from(largest(choices))))


def _but_size(effect: Effect) -> tuple[str, ...]:
    """What changes beside the number of parameters: it may change and do nothing."""
    return tuple(part for part in effect.changes if part != "parameters")


def of_course_config(net: Supernet) -> list[dict[str, Any]]:
    """What the names that the coursework sets change in a `BertConfig`."""
    batch = {name: tokens % COURSE_CONFIG["vocab_size"] for name, tokens in _probe(net).items()}
    base = {name: COURSE_CONFIG.get(name, values[0]) for name, values in COURSE_SPACE.items()}

    def signature(point: Point) -> dict[str, Scalar]:
        torch.manual_seed(0)  # the same draw of weights: only the configuration can differ
        fields: Any = {**COURSE_CONFIG, **point}
        return _signature(BertForSequenceClassification(BertConfig(**fields)), batch)

    return list(map(_effect, effects(COURSE_SPACE, signature, base=base)))


def linear_layers(net: Supernet) -> dict[str, int]:
    """How many Linear layers the whole model has, and how many of each kind are square."""
    linears = [one for one in net.whole.modules() if isinstance(one, nn.Linear)]
    square = [one for one in linears if one.in_features == one.out_features]
    depth = int(net.config["num_hidden_layers"])
    by_kind = {kind: 1 if kind == "pooler" else depth for kind in KINDS}
    assert sum(by_kind.values()) == len(square)  # every square layer is of one kind
    return {"all": len(linears), **by_kind}


def seconds_to_ask(choices: Space, sampler: str) -> float:
    """What a trial of such a study takes beside its evaluation: asking, and writing it down.

    The median of a few studies whose objective costs nothing.
    """

    def objective(point: Point) -> tuple[float, Mapping[str, Any]]:
        return hash(tuple(point.values())) % 1000 / 1000, {}

    def study(seed: int) -> float:
        with TemporaryDirectory() as folder:
            started = time.perf_counter()
            search(Path(folder), choices, objective, sampler=sampler, seed=seed, trials=ASKED)
            return (time.perf_counter() - started) / ASKED

    return median(map(study, range(TIMED)))


def _probe(net: Supernet) -> dict[str, torch.Tensor]:
    batch = baseline.load_splits(net.params).validation.batch(range(PROBE_SENTENCES))
    return {name: batch[name][:, :PROBE_TOKENS] for name in ("input_ids", "attention_mask")}


@torch.no_grad()
def _signature(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> dict[str, Scalar]:
    logits: torch.Tensor = model.eval()(**batch).logits
    digest = hashlib.sha256(logits.numpy().tobytes()).hexdigest()
    return {"parameters": num_parameters(model), "output": digest}


def _effect(effect: Effect) -> dict[str, Any]:
    sizes = [signature["parameters"] for signature in effect.signatures]
    return {
        "name": effect.name,
        "values": list(effect.values),
        "changes": list(effect.changes),
        "parameters": sizes,
    }
