"""The studies of the architecture search, as their own page and that of 2.3 read them.

A study is a record: its trials' points and validation accuracies in order. All are of the
confirming seeds, several draws a seed.
"""

from collections.abc import Iterable, Mapping

from experiments.lab2_samplers import design
from madl.logbook.experiment import Plan
from madl.logbook.records import Params, Pending, Record, Records, Scalar

STEM = "lab2_samplers"
Point = Mapping[str, Scalar]


def full_params(plan: Plan, rate: float = design.RATE) -> Params:
    """Parameters of the training in full: an epoch over all training sentences."""
    examples = plan.profile.choose(smoke=32, quick=None)
    return {"full_examples": examples, "full_learning_rate": rate, "full_batch_size": design.BATCH}


def draw_of(seed: int, study: int = 0) -> int:
    """The draw of a seed's study: no two studies share one."""
    return design.DRAW_STRIDE * seed + study


def trials(study: Record) -> list[tuple[float, Point]]:
    """(validation accuracy, point) of each trial, in order."""
    points = (dict(zip(study.values["names"], p, strict=True)) for p in study.values["points"])
    return list(zip(study.values["accuracies"], points, strict=True))


def choice(study: Record) -> tuple[float, Point]:
    """(validation accuracy, point) of the trial that a study chooses: of the highest accuracy, of
    equal ones the first.
    """
    return max(trials(study), key=lambda trial: trial[0])


def best_choice(r: Records, seed: int) -> tuple[Record, Point]:
    """(study, point) of the choice of a seed's compared samplers with the highest validation
    accuracy, of equal ones the first; the whole model is left out.

    Raises:
        Pending: a study is missing, or all choose the whole model.
    """
    own = r.of_experiment(STEM)
    studies = [
        study
        for sampler in design.COMPARED
        for study in own.all(part="study", sampler=sampler, seed=seed)
    ]
    whole = whole_model(point for study in studies for _, point in trials(study))
    cuts = [(study, choice(study)) for study in studies if choice(study)[1] != whole]
    if not cuts:
        raise Pending(f"a search on seed {seed} that chooses less than the whole model")
    study, (_, point) = max(cuts, key=lambda cut: cut[1][0])
    return study, point


def whole_model(points: Iterable[Point]) -> Point:
    """The largest value of every parameter: no identity, since "linear" is the greater word."""
    known = list(points)
    return {name: max(point[name] for point in known) for name in known[0]}  # type: ignore[type-var]
