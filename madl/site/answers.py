"""Rows beside accuracy: each model's loss, and the share of its answers that are not FP32's.

Two models can be equally right on other sentences. So every arm that a page draws or compares has,
beside its accuracy, the share of test answers that are not those of the FP32 model of the same
seed; and below them stands how far two FP32 models of different seeds are apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from madl.logbook.arms import DRAWN, SEED, Arm, answers_apart, value_at
from madl.logbook.charts import Chart
from madl.logbook.records import Record, Row, Scalar, sealed
from madl.logbook.searches import mean_estimate
from madl.logbook.values import Estimate, Outcomes, Unit, number
from madl.running.views import View

BASELINE = "baseline"
CHANGED = "answers changed"


def rows(view: View) -> list[Row]:
    """A row for each arm of a page's figures and claims: of the seeds that have an FP32 model."""
    fp32 = _fp32(view)
    arms = _different(_arms(view))
    judged: list[Row] = []
    for whole in arms:
        if (arm := _beside(whole, fp32)) is not None:
            has_loss = "loss" in value_at(arm.records[0], arm.within)
            row = {
                "model": _name(arm, arms),
                "accuracy": f"{arm:i}" if len(arm.groups) > 1 else f"{arm}",
                "loss": f"{arm.loss:.3f}" if has_loss else "",
                CHANGED: f"{_changed(arm, fp32):i}",
                "of models": len(arm.records),
            }
            judged.append(row)
    if judged and (apart := _two_seeds(view)) is not None:
        row = {
            "model": "FP32 beside FP32 of another seed, on validation sentences",
            **dict.fromkeys(("accuracy", "loss"), ""),
            CHANGED: f"{apart:i}",
            "of models": apart.seeds,
        }
        judged.append(row)
    return judged


def _different(arms: Iterable[Arm]) -> list[Arm]:
    """The arms, each once; without those that are a part of another one of the same label."""
    cases = {(arm.label, arm.within, frozenset(c.key for c in arm.cases)): arm for arm in arms}
    return [
        arm
        for (label, within, own), arm in cases.items()
        if not any((label, within) == other[:2] and own < other[2] for other in cases)
    ]


def _name(arm: Arm, arms: Iterable[Arm]) -> str:
    """The arm's label, and the parameters in which others of that label differ from it."""
    alike = [other.records[0].case.params for other in arms if other.label == arm.label]
    own = arm.records[0].case.params
    differ = [
        name
        for name in own
        if name not in DRAWN and any(other.get(name) != own[name] for other in alike)
    ]
    values = (f"{name.replace('_', ' ')} {_short(own[name])}" for name in differ)
    return ", ".join([arm.label, *values])


def _short(value: Scalar) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _arms(view: View) -> Iterator[Arm]:
    """The arms of the view's charts, and those that its claims compare."""
    charts = [chart for chart in view.shown.values() if isinstance(chart, Chart)]
    cells = [cell for chart in charts for row in chart.rows for cell in row.values()]
    contrasts = [result.contrast for result in view.results.values() if result.contrast]
    cells += [side for contrast in contrasts for side in (contrast.a, contrast.b)]
    yield from (cell for cell in cells if isinstance(cell, Arm))


Answered = tuple[Any, str]  # a seed, and the fingerprint of the sentences that it tests


def _fp32(view: View) -> Mapping[Answered, Outcomes]:
    """The answers of each seed's FP32 model."""
    names = dict.fromkeys((*view.experiment.needs, view.name, BASELINE))
    records = [record for name in names for record in view.records_of(name)]
    records += map(sealed, view.further)
    kept = [r for r in records if _is_fp32(r) and "outcomes" in r.values]
    answers: list[Outcomes] = [record.values["outcomes"] for record in kept]
    return {_answered(record, given): given for record, given in zip(kept, answers)}


def _answered(record: Record, outcomes: Outcomes) -> Answered:
    return record.case.params.get(SEED), outcomes.examples


def _is_fp32(record: Record) -> bool:
    return record.case.params.get("method") == "fp32"


def _beside(arm: Arm, fp32: Mapping[Answered, Outcomes]) -> Arm | None:
    """The arm's models of seeds with an FP32 model; None without any, or if they are FP32."""
    judged = zip(arm.records, arm.outcomes)
    kept = tuple(record for record, given in judged if _answered(record, given) in fp32)
    return None if all(map(_is_fp32, kept)) else replace(arm, records=kept)


def _changed(arm: Arm, fp32: Mapping[Answered, Outcomes]) -> Estimate:
    """The mean share of an arm's answers that are not FP32's."""
    pairs = zip(arm.records, arm.outcomes)
    return mean_estimate(
        [given.differing(fp32[_answered(record, given)]) / given.n for record, given in pairs]
    )


def _two_seeds(view: View) -> Estimate | None:
    """The mean share of sentences on which FP32 models of two seeds differ.

    Their test sentences are not the same, so they are compared on those that choose, on which none
    was trained.
    """
    records = [r for r in view.records_of(BASELINE) if "choosing" in r.values]
    if len(records) < 2:
        return None
    share = answers_apart(Arm(label="FP32", records=tuple(records)), "choosing")
    return Estimate(share, None, Unit.PERCENT, len(records), len(records))
