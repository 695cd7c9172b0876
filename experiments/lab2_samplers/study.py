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

from experiments.lab2_samplers import design
from madl.compression.size import num_parameters
from madl.errors import MadlError
from madl.logbook.experiment import TUNING_SEED, Context
from madl.logbook.records import Params, Scalar, Values
from madl.training import baseline
from madl.training.baseline import RECIPE_FIELDS
from madl.training.search import STARTUP_TRIALS, Point, Space, num_points, search, study_folder
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


def run(params: Params, ctx: Context) -> Values:
    """Run one case: the audit, the whole model, or a study; the tuning seed never meets test."""
    net = Supernet(params, ctx)
    choices = space(net.shape)
    match params["part"]:
        case "audit":
            return {"space": audit_space(net, choices), "course": audit_course_config(net)}
        case "left alone":
            return baseline.judge_on_validation(net.whole, params, ctx.device)
        case "whole":
            rate = float(params["full_learning_rate"] or 0)
            return {"judged": in_full(net, largest(choices), rate)}
        case _:
            return run_study(net, choices)


def run_study(net: Supernet, choices: Space) -> Values:
    """Run a study: its trials in order, and its choice, trained in full and judged.

    Without a rate of the training in full, the choice is judged as its trial left it.
    """
    params, whole = net.params, largest(choices)

    def objective(point: Point) -> tuple[float, Mapping[str, Any]]:
        values = net.trial(point)
        return -values["validation_loss"], values

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
        "settings": {"startup_trials": STARTUP_TRIALS},
        "parameters": best.notes["parameters"],
        "judged": judged,
        "whole": net.trial(whole),
    }


def in_full(net: Supernet, point: Point, rate: float) -> Values:
    """Train the model of a point in full and judge it; on the tuning seed, not on test."""
    return net.judged_in_full(point, rate, on_test=net.params["seed"] != TUNING_SEED)


# ---- the audit ----------------------------------------------------------------------------------

Signature = Mapping[str, Scalar]


def effects(
    space: Space, signature: Callable[[Point], Signature], base: Point
) -> list[dict[str, Any]]:
    """Vary one parameter at a time, the others as in `base`: a row each, with what changes.

    `signature` builds the model of a point; it returns a parameter count, a digest of its output.
    """
    rows: list[dict[str, Any]] = []
    for name, values in space.items():
        built = [signature({**base, name: value}) for value in values]
        changes = [part for part in built[0] if len({model[part] for model in built}) > 1]
        sizes = [model["parameters"] for model in built]
        row = {"name": name, "values": list(values), "changes": changes, "parameters": sizes}
        rows.append(row)
    return rows


def audit_space(net: Supernet, choices: Space) -> list[dict[str, Any]]:
    """The effects of the search's parameters on the whole model.

    Raises:
        MadlError: a parameter does not change the output of the whole or of the smallest model.
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


def audit_course_config(net: Supernet) -> list[dict[str, Any]]:
    """The effects of the names that the coursework sets in a `BertConfig`."""
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
    """A few validation sentences, cut short, on which outputs are compared."""
    batch = baseline.load_splits(net.params).validation.batch(range(design.PROBE_SENTENCES))
    return {name: batch[name][:, : design.PROBE_TOKENS] for name in ("input_ids", "attention_mask")}


@torch.no_grad()
def _signature(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> Signature:
    """A model's parameter count and a digest of its logits, to tell two models apart."""
    logits: torch.Tensor = model.eval()(**batch).logits
    digest = hashlib.sha256(logits.numpy().tobytes()).hexdigest()
    return {"parameters": num_parameters(model), "output": digest}
