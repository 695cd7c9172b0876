"""What a search page shows of its studies: the best so far, its mean and band, what it took.

A study is the list of its trials' values, in order. Nothing here knows a sampler or a model.
Units: trials are counted from 1; values are accuracies as fractions.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from scipy.stats import sem, t

from madl.logbook import plots
from madl.logbook.experiment import Row
from madl.logbook.stats import ALPHA, Interval

Study = Sequence[float]


def best_so_far(study: Study) -> list[float]:
    """After every trial, the best value until then."""
    return list(accumulate(study, max))


def found_at(study: Study) -> int:
    """The trial at which the study's best was found first."""
    return study.index(max(study)) + 1


def trials_to_reach(study: Study, level: float) -> int | None:
    """The first trial that is at least `level`; None if none is."""
    return next((i for i, value in enumerate(study, 1) if value >= level), None)


def front(sizes: Sequence[float], values: Sequence[float]) -> list[int]:
    """Indices of the points that no smaller or equal one reaches, by ascending size."""
    found: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (sizes[i], -values[i])):
        if not found or values[i] > values[found[-1]]:
            found.append(i)
    return found


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean of independent values with its t interval; None from a single one."""
    if len(values) < 2:
        return None
    half = float(t.ppf(1 - ALPHA / 2, len(values) - 1)) * float(sem(values))
    mean = float(np.mean(values))
    return Interval(mean - half, mean + half)


def curve_rows(curves: Mapping[str, Sequence[Study]]) -> list[Row]:
    """A row a trial: per curve the mean best so far over its studies, and its interval."""
    return mean_rows({name: [best_so_far(s) for s in studies] for name, studies in curves.items()})


def mean_rows(curves: Mapping[str, Sequence[Study]]) -> list[Row]:
    """A row a trial: per curve the mean over its studies, and its interval.

    A curve that has fewer trials than another ends earlier, in None.
    """
    length = max(len(study) for studies in curves.values() for study in studies)
    rows: list[dict[str, Any]] = [{"trial": i} for i in range(1, length + 1)]
    for name, studies in curves.items():
        for i, row in enumerate(rows):
            values = [study[i] for study in studies if i < len(study)]
            whole = len(values) == len(studies)
            band = mean_interval(values) if whole else None
            row[name] = float(np.mean(values)) if whole else None
            row[f"{name} low"] = band.low if band else None
            row[f"{name} high"] = band.high if band else None
    return rows  # type: ignore[return-value]


def draw_curves(
    ax: Any, rows: Sequence[Row], roles: Mapping[str, str], *, accuracy: str, startup: int = 0
) -> None:
    """The curves of `curve_rows`, name → role; `startup` shades trials drawn at random."""
    if startup:
        ax.axvspan(0.5, startup + 0.5, color=plots.color("chance"), alpha=0.12, linewidth=0)
    every = max(len(rows) // 8, 1)
    for name, role in roles.items():
        plots.curve(ax, rows, "trial", name, role, label=name)
        if ax.lines:
            ax.lines[-1].set_markevery(every)
    ax.set_xlim(0.5, len(rows) + 0.5)
    ax.set_xlabel("trials")
    plots.percent_axis(ax, accuracy)
    plots.legend(ax)


def curves_alt(rows: Sequence[Row], names: Sequence[str]) -> str:
    """What the curves say at their start, middle and end, in a sentence each."""
    shown = sorted({0, len(rows) // 2, len(rows) - 1})
    points = "; ".join(
        f"after {rows[i]['trial']} trials "
        + ", ".join(f"{n} {rows[i][n]:.1%}" for n in names if rows[i].get(n) is not None)
        for i in shown
    )
    return f"Best accuracy so far against trials. {points}."
