"""The models of question 3.2, one format on all layers, as the pages of formats and 4.4 read them.

A format is named by its preset; pages show its title. One without a scale has the places (fraction
widths or exponent biases) that the tuning seed chose, for weights and for inputs.
"""

from experiments.lab3_formats.design import BOTH
from madl.formats.presets import PRESETS
from madl.logbook.arms import Arm, arm
from madl.logbook.records import Records

STEM = "lab3_formats"


def fp32(r: Records) -> Arm:
    """The FP32 models, which the formats are put into."""
    return arm(r.of_experiment(STEM), "FP32", part="fp32")


def untrained(r: Records, preset: str, operands: str = BOTH) -> Arm:
    """The models with a format on all Linear layers, as quantization leaves them."""
    where = {"part": "untrained", "format": preset, "operands": operands}
    return arm(r.of_experiment(STEM), PRESETS[preset].title, **where)


def planned_formats(r: Records) -> list[str]:
    """The presets that are planned to be put on all layers."""
    names = r.of_experiment(STEM).where(part="untrained").param_values("format")
    return [name for name in PRESETS if name in names]
