"""The studies of the architecture search, and what they are held against, case by case.

Every study has a draw: the sampler's seed, and the sentences that all its trials train on, with
their order. So Random, Grid and TPE of one draw search the same function, and other draws another.

A name that a constructor accepts and ignores makes a search over nothing. So an audit varies one
parameter at a time and compares what is built: the number of parameters, and the output on the same
sentences from the same weights. It looks from several points, as a parameter may be idle at some.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from madl.compression.size import num_parameters
from madl.compression.subnetwork import KINDS
from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Scalar, Values
from madl.training import baseline
from madl.training.search import (
    Point,
    Space,
    Trial,
    num_points,
    search,
    settings,
    study_folder,
)
from madl.training.supernet import LINEAR, Supernet, space

LONGER = 1_000_000  # added to a draw: the order of the longer training, and its sentences
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


def run(params: Params, ctx: Context) -> Values:
    """The values of a case: an audit of the space, a study, the whole model, a ranking."""
    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]))
    parts = {"audit": _audit, "study": _study, "whole": _whole, "ranking": _ranking}
    return parts[str(params["part"])](net, choices)


def _audit(net: Supernet, choices: Space) -> Values:
    return {
        "space": of_space(net, choices),
        "course": of_course_config(net),
        "linear_layers": linear_layers(net),
    }


def _study(net: Supernet, choices: Space) -> Values:
    """Its trials in order, and what it chose, judged; `Supernet.build` makes a point a model."""
    sampler = str(net.params["sampler"])
    trials = _search(net, choices, net.trial, sampler, int(net.params["trials"] or 0))
    best = max(trials, key=lambda trial: trial.value)  # of equal ones the first
    return {
        "names": list(choices),
        "points": [list(trial.point.values()) for trial in trials],
        "values": [trial.value for trial in trials],
        "num_at_random": sum(trial.at_random for trial in trials),
        "num_points": num_points(choices),
        "settings": settings(sampler),
        "parameters": best.notes["parameters"],
        "judged": net.judged(best.point),
        "accuracy": best.value,
    }


def _whole(net: Supernet, choices: Space) -> Values:
    """The largest point, trained like any other and judged."""
    judged = net.judged(largest(choices))
    return {"judged": judged, "accuracy": judged["validation"]["accuracy"]}


def _ranking(net: Supernet, choices: Space) -> Values:
    """The first points of this draw's random study, after a trial and after a longer training.

    A trial's score is a search's, on validation; the longer training is judged on test, so that the
    two share no sentence. No choice is made by it.
    """
    draw, examples = int(net.params["trial_draw"] or 0) + LONGER, net.params["longer_examples"]
    every = len(baseline.load_splits(net.params).train)
    longer = net.with_params(trial_examples=examples or every, trial_draw=draw)

    def twice(point: Point) -> dict[str, Any]:
        return {**net.trial(point), "longer": longer.judged(point)["accuracy"]}

    trials = _search(net, choices, twice, "random", int(net.params["points"] or 0))
    scores = [trial.value for trial in trials]
    return {
        "trial": scores,
        "longer": [trial.notes["longer"] for trial in trials],
        "accuracy": max(scores),
    }


def _search(
    net: Supernet,
    choices: Space,
    evaluate: Callable[[Point], dict[str, Any]],
    sampler: str,
    trials: int,
) -> list[Trial]:
    """By validation accuracy."""

    def objective(point: Point) -> tuple[float, Mapping[str, Any]]:
        found = evaluate(point)
        return found["accuracy"], found

    folder, seed = study_folder(net.ctx, net.params), int(net.params["trial_draw"] or 0)
    return search(folder, choices, objective, sampler=sampler, seed=seed, trials=trials)


# ---- the audit -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one parameter does to what is built: the parts of the signature that it changes."""

    name: str
    values: Sequence[Scalar]
    changes: tuple[str, ...]
    signatures: tuple[Mapping[str, Scalar], ...]  # one a value


def effects(
    space: Space, signature: Callable[[Point], Mapping[str, Scalar]], *, base: Point | None = None
) -> list[Effect]:
    """Vary one parameter at a time and see whether what is built is another thing.

    `signature` builds the point and says what came out: a parameter count, a digest of its output.
    The others stay at `base`, else at their first values.
    """
    base = base or {name: values[0] for name, values in space.items()}
    found: list[Effect] = []
    for name, values in space.items():
        seen = tuple(signature({**base, name: value}) for value in values)
        changes = tuple(part for part in seen[0] if len({s[part] for s in seen}) > 1)
        found.append(Effect(name=name, values=values, changes=changes, signatures=seen))
    return found


def refuse_idle(found: Sequence[Effect]) -> None:
    """Raises: MadlError: a parameter that changes nothing of what is built."""
    for effect in found:
        if not effect.changes:
            raise MadlError(
                f"search parameter {effect.name} changes nothing: its values "
                f"{list(effect.values)} all build the same thing; correct its name or leave it out"
            )


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

    found = list(map(_effect, effects(COURSE_SPACE, signature, base=base)))
    assert [one["name"] for one in found if not one["changes"]] == ["num_layers", "num_heads"]
    return found


def linear_layers(net: Supernet) -> dict[str, int]:
    """How many Linear layers the whole model has, and how many of each kind are square."""
    linears = [one for one in net.whole.modules() if isinstance(one, nn.Linear)]
    square = [one for one in linears if one.in_features == one.out_features]
    depth = int(net.config["num_hidden_layers"])
    by_kind = {kind: 1 if kind == "pooler" else depth for kind in KINDS}
    assert sum(by_kind.values()) == len(square)  # every square layer is of one kind
    return {"all": len(linears), **by_kind}


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
