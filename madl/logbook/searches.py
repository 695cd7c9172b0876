"""What a search page shows of its studies: the best so far, its mean and band, what it took.

A study is the list of its trials' values, in order. Nothing here knows a sampler or a model.
Units: trials are counted from 1; values are accuracies as fractions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from madl.logbook import stats
from madl.logbook.arms import inside
from madl.logbook.records import Params, Records, Row
from madl.logbook.stats import Estimate, Unit, scientific

Study = Sequence[float | None]  # None: nothing yet


def least_so_far(losses: Iterable[float | None]) -> list[float | None]:
    """After every trial, the least loss until then; None before one has a loss."""
    least = accumulate((math.inf if loss is None else loss for loss in losses), min)
    return [None if math.isinf(loss) else loss for loss in least]


def rate_rows(tuned: Records, what: Mapping[str, Params], rate: str, *within: str) -> list[Row]:
    """A row a training: its loss on validation by the rate, the parameter of that name."""
    return [
        {
            "model": name,
            **{
                scientific(one.case.params[rate]): f"{inside(one, within)['validation_loss']:.4f}"
                for one in tuned.all(**where)
            },
        }
        for name, where in what.items()
    ]


def mean_estimate(values: Sequence[float], unit: Unit = Unit.PERCENT) -> Estimate:
    """Mean of independent values with its t interval; without one from a single value."""
    if len(values) < 2:
        return Estimate(float(values[0]), None, unit, 1)
    made = stats.mean(values, unit=unit, drawn="values")
    interval = made.interval.of_share() if unit is Unit.PERCENT else made.interval
    return Estimate(made.effect, interval, unit, len(values))


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's, of paired scores; 0 where one side is constant."""
    if len(set(a)) == 1 or len(set(b)) == 1:
        return 0.0
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def mean_rows(curves: Mapping[str, Sequence[Study]], unit: Unit = Unit.PERCENT) -> list[Row]:
    """A row a trial: per curve the mean over its studies, with its interval.

    None where one of them has nothing yet, or no trial any more.
    """
    length = max(len(study) for studies in curves.values() for study in studies)

    def at(studies: Sequence[Study], i: int) -> Estimate | None:
        values = [value for study in studies for value in study[i : i + 1] if value is not None]
        return mean_estimate(values, unit) if len(values) == len(studies) else None

    return [
        {"trial": i + 1, **{name: at(studies, i) for name, studies in curves.items()}}
        for i in range(length)
    ]
