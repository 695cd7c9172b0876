"""The studies of the architecture search, as their own page and that of 2.3 read them.

A study is a record: its trials' points and validation accuracies in order. All are of the
confirming seeds, several draws a seed.
"""

from collections.abc import Iterable, Mapping

from experiments.lab2_samplers import design
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Record, Records, Scalar

STEM = "lab2_samplers"
Point = Mapping[str, Scalar]


def full_params(plan: Plan, rate: float = design.RATES["cut"]) -> Params:
    """Parameters of the training in full: a pass over all training sentences."""
    examples = plan.profile.choose(smoke=32, quick=None)
    return {"full_examples": examples, "full_learning_rate": rate, "full_batch_size": design.BATCH}


def draw_of(seed: int, study: int = 0) -> int:
    """The draw of a seed's study: no two studies share one."""
    return design.DRAW_STRIDE * seed + study


def trials(study: Record) -> list[tuple[float, Point]]:
    """(validation accuracy, point) of each trial, in order."""
    points = (dict(zip(study.values["names"], p, strict=True)) for p in study.values["points"])
    return list(zip(study.values["accuracies"], points, strict=True))


def best_trial(r: Records, seed: int) -> tuple[Record, Point]:
    """(study, point) of the trial of a seed with the highest validation accuracy, of equal ones
    the first.

    Trials of the whole model are left out.
    """
    trials_of_seed = [
        (accuracy, study, point)
        for study in r.of_experiment(STEM).all(part="study", seed=seed)
        for accuracy, point in trials(study)
    ]
    whole = whole_model(point for _, _, point in trials_of_seed)
    cuts = (trial for trial in trials_of_seed if trial[2] != whole)
    _, study, point = max(cuts, key=lambda trial: trial[0])
    return study, point


def whole_model(points: Iterable[Point]) -> Point:
    """The largest value of every parameter: no identity, since "linear" is the greater word."""
    known = list(points)
    return {name: max(point[name] for point in known) for name in known[0]}  # type: ignore[type-var]
