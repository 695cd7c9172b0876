"""Published cases that ran again on this machine: their results against the published ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from statistics import median
from typing import Any

from madl.logbook.arms import processes
from madl.logbook.equivalences import differences
from madl.logbook.records import Case, Source
from madl.running.pace import varying

CLEARLY = 1.1  # times as fast as another: a smaller lead is none
NAMED = 3  # cases in `line`, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How many of the full profile's cases ran again, and how far values differ from the published.

    `gaps` holds a case's largest difference in test accuracy in points, here minus published;
    `ratios` a case's times here over the published ones, the median over its variants; `otherwise`
    the cases with another result: an exact value that differs, or another fastest variant.
    """

    cases: int
    run: int
    gaps: Mapping[str, float]
    ratios: Mapping[str, float]
    otherwise: Sequence[str]

    def line(self) -> str:
        """The comparison as a sentence; "" if nothing was run again."""
        if not self.run:
            return ""
        parts = [f"Run again here: {self.run} of {self.cases} cases"]
        if self.gaps:
            case, gap = max(self.gaps.items(), key=lambda item: abs(item[1]))
            text = f"{abs(gap):.2g}"
            unit = "point" if text == "1" else "points"
            most = f"within {text} {unit} (most in {case})" if gap else "the same"
            parts.append(f"test accuracies {most}")
        if self.ratios:
            low, high = f"{min(self.ratios.values()):.2g}", f"{max(self.ratios.values()):.2g}"
            parts.append(f"times {low if low == high else f'{low} to {high}'} × the published")
        if self.otherwise:
            more = len(self.otherwise) - NAMED
            names = "; ".join(self.otherwise[:NAMED]) + (f"; {more} more" if more > 0 else "")
            parts.append(f"otherwise than published: {names}")
        elif not self.gaps and not self.ratios:
            parts.append("all as published")
        return ", ".join(parts) + "."


def run_again(cases: Sequence[Case], published: Source, own: Source) -> Again:
    """Compare this machine's results of these cases with the published ones."""
    keys = varying(cases)
    gaps: dict[str, float] = {}
    ratios: dict[str, float] = {}
    otherwise: list[str] = []
    run = 0
    for case in cases:
        here, there = own(case), published(case)
        if here is None or there is None or here.status != "ok" or there.status != "ok":
            continue
        if here.run.started == there.run.started:  # it is what was published
            continue
        run += 1
        label = " ".join(str(case.params[key]) for key in keys if key in case.params) or "the case"
        if ours := dict(accuracies(here.values)):
            theirs = dict(accuracies(there.values))
            points = [100 * (ours[path] - theirs[path]) for path in ours if path in theirs]
            if points:
                gaps[label] = max(points, key=abs)
            else:
                otherwise.append(label)
        elif ours := _times(here.values):
            theirs = _times(there.values)
            if of_variants := [ours[name] / theirs[name] for name in ours if name in theirs]:
                ratios[label] = median(of_variants)
            if not of_variants or _has_other_order(ours, theirs):
                otherwise.append(label)
        elif any(differences(there.values, here.values, equal=_close)):
            otherwise.append(label)
    return Again(cases=len(cases), run=run, gaps=gaps, ratios=ratios, otherwise=otherwise)


def accuracies(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The test accuracies among a record's values, at any depth, as (path of names, accuracy)."""
    if isinstance(values, Mapping):
        if {"outcomes", "accuracy"} <= values.keys() and "validation" not in path:
            yield path, values["accuracy"]
        for name, value in values.items():
            yield from accuracies(value, (*path, str(name)))
    elif isinstance(values, list):
        for place, value in enumerate(values):
            yield from accuracies(value, (*path, str(place)))


def _times(values: Mapping[str, Any]) -> dict[str, float]:
    """Each variant's time in seconds: the median of its processes' medians."""
    times: dict[str, float] = {}
    for name, measured in values.get("measurements", {}).items():
        timed = [run["samples_s"] for run in processes(measured) if run.get("samples_s")]
        if timed:
            times[name] = median(map(median, timed))
    return times


def _has_other_order(ours: Mapping[str, float], theirs: Mapping[str, float]) -> bool:
    """Whether another variant is clearly the fastest here, among variants of one size.

    The size is a name's last word, if it is a number: 16 of "MXINT8 16".
    """

    def size(name: str) -> str:
        last = name.rpartition(" ")[2]
        return last if last.isdigit() else ""

    for common in set(map(size, ours)):
        names = [name for name in ours if size(name) == common and name in theirs]
        if len(names) > 1:
            a, b = min(names, key=ours.__getitem__), min(names, key=theirs.__getitem__)
            if min(ours[b] / ours[a], theirs[a] / theirs[b]) > CLEARLY:
                return True
    return False


def _close(a: Any, b: Any) -> bool:
    """Whether two values are equal but for the last digits of floats: sums in another order."""
    if isinstance(a, float) and isinstance(b, float | int):
        return isclose(a, b, rel_tol=1e-3, abs_tol=1e-5)
    return a == b
