"""The worth of a trial of a search: a model in its number formats, trained on first or not."""

import copy
import math
from typing import TYPE_CHECKING

from madl.logbook.experiment import Context, Plan
from madl.logbook.records import Params, Values
from madl.training import baseline

if TYPE_CHECKING:
    from torch import nn

OVER_BUDGET = -100.0  # value of a model that is not judged, less its bits: below any other


def training_params(plan: Plan, learning_rate: float, sentences: int) -> Params:
    """Case parameters of a trial's training: its rate, on the first training sentences."""
    recipe = baseline.retraining_params(plan, learning_rate)
    trial = {name.replace("tune_", "trial_"): value for name, value in recipe.items()}
    return {**trial, "trial_examples": plan.profile.choose(smoke=32, quick=sentences)}


def worth(model: "nn.Module", bits: float, params: Params, ctx: Context) -> tuple[float, Values]:
    """(value, larger if better; validation accuracy and loss) of a model of so many mean bits.

    The value is validation accuracy, or the loss below zero, as `params["by"]` says. A copy is
    trained on before, if there are `training_params`. A model of more bits than `params["budget"]`
    is not judged: the more bits, the less it is worth.
    """
    if params.get("budget") is not None and bits > float(params["budget"] or 0):
        return OVER_BUDGET - bits, {}
    if "trial_examples" in params:
        model = copy.deepcopy(model)
        baseline.retrain_(model, params, ctx.device, prefix="trial_")
    judged = baseline.judge_on_validation(model, params, ctx.device)
    by = str(params["by"])
    value = judged[by] if by == "validation_accuracy" else -judged[by]
    if not math.isfinite(judged["validation_loss"]):  # of a training that came apart
        judged = {**judged, "validation_loss": None}
    return value, judged
