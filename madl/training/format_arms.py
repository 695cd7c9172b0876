"""The models of question 3.2, for pages that have `lab3_formats` among their needs."""

from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.records import Pending, Records
from madl.training.families import EVERY, MOVED, NAMES, moved_of, short

EXPERIMENT = "lab3_formats"


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
    """The model with that format on all layers, trained on in it or not, as validation prefers.

    A moved format's label has its positions, of weights and of inputs, model by model:
    `log(4) at 8 and 3 or 9 and 3`.
    """
    of = r.of(EXPERIMENT)
    if name not in MOVED:
        return arm(of, short(name), part="uniform", format=name)
    found = of.all(part="moved", format=name)
    places = (f"{one.values['weights_at']} and {one.values['inputs_at']}" for one in found)
    label = f"{name.removesuffix(' moved')} at {' or '.join(dict.fromkeys(places))}"
    return arm(of, label, part="moved", format=name)


def once(r: Records) -> dict[str, Arm]:
    """Every format once: at its own position or moved, as validation prefers."""
    planned, found = names(r), dict[str, Arm]()
    for name in NAMES:
        arms = {one: trained(r, one) for one in (name, moved_of(name) or name) if one in planned}
        if arms:
            best = best_of(list(arms.values()))
            found |= {one: a for one, a in arms.items() if a is best}
    return found


def control(r: Records) -> Arm:
    """FP32, trained on like the formats."""
    return arm(r.of(EXPERIMENT), "FP32 tuned alike", part="control")
