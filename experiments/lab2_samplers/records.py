"""The studies of the architecture search, as their own page and that of 2.3 read them.

A study is a record: its trials' points and validation losses in order. All are of the confirming
seeds, several draws a seed.
"""

from collections.abc import Iterable, Mapping

from madl.logbook.records import Record, Records, Scalar

STEM = "lab2_samplers"
Point = Mapping[str, Scalar]


def trials(study: Record) -> list[tuple[float, Point]]:
    """(validation loss, point) of each trial, in order."""
    points = (dict(zip(study.values["names"], p, strict=True)) for p in study.values["points"])
    return list(zip(study.values["losses"], points, strict=True))


def best_trial(r: Records, seed: int) -> tuple[Record, Point]:
    """(study, point) of the trial of a seed with the least validation loss, of equal ones the
    first.

    Trials of the whole model are left out.
    """
    trials_of_seed = [
        (loss, study, point)
        for study in r.of_experiment(STEM).all(part="study", seed=seed)
        for loss, point in trials(study)
    ]
    whole = whole_model(point for _, _, point in trials_of_seed)
    cuts = (trial for trial in trials_of_seed if trial[2] != whole)
    _, study, point = min(cuts, key=lambda trial: trial[0])
    return study, point


def whole_model(points: Iterable[Point]) -> Point:
    """The largest value of every parameter: no identity, since "linear" is the greater word."""
    known = list(points)
    return {name: max(point[name] for point in known) for name in known[0]}  # type: ignore[type-var]
