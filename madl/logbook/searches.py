"""What a search page shows of its studies: the best so far, its mean and band, what it took.

A study is the list of its trials' values, in order. Nothing here knows a sampler or a model.
Units: trials are counted from 1; values are accuracies as fractions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from scipy.special import stdtrit

from madl.logbook import claims, stats
from madl.logbook.arms import SEED, Arm
from madl.logbook.charts import Axis, Chart, Mark, line, linear, percent, points, span
from madl.logbook.claims import Contrast
from madl.logbook.records import Record, Records, Row
from madl.logbook.stats import ALPHA, Estimate, Interval, Unit

Study = Sequence[float]


def best_so_far(study: Study) -> list[float]:
    """After every trial, the best value until then."""
    return list(accumulate(study, max))


def found_at(study: Study) -> int:
    """The trial at which the study's best was found first."""
    return study.index(max(study)) + 1


def front(sizes: Sequence[float], values: Sequence[float]) -> list[int]:
    """Indices of the points that no smaller or equal one reaches, by ascending size."""
    found: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (sizes[i], -values[i])):
        if not found or values[i] > values[found[-1]]:
            found.append(i)
    return found


def mean_estimate(values: Sequence[float], unit: Unit = Unit.PERCENT) -> Estimate:
    """Mean of independent values with its t interval; without one from a single value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean, None, unit, 1)
    from scipy.stats import sem

    half = float(stdtrit(len(values) - 1, 1 - ALPHA / 2)) * float(sem(values))
    interval = Interval(mean - half, mean + half)
    return Estimate(
        mean, interval.of_share() if unit is Unit.PERCENT else interval, unit, len(values)
    )


# ---- studies as units ---------------------------------------------------------------------------

STUDIES = "studies"  # of one trained model: `Arm(units=STUDIES)` says so of what they chose


def of_units(records: Records, value: Callable[[Record], Any]) -> list[Any]:
    """A number or list of each unit: of one trained model its studies; of several, their means."""
    models = [list(map(value, records.all(**{SEED: seed}))) for seed in records.each(SEED)]
    if len(models) == 1:
        return models[0]
    return [np.mean(values, axis=0).tolist() for values in models]


def compare_values(a: Records, b: Records, value: Callable[[Record], float]) -> Contrast:
    """What two searches found, by a plain value of each study, paired by unit (`of_units`)."""
    sides = [of_units(records, value) for records in (a, b)]
    drawn = STUDIES if len(a.each(SEED)) == 1 else stats.MODELS
    return claims.contrast(stats.paired_mean(*sides, unit=Unit.POINTS, drawn=drawn), [*a, *b])


def on_validation(arm: Arm, validation: tuple[str, ...]) -> Estimate:
    """An arm's accuracy on the validation examples."""
    return replace(arm, within=validation).accuracy


def lead(a: Arm, b: Arm, validation: tuple[str, ...]) -> Estimate:
    """A less B on the validation examples."""
    return replace(a, within=validation) - replace(b, within=validation)


# ---- ranks --------------------------------------------------------------------------------------


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's, of paired scores; 0 where one side is constant."""
    if len(set(a)) == 1 or len(set(b)) == 1:
        return 0.0
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


# ---- curves and fronts --------------------------------------------------------------------------


def curve_rows(curves: Mapping[str, Sequence[Study]]) -> list[Row]:
    """A row a trial: per curve the mean best so far over its studies, with its interval."""
    return mean_rows({name: [best_so_far(s) for s in studies] for name, studies in curves.items()})


def mean_rows(curves: Mapping[str, Sequence[Study]]) -> list[Row]:
    """A row a trial: per curve the mean over its studies, with its interval.

    A curve that has fewer trials than another ends earlier, in None; before every study has found
    something (NaN), there is none either.
    """
    length = max(len(study) for studies in curves.values() for study in studies)

    def at(studies: Sequence[Study], i: int) -> Estimate | None:
        values = [study[i] for study in studies if i < len(study) and not math.isnan(study[i])]
        return mean_estimate(values) if len(values) == len(studies) else None

    return [
        {"trial": i + 1, **{name: at(studies, i) for name, studies in curves.items()}}
        for i in range(length)
    ]


def curves_chart(
    rows: Sequence[Row], *, accuracy: str, startup: int = 0, levels: Sequence[Mark] = ()
) -> Chart:
    """The curves of `curve_rows`; `startup` shades the trials that a sampler draws at random."""
    names = [name for name in rows[0] if name != "trial"]
    shaded = [span(0.5, startup + 0.5, "drawn at random")] if startup else []
    return Chart(
        rows,
        x=linear("trial", "trials"),
        y=percent(accuracy),
        marks=[*shaded, *levels, *(line(name, markers=False) for name in names)],
    )


def front_chart(
    rows: Sequence[Row],
    *,
    size: Axis,
    value: str,
    by: str | None = None,
    front_by: str = "",
    common: bool = False,
    text: str | None = None,
    levels: Sequence[Mark] = (),
) -> Chart:
    """Values against sizes: a point a row, and a line through those that no smaller one reaches.

    `size` is the x axis, of a column; `value` the column drawn, in per cent.
    `by` splits the rows into series, each with its own front, or one for all of them if `common`.
    What is on a front is decided by the plain numbers in column `front_by`, or `value`: validation
    values, since test values are sealed. `text` names a column that says what a point is.
    """
    across, judged = str(size.column), front_by or value
    ordered = sorted(rows, key=lambda row: row[across])
    names = [""] if common or by is None else list(dict.fromkeys(row[by] for row in rows))
    drawn = [dict(row) for row in ordered]
    marks = [*levels, points(value, by=by, text=text)]
    for name in names:
        mine = [row for row in drawn if not name or row[str(by)] == name]
        title = f"{name}, front" if name else "front"
        for i in front([row[across] for row in mine], [row[judged] for row in mine]):
            mine[i][title] = mine[i][value]
        marks.append(line(title, markers=False, like=name or None))
    return Chart(drawn, x=size, y=percent(value), marks=marks)
