"""The arms of question 3.2, for its page and for others: what was judged, and what was searched.

An experiment that has `lab3_formats` among its needs takes a format's model from here:
`trained(r, "mxint8")`.
"""

from collections.abc import Callable
from statistics import fmean
from typing import Any

from madl.logbook import searches
from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.claims import compare
from madl.logbook.records import Pending, Records, Row, Scalar
from madl.logbook.stats import ALPHA, holm, number, per_cent
from madl.training import baseline, families
from madl.training.families import EVERY, MOVED, group_of, short

EXPERIMENT = "lab3_formats"  # that trains and judges them
VALIDATED = "untrained, validation"
BEST, LEFT_ALONE = "best so far", "all layers left in FP32"


def names(r: Records) -> list[str]:
    """Every format that is planned for all layers, presets first.

    Raises:
        Pending: none is planned.
    """
    planned = {str(name) for name in r.of(EXPERIMENT).each("format")}
    found = [name for name in EVERY if name in planned]
    if not found:
        raise Pending("formats")
    return found


def trained(r: Records, name: str) -> Arm:
    """The model with that format on all layers, trained on in it."""
    part = "moved" if name in MOVED else "uniform"
    return arm(r.of(EXPERIMENT), short(name), part=part, format=name)


def untrained(r: Records, most_bits: int, *, scale: bool) -> Arm:
    """Right after quantization: what validation prefers of a class of `families.CLASSES`."""
    where: dict[str, Scalar] = {"part": "untrained", "most_bits": most_bits, "scale": scale}
    chosen = (short(record.values["format"]) for record in r.of(EXPERIMENT).all(**where))
    return arm(r.of(EXPERIMENT), " or ".join(dict.fromkeys(chosen)), **where)


def tried(r: Records) -> dict[str, dict[str, float]]:
    """Every format right after quantization, on validation, the means over seeds."""
    found: dict[str, list[Any]] = {}
    for record in r.of(EXPERIMENT).all(part="untrained"):
        for name, values in record.values["tried"].items():
            found.setdefault(name, []).append(values)
    shown = ("validation_accuracy", "weight_zeroed")
    return {name: {key: fmean(v[key] for v in of) for key in shown} for name, of in found.items()}


def control(r: Records) -> Arm:
    """FP32 after the same training."""
    return arm(r.of(EXPERIMENT), "FP32 + same training", part="control")


def larger_class(r: Records) -> float:
    """Accuracy on test of always answering with the larger class."""
    share = float(baseline.fp32(r).value("positive_share"))
    return max(share, 1 - share)


def strongest(r: Records, bits: float, keep: Callable[[str], bool] = lambda name: True) -> Arm:
    """Of the formats of at most so many bits that `keep` leaves, trained on, the one that
    validation prefers."""
    found = [trained(r, name) for name in names(r) if keep(name)]
    return best_of([a for a in found if a.value("bits") <= bits])


def said(a: Arm) -> str:
    """A format with its bits."""
    bits = a.value("bits")
    return f"`{a.label}` ({number(bits)} bit{'s' if bits != 1 else ''})"


def verdicts(r: Records, margin: float) -> dict[str, str]:
    """Format → whether, trained on, it stays within the margin of FP32 trained alike.

    By non-inferiority on test, with Holm's correction over all formats.
    """
    full = control(r)
    tests = {n: compare(trained(r, n), full).no_worse(margin).p_values() for n in names(r)}
    adjusted = holm({name: min(both) for name, both in tests.items()})
    decided = {name: "keeps" if yes <= no else "loses" for name, (yes, no) in tests.items()}
    return {n: decided[n] if adjusted[n] <= ALPHA else "not decided" for n in tests}


# ---- what was searched --------------------------------------------------------------------------


def combined(r: Records) -> Arm:
    """What the search over all formats chose, trained on."""
    return arm(r.of(EXPERIMENT), "found by the search over all", part="combined")


def searched(r: Records) -> dict[str, Arm]:
    """Family → its search.

    Raises:
        Pending: none is planned.
    """
    planned = set(r.of(EXPERIMENT).each("family"))
    found = {
        name: arm(r.of(EXPERIMENT), name, part="family", family=name)
        for name in families.FAMILIES
        if name in planned
    }
    if not found:
        raise Pending("family")
    return found


def score(a: Arm) -> float:
    """What a search was told of its best trial, the mean over seeds."""
    return fmean(float(record.values["best"]["score"]) for record in a.records)


def curve(a: Arm) -> list[Row]:
    """A row a trial: the best score so far, and that of a model that is left in FP32."""
    studies = [[trial["score"] for trial in record.values["trials"]] for record in a.records]
    nothing = fmean(float(record.values["nothing"]) for record in a.records)
    return [
        {"search": a.label, **row, LEFT_ALONE: nothing}
        for row in searches.curve_rows({BEST: studies})
    ]


# ---- rows ---------------------------------------------------------------------------------------


def front_rows(r: Records) -> list[Row]:
    """Every model that was trained on; those that validation places on the front are named."""
    mixed = combined(r)
    drawn = [(group_of(name), trained(r, name)) for name in names(r)] + [(mixed.label, mixed)]
    bits, accuracies = [a.value("bits") for _, a in drawn], [a.validation for _, a in drawn]
    on_front = searches.front(bits, accuracies)
    return [
        {
            "format": one.label,
            "formats": group,
            "bits": one.value("bits"),
            "validation": one.validation,
            "test accuracy": one,
            "named": one.label if i in on_front else None,
        }
        for i, (group, one) in enumerate(drawn)
    ]


def format_rows(r: Records, margin: float) -> list[Row]:
    """Every format, the narrow ones first: untrained and trained on, and the verdict."""
    full, decided, before = control(r), verdicts(r, margin), tried(r)
    every = {name: trained(r, name) for name in names(r)}
    rows = [
        {
            "format": f"`{every[name].label}`",
            "bits": every[name].value("bits"),
            "weights to zero": per_cent(before[name]["weight_zeroed"]),
            VALIDATED: per_cent(before[name]["validation_accuracy"]),
            "trained on": every[name],
            "against FP32": every[name] - full,
            "FP32's accuracy": decided[name],
        }
        for name in sorted(every, key=lambda name: every[name].value("bits"))
    ]
    alone = per_cent(baseline.fp32(r).validation)
    return [*rows, {"format": "FP32", "bits": 32, VALIDATED: alone, "trained on": full}]


def untrained_rows(r: Records) -> list[Row]:
    """Every format right after quantization, on validation."""
    return [
        {
            "format": short(name),
            "formats": group_of(name),
            "zeroed": values["weight_zeroed"],
            "validation accuracy": values["validation_accuracy"],
        }
        for name, values in tried(r).items()
    ]


def search_rows(r: Records) -> list[Row]:
    """Every search: how large its space is, and what it found."""
    return [
        {
            "search": one.label,
            "choices a layer": one.param("choices"),
            "models": one.value("points"),
            "trials": one.param("trials"),
            "best found at": searches.found_at([trial["score"] for trial in one.value("trials")]),
            "best score": per_cent(score(one)),
            "its bits": one.value("best")["bits"],
            "its validation": per_cent(one.value("best")["validation"]),
        }
        for one in (*searched(r).values(), combined(r))
    ]


def taken_rows(r: Records) -> list[Row]:
    """Which kind of layer took which format in the best model of the combined search."""
    found = combined(r)
    best = {f"seed {one.case.params['seed']}": one.values["best"] for one in found.records}
    return [
        {"layers": kind, **{seed: f"`{short(one['choices'][kind])}`" for seed, one in best.items()}}
        for kind in found.value("kinds")
    ]
