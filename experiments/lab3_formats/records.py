"""The models of question 3.2, and which formats keep FP32's accuracy, as 4.4 reads them, too.

A format is named by its preset; `families.name_of` says what pages call it. One without a scale
stands where the tuning seed puts its values, for weights and for inputs.
"""

from madl.logbook.arms import Arm, arm
from madl.logbook.experiment import TUNING
from madl.logbook.records import Record, Records
from madl.training.families import NAMES, name_of

STEM = "lab3_formats"
TUNED = f"{STEM}{TUNING}"  # among a page's needs: what chooses
MARGIN = 0.02  # accuracy that a format may cost: chooses on validation, and tests


def fp32(r: Records) -> Arm:
    """The model that the formats are put into."""
    return arm(r.of(STEM), "FP32", part="fp32")


def untrained(r: Records, preset: str) -> Arm:
    """All Linear layers in that format, as quantization leaves them."""
    return arm(r.of(STEM), name_of(preset), part="untrained", format=preset)


def planned(r: Records) -> list[str]:
    """Every format that all layers take, as the plan has it."""
    found = r.of(STEM).where(part="untrained").each("format")
    return [name for name in NAMES if name in found]


def tuned(r: Records) -> dict[str, Record]:
    """What the tuning seed gave for every format; `r` is of the tuning seed, or holds it.

    Raises:
        Pending: a format is not there yet.
    """
    found = {str(one.case.params["format"]): one for one in r.of(TUNED).all(part="untrained")}
    return {name: found[name] for name in NAMES if name in found}


def keeping(r: Records) -> list[str]:
    """The formats that keep FP32's accuracy, the narrow ones first.

    On the tuning seed, where validation puts them at most the margin below FP32; if none is there,
    the one of the least loss. Of equal bits, the one of less loss comes first.
    """
    every = tuned(r)
    least = r.of(TUNED).one(part="fp32").values["validation_accuracy"] - MARGIN
    kept = [
        (one.values["bits"], one.values["validation_loss"], name)
        for name, one in every.items()
        if one.values["validation_accuracy"] >= least
    ]
    best = min(every, key=lambda name: every[name].values["validation_loss"])
    return [name for _, _, name in sorted(kept)] or [best]
