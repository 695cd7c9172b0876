"""Curves and tables of search studies: the best so far, its mean over studies and interval.

A study is the list of its trials' values, in order. Nothing here knows a sampler or a model.
Units: trials are counted from 1; values are accuracies as fractions.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.arms import value_at
from madl.logbook.records import Params, Records, Row
from madl.logbook.values import Estimate, Unit, scientific

COLLAPSED_NATS = 0.65  # of loss on balanced labels, nearly log 2: the model guesses

Study = Sequence[float | None]  # None: no value so far


def least_so_far(losses: Iterable[float | None]) -> list[float | None]:
    """For each trial, the least loss up to it; None as long as no trial has a loss."""
    least = accumulate((math.inf if loss is None else loss for loss in losses), min)
    return [None if math.isinf(loss) else loss for loss in least]


def highest_so_far(values: Iterable[float | None]) -> list[float | None]:
    """For each trial, the highest value up to it; None as long as no trial has a value."""
    highest = accumulate((-math.inf if value is None else value for value in values), max)
    return [None if math.isinf(value) else value for value in highest]


def preferred_rate(losses: Mapping[float, float]) -> float:
    """The learning rate of least validation loss, of those that are not next to a collapse.

    `losses` are by rate. Training has collapsed where its loss is that of guessing; a rate is next
    to one if the next larger rate collapses.

    Raises:
        MadlError: it is the largest that is left, so a larger one has to be tried; or none is left.
    """
    rates = sorted(losses)
    collapsed = {rate for rate in rates if losses[rate] > COLLAPSED_NATS}
    beside = {rate for rate, larger in pairwise(rates) if larger in collapsed}
    if not (left := [rate for rate in rates if rate not in collapsed | beside]):
        raise MadlError("training collapses at all rates, or next to them; try smaller ones")
    best = min(left, key=losses.__getitem__)
    if best == rates[-1]:
        raise MadlError(f"of the rates tried, the largest is best ({best:g}); try a larger one")
    return best


def loss_above_least(tuned: Records, rate: str, chosen: float) -> float:
    """The validation loss at the chosen learning rate above the least of all that were tried: what
    it costs to leave out rates next to a collapse, in nats. `rate` is the parameter with the rate.

    Raises:
        Pending: the chosen rate has no result yet.
    """
    record = tuned.single(**{rate: chosen})
    return record.values["validation_loss"] - min(r.values["validation_loss"] for r in tuned)


def rate_rows(
    tuned: Records,
    models: Mapping[str, Params],
    rate: str,
    *within: str,
    chosen: Mapping[str, float] = MappingProxyType({}),
) -> list[Row]:
    """A table of validation losses: a row for each of `models`, a column for each learning rate.

    `models` maps names to parameters of their records; `rate` is the parameter with the learning
    rate; `within` holds the nested names under which the loss stands. What the design has `chosen`
    for a model is marked, and `preferred_rate` if it is another one: of other models and data.
    """
    rows: list[Row] = []
    columns = {scientific(float(value or 0)): "" for value in tuned.param_values(rate)}
    for name, where in models.items():
        losses = {
            float(record.case.params[rate] or 0): float(value_at(record, within)["validation_loss"])
            for record in tuned.all(**where)
        }
        texts = {tried: f"{loss:.4f}" for tried, loss in losses.items()}
        if chosen.get(name) in texts:
            texts[chosen[name]] += ", chosen"
            with contextlib.suppress(MadlError):
                if (best := preferred_rate(losses)) != chosen[name]:
                    texts[best] += ", preferred"
        cells = {scientific(tried): text for tried, text in texts.items()}
        rows.append({"model": name, **columns, **cells})
    return rows


def mean_estimate(values: Sequence[float], unit: Unit = Unit.PERCENT) -> Estimate:
    """Mean of independent values with its t interval; a single value has no interval."""
    if len(values) < 2:
        return Estimate(float(values[0]), None, unit, 1)
    mean = stats.mean(values, unit=unit, unit_name="values")
    interval = mean.interval.of_share() if unit is Unit.PERCENT else mean.interval
    return Estimate(mean.effect, interval, unit, len(values))


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation of paired scores; 0 where one side is constant."""
    if len(set(a)) == 1 or len(set(b)) == 1:
        return 0.0
    from scipy.stats import spearmanr  # takes long to import

    ranked: Any = spearmanr(a, b)
    return float(ranked.statistic)


def mean_rows(curves: Mapping[str, Sequence[Study]], unit: Unit = Unit.PERCENT) -> list[Row]:
    """A row for each trial, a column for each curve: the mean of its studies, with its interval.

    It is None where a study has no value so far, or fewer trials.
    """
    length = max(len(study) for studies in curves.values() for study in studies)

    def at(studies: Sequence[Study], i: int) -> Estimate | None:
        values = [value for study in studies for value in study[i : i + 1] if value is not None]
        return mean_estimate(values, unit) if len(values) == len(studies) else None

    return [
        {"trial": i + 1, **{name: at(studies, i) for name, studies in curves.items()}}
        for i in range(length)
    ]
