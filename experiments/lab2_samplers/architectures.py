"""The studies of the architecture search, and what they are held against, case by case.

Every study has a draw: the sampler's seed, and the sentences that all its trials train on, with
their order. So Random, Grid and TPE of one draw search the same function, and other draws another.
"""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.lab2_samplers import audit
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Values
from madl.training import baseline
from madl.training.search import (
    SAMPLERS,
    Point,
    Space,
    Trial,
    num_points,
    search,
    settings,
    study_folder,
)
from madl.training.supernet import Supernet, space

LONGER = 1_000_000  # added to a draw: the order of the longer training, and its sentences


def run(params: Params, ctx: Context) -> Values:
    """The values of a case: an audit of the space, a study, the whole model, a ranking."""
    net = Supernet(params, ctx)
    choices = space(net.config, str(params["space"]))
    parts = {"audit": _audit, "study": _study, "whole": _whole, "ranking": _ranking}
    return parts[str(params["part"])](net, choices)


def _audit(net: Supernet, choices: Space) -> Values:
    return {
        "space": audit.of_space(net, choices),
        "course": audit.of_course_config(net),
        "linear_layers": audit.linear_layers(net),
        "ask_s": {sampler: audit.seconds_to_ask(choices, sampler) for sampler in SAMPLERS},
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
    judged = net.judged(audit.largest(choices))
    return {"judged": judged, "accuracy": judged["validation"]["accuracy"]}


def _ranking(net: Supernet, choices: Space) -> Values:
    """The first points of this draw's random study, after a trial and after a longer training.

    A trial's score is a search's, on validation; the longer training is judged on test, so that the
    two share no sentence. No choice is made by it.
    """
    draw, examples = int(net.params["draw"] or 0) + LONGER, net.params["longer_examples"]
    every = len(baseline.load_splits(net.params).train)
    longer = net.with_params(trial_examples=examples or every, draw=draw)

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

    folder, seed = study_folder(net.ctx, net.params), int(net.params["draw"] or 0)
    return search(folder, choices, objective, sampler=sampler, seed=seed, trials=trials)
