"""The models of question 3.2, and which formats keep FP32's accuracy, as 4.4 reads them, too.

A format is named by its preset; pages show its title. One without a scale has the places (fraction
widths or exponent biases) that the tuning seed chose, for weights and for inputs.
"""

from experiments.lab3_formats.design import MARGIN
from madl.formats.presets import PRESETS
from madl.logbook.arms import Arm, arm
from madl.logbook.experiment import TUNING
from madl.logbook.records import Record, Records

STEM = "lab3_formats"
TUNED = f"{STEM}{TUNING}"  # among a page's needs: what chooses


def fp32(r: Records) -> Arm:
    """The FP32 models, which the formats are put into."""
    return arm(r.of_experiment(STEM), "FP32", part="fp32")


def untrained(r: Records, preset: str) -> Arm:
    """The models with a format on all Linear layers, as quantization leaves them."""
    return arm(r.of_experiment(STEM), PRESETS[preset].title, part="untrained", format=preset)


def planned_formats(r: Records) -> list[str]:
    """The presets that are planned to be put on all layers."""
    names = r.of_experiment(STEM).where(part="untrained").param_values("format")
    return [name for name in PRESETS if name in names]


def tuning_records(r: Records) -> dict[str, Record]:
    """Preset → its record on the tuning seed; `r` are that seed's records, or hold them.

    Raises:
        Pending: a format is not there yet.
    """
    records = {
        record.case.params["format"]: record
        for record in r.of_experiment(TUNED).all(part="untrained")
    }
    return {name: records[name] for name in PRESETS if name in records}


def accurate_formats(r: Records) -> list[str]:
    """The formats that keep FP32's accuracy, by bits, those of equal bits by validation loss.

    They are at most the margin below FP32, on validation of the tuning seed; if none is, the one of
    the least loss.
    """
    records = tuning_records(r)
    least = r.of_experiment(TUNED).single(part="fp32").values["validation_accuracy"] - MARGIN
    accurate = [
        (record.values["bits"], record.values["validation_loss"], name)
        for name, record in records.items()
        if record.values["validation_accuracy"] >= least
    ]
    best = min(records, key=lambda name: records[name].values["validation_loss"])
    return [name for _, _, name in sorted(accurate)] or [best]
