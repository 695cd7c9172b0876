"""Power: how likely a two-sided t test decides rightly, of a comparison or of a planned design.

Distances are those of the truth from the boundary that it is tested against.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from scipy.special import nctdtr, ndtr, ndtri, stdtrit  # scipy.stats takes long to import

from madl.logbook.values import ALPHA, Unit, per_cent

POWER = 0.80
NORMAL = 1e4  # degrees of freedom from which Student's t is the normal distribution


def power_at(distance: float, freedom: float, level: float) -> float:
    """Probability that a two-sided t test decides rightly.

    `distance` is that of the truth from the boundary, in standard errors.
    """
    threshold = critical(freedom, level)
    if freedom > NORMAL or math.isinf(distance):
        return float(ndtr(distance - threshold))
    return float(1 - nctdtr(freedom, distance, threshold))


def critical(freedom: float, level: float) -> float:
    """The t value beyond which a two-sided test at this level decides."""
    tail = 1 - level / 2
    return float(ndtri(tail) if freedom > NORMAL else stdtrit(freedom, tail))


def errors_needed(freedom: float, level: float = ALPHA, power: float = POWER) -> float:
    """Distance of a truth from its boundary, in standard errors, that has this power."""
    high = critical(freedom, level) + 1
    while power_at(high, freedom, level) < power:
        high *= 2
    return root(lambda distance: power_at(distance, freedom, level) - power, 0.0, high)


def design_power(distance: float, *, scatter: float, units: int, level: float = ALPHA) -> float:
    """Probability that a design decides a truth at this distance from its boundary.

    `scatter` is the standard deviation of the effect from unit to unit, as it was measured.

    Raises:
        ValueError: nothing scatters, or there is one unit alone.
    """
    if not scatter or units < 2:
        raise ValueError("power is that of two or more units, which scatter")
    return power_at(abs(distance) / scatter * math.sqrt(units), units - 1, level)


Truths = Mapping[str, tuple[float, float]]  # name → distance from the margin, `scatter`


def power_table(truths: Truths, unit: Unit, *, claims: int, units: int) -> list[dict[str, Any]]:
    """A row for each truth: how likely a design decides it.

    Of several `claims`, the hardest and the easiest of Holm's tests have a column each.
    """
    levels = {"hardest": ALPHA / claims, "easiest": ALPHA} if claims > 1 else {"decided": ALPHA}
    rows: list[dict[str, Any]] = []
    for name, (distance, scatter) in truths.items():
        row: dict[str, Any] = {"if the truth is": name}
        if unit is Unit.POINTS:
            row["points from the margin"] = round(100 * distance, 1)
            row["standard deviation"] = round(100 * scatter, 2)
        for test, level in levels.items():
            power = design_power(distance, scatter=scatter, units=units, level=level)
            row[test] = per_cent(power)
        rows.append(row)
    return rows


def root(f: Callable[[float], float], low: float, high: float) -> float:
    """A zero of f between low and high."""
    from scipy.optimize import brentq

    root: Any = brentq(f, low, high)  # its type depends on an option we do not use
    return float(root)
