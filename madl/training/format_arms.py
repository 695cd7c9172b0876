"""The models of question 3.2, for pages that have `lab3_formats` among their needs."""

from statistics import fmean

from madl.logbook.arms import Arm, arm, best_of
from madl.logbook.records import Pending, Records
from madl.logbook.stats import number
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


def said(a: Arm) -> str:
    """A format with its bits, and where it is moved, with its positions in words."""
    bits, (name, _, places) = a.value("bits"), a.label.partition(" at ")
    size = f"{number(bits)} bit{'s' if bits != 1 else ''}"
    if places:
        what = "fraction width" if name.startswith("fixed") else "exponent bias"
        sides = zip(*(map(int, one.split(" and ")) for one in places.split(" or ")), strict=True)
        weights, inputs = (" or ".join(map(str, sorted(set(side)))) for side in sides)
        size += f"; {what} {weights} for weights, {inputs} for inputs"
    elif moved_of(name):
        size += "; at its default position"
    return f"`{name}` ({size})"


def by_rate(a: Arm) -> dict[float, tuple[float, float]]:
    """Validation accuracy and loss by learning rate; zero is untrained. The means over seeds."""
    found: dict[float, list[tuple[float, float]]] = {}
    for record in a.records:
        for rate, values in record.values["by_rate"].items():
            pair = values["validation_accuracy"], values["validation_loss"]
            found.setdefault(float(rate), []).append(pair)
    return {rate: (fmean(x for x, _ in of), fmean(y for _, y in of)) for rate, of in found.items()}
