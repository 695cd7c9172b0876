"""The studies of the architecture search, as its own page and 2.3's read them."""

from collections.abc import Iterable, Mapping

from madl.logbook.records import Record, Records, Scalar

STEM = "lab2_samplers"
SIZES = {  # field of `BertConfig` → how it is said
    "num_hidden_layers": "{} layers",
    "num_attention_heads": "{} heads",
    "hidden_size": "width {}",
    "intermediate_size": "FFN {}",
}
Point = Mapping[str, Scalar]


def best_trial(r: Records, seed: int) -> tuple[Record, Point]:
    """Of all trials but those of the whole model, the one that validation prefers.

    Its study and its point; of equal ones the first.
    """
    trials = [
        (value, study, dict(zip(study.values["names"], point, strict=True)))
        for study in r.of(STEM).all(part="study", seed=seed)
        for value, point in zip(study.values["values"], study.values["points"], strict=True)
    ]
    whole = largest(point for _, _, point in trials)
    _, study, point = max((t for t in trials if t[2] != whole), key=lambda trial: trial[0])
    return study, point


def largest(points: Iterable[Point]) -> Point:
    """The greatest of every size, and no identity: "linear" is the greater word."""
    seen = list(points)
    return {name: max(point[name] for point in seen) for name in seen[0]}  # type: ignore[type-var]


def shape(point: Point) -> str:
    """A sub-network in few words: 4 layers, 6 heads, width 384, FFN 768; identity: key."""
    sizes = [said.format(point[field]) for field, said in SIZES.items() if field in point]
    passed = [kind.replace("_", " ") for kind, value in point.items() if value == "identity"]
    return f"{', '.join(sizes)}; identity: {', '.join(passed) or 'none'}"
