"""The studies of the architecture search, and the audit of what they search.

A study has a draw: the sampler's seed, and the sentences that all its trials train on, with their
order. So Random, Grid and TPE of one draw search the same function, and other draws another. Trials
are told apart by validation loss. What a study chooses is trained in full and then judged.

A name that a constructor accepts and ignores makes a search over nothing. So an audit varies one
parameter at a time and compares what is built: the number of parameters, and the output on the same
sentences from the same weights.

Units: losses in nats.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from madl.compression.size import num_parameters
from madl.errors import MadlError
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Scalar, Values
from madl.training import baseline
from madl.training.baseline import RECIPE_FIELDS
from madl.training.search import Point, Space, num_points, search, settings, study_folder
from madl.training.supernet import TRIAL_FIELDS, Supernet, largest, space

SEARCH_FIELDS = (*RECIPE_FIELDS, *TRIAL_FIELDS, "sampler", "trials")
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


def run(params: Params, ctx: Context) -> Values:
    """A case; on the tuning seed nothing meets the test split."""
    net = Supernet(params, ctx)
    choices = space(net.shape)
    match params["part"]:
        case "audit":
            return {"space": of_space(net, choices), "course": of_course_config(net)}
        case "left alone":
            return baseline.judge_on_validation(net.whole, params, ctx.device)
        case "whole":
            rate = float(params["full_learning_rate"] or 0)
            return {"judged": in_full(net, largest(choices), rate)}
        case _:
            return studied(net, choices)


def studied(net: Supernet, choices: Space) -> Values:
    """A study's trials in order, and what it chose, judged.

    One that says no rate ends with what the trial left, which is trained so again.
    """
    params, whole = net.params, largest(choices)

    def objective(point: Point) -> tuple[float, Mapping[str, Any]]:
        made = net.trial(point)
        return -made["validation_loss"], made

    trials = search(
        study_folder(net.ctx, {name: params.get(name) for name in SEARCH_FIELDS}),
        choices,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["trial_draw"] or 0),
        trials=int(params["trials"] or 0),
    )
    best = max(trials, key=lambda trial: trial.value)  # of equal ones the first
    if "full_examples" in params:
        rate = params["whole_learning_rate" if best.point == whole else "full_learning_rate"]
        judged = in_full(net, best.point, float(rate or 0))
    else:
        judged = baseline.judge(net.trained(best.point), params, net.ctx.device)
    return {
        "names": list(choices),
        "points": [list(trial.point.values()) for trial in trials],
        "losses": [trial.notes["validation_loss"] for trial in trials],
        "accuracies": [trial.notes["validation_accuracy"] for trial in trials],
        "num_points": num_points(choices),
        "settings": settings(str(params["sampler"])),
        "parameters": best.notes["parameters"],
        "judged": judged,
        "whole": net.trial(whole),
    }


def in_full(net: Supernet, point: Point, rate: float) -> Values:
    """Trained in full, and judged."""
    return net.judged_in_full(point, rate, on_test=net.params["draw"] != TUNING_SEED)


# ---- the audit ----------------------------------------------------------------------------------

Signature = Mapping[str, Scalar]


def effects(
    space: Space, signature: Callable[[Point], Signature], base: Point
) -> list[dict[str, Any]]:
    """Vary one parameter at a time and see what of what is built changes.

    `signature` builds the point and says what came out: a parameter count, a digest of its output.
    The others stay at `base`.
    """
    rows: list[dict[str, Any]] = []
    for name, values in space.items():
        seen = [signature({**base, name: value}) for value in values]
        changes = [part for part in seen[0] if len({one[part] for one in seen}) > 1]
        sizes = [one["parameters"] for one in seen]
        row = {"name": name, "values": list(values), "changes": changes, "parameters": sizes}
        rows.append(row)
    return rows


def of_space(net: Supernet, choices: Space) -> list[dict[str, Any]]:
    """What each parameter of the search changes, seen from the whole model.

    Raises:
        MadlError: one does not change the output, there or seen from the smallest point.
    """
    batch, rows = _probe(net), list[dict[str, Any]]()
    for base in ({name: values[0] for name, values in choices.items()}, largest(choices)):
        rows = effects(choices, lambda point: _signature(net.build(point), batch), base)
        for row in rows:
            if "output" not in row["changes"]:  # its size may change, and do nothing
                raise MadlError(
                    f"search parameter {row['name']} changes nothing: its values {row['values']} "
                    f"all compute the same; correct its name or leave it out"
                )
    return rows


def of_course_config(net: Supernet) -> list[dict[str, Any]]:
    """What the names that the coursework sets change in a `BertConfig`."""
    batch = {name: tokens % COURSE_CONFIG["vocab_size"] for name, tokens in _probe(net).items()}
    base = {name: COURSE_CONFIG.get(name, values[0]) for name, values in COURSE_SPACE.items()}

    def signature(point: Point) -> Signature:
        torch.manual_seed(0)  # the same draw of weights: only the configuration can differ
        fields: Any = {**COURSE_CONFIG, **point}
        return _signature(BertForSequenceClassification(BertConfig(**fields)), batch)

    rows = effects(COURSE_SPACE, signature, base)
    assert [row["name"] for row in rows if not row["changes"]] == ["num_layers", "num_heads"]
    return rows


def _probe(net: Supernet) -> dict[str, torch.Tensor]:
    batch = baseline.load_splits(net.params).validation.batch(range(PROBE_SENTENCES))
    return {name: batch[name][:, :PROBE_TOKENS] for name in ("input_ids", "attention_mask")}


@torch.no_grad()
def _signature(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> Signature:
    logits: torch.Tensor = model.eval()(**batch).logits
    digest = hashlib.sha256(logits.numpy().tobytes()).hexdigest()
    return {"parameters": num_parameters(model), "output": digest}
