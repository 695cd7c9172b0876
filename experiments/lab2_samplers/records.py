"""The studies of the architecture search, as their own page and those of 2.2 and 2.3 read them.

A study is a record: its trials' points and validation losses in order, and under `judged` what it
chose, trained in full. All are of the confirming seeds, several draws a seed.
"""

from collections.abc import Iterable, Mapping

from madl.logbook.arms import Arm, arm
from madl.logbook.records import Record, Records, Scalar

STEM = "lab2_samplers"
SAMPLERS = {"random": "Random", "grid": "Grid", "tpe": "TPE"}
COMPARED = ("tpe", "random")  # on every draw; Grid has one study
STUDIES = "studies"
SIZES = {  # field of `BertConfig` → how it is said
    "num_hidden_layers": "{} layers",
    "num_attention_heads": "{} heads",
    "hidden_size": "width {}",
    "intermediate_size": "FFN {}",
}
Point = Mapping[str, Scalar]


def studies(r: Records, sampler: str) -> Records:
    """A sampler's, draw by draw."""
    return r.of(STEM).all(part="study", sampler=sampler)


def trials(study: Record) -> list[tuple[float, Point]]:
    """Validation loss and point of each."""
    points = (dict(zip(study.values["names"], p, strict=True)) for p in study.values["points"])
    return list(zip(study.values["losses"], points, strict=True))


def found(study: Record) -> float:
    """The least validation loss of its trials."""
    return min(study.values["losses"])


def chosen_point(study: Record) -> Point:
    """What a study chose: the trial of the least validation loss, of equal ones the first."""
    return min(trials(study), key=lambda trial: trial[0])[1]


def best_trial(r: Records, seed: int) -> tuple[Record, Point]:
    """Of all trials of a seed but those of the whole model, the one that validation prefers.

    Its study and its point; of equal ones the first.
    """
    every = [
        (loss, study, point)
        for study in r.of(STEM).all(part="study", seed=seed)
        for loss, point in trials(study)
    ]
    whole = largest(point for _, _, point in every)
    _, study, point = min((t for t in every if t[2] != whole), key=lambda trial: trial[0])
    return study, point


def choices(r: Records, sampler: str) -> Arm:
    """What each study of a sampler chose, trained in full, on test."""
    every = tuple(studies(r, sampler))
    return Arm(label=SAMPLERS[sampler], records=every, within=("judged",), units=STUDIES)


def whole_trained(r: Records) -> Arm:
    """The whole model, trained in full as well, once a seed, on test."""
    return arm(r.of(STEM), "whole model, trained as long", "judged", part="whole")


def largest(points: Iterable[Point]) -> Point:
    """The greatest of every size, and no identity: "linear" is the greater word."""
    seen = list(points)
    return {name: max(point[name] for point in seen) for name in seen[0]}  # type: ignore[type-var]


def shape(point: Point) -> str:
    """A sub-network in few words: 4 layers, 6 heads, width 384, FFN 768; identity: key."""
    sizes = [said.format(point[field]) for field, said in SIZES.items() if field in point]
    passed = [kind.replace("_", " ") for kind, value in point.items() if value == "identity"]
    return f"{', '.join(sizes)}; identity: {', '.join(passed) or 'none'}"
