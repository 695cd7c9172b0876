"""What of a page's published evidence this machine has run again, and how it came out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from statistics import median
from typing import Any

from madl.logbook.records import Case, Source
from madl.running.pace import varying

TIMES = ("_s", "seconds", "_mhz")  # how names of values end that no two runs have alike
CLEARLY = 1.1  # as fast as the next: less is no order
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How many of full's cases were run again, and what became of their values.

    `gaps` are points of test accuracy by case, here minus published; `ratios` times here over
    published ones, the median over what a case times; `otherwise` names cases with another result:
    an exact value that differs, or another fastest variant.
    """

    cases: int
    run: int
    gaps: Mapping[str, float]
    ratios: Mapping[str, float]
    otherwise: Sequence[str]

    def line(self) -> str:
        """One line of text; empty where nothing was run again."""
        if not self.run:
            return ""
        said = [f"Run again here: {self.run} of {self.cases} cases"]
        if self.gaps:
            case, gap = max(self.gaps.items(), key=lambda item: abs(item[1]))
            most = f"within {abs(gap):.2g} points (most in {case})" if gap else "the same"
            said.append(f"test accuracies {most}")
        if self.ratios:
            low, high = f"{min(self.ratios.values()):.2g}", f"{max(self.ratios.values()):.2g}"
            said.append(f"times {low if low == high else f'{low} to {high}'} × the published")
        if self.otherwise:
            more = len(self.otherwise) - NAMED
            names = "; ".join(self.otherwise[:NAMED]) + (f"; {more} more" if more > 0 else "")
            said.append(f"otherwise than published: {names}")
        elif not self.gaps and not self.ratios:
            said.append("all as published")
        return ", ".join(said) + "."


def run_again(cases: Sequence[Case], published: Source, own: Source) -> Again:
    """This store's results of those cases against the published ones."""
    keys = varying(cases)
    gaps: dict[str, float] = {}
    ratios: dict[str, float] = {}
    otherwise: list[str] = []
    run = 0
    for case in cases:
        here, there = own.get(case), published.get(case)
        if here is None or there is None or here.status != "ok" or there.status != "ok":
            continue
        if here.run.started == there.run.started:  # it is what was published
            continue
        run += 1
        label = " ".join(str(case.params[key]) for key in keys if key in case.params) or "the case"
        if ours := dict(accuracies(here.values)):
            theirs = dict(accuracies(there.values))
            every = [100 * (ours[path] - theirs[path]) for path in ours if path in theirs]
            gaps[label] = max(every, key=abs, default=0.0)
        elif ours := _times(here.values):
            theirs = _times(there.values)
            if every := [ours[name] / theirs[name] for name in ours if name in theirs]:
                ratios[label] = median(every)
            if _has_other_order(ours, theirs):
                otherwise.append(label)
        elif not _alike(here.values, there.values):
            otherwise.append(label)
    return Again(cases=len(cases), run=run, gaps=gaps, ratios=ratios, otherwise=otherwise)


def accuracies(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The test accuracies among a record's values, each with the names that lead to it."""
    if isinstance(values, Mapping):
        if {"outcomes", "accuracy"} <= values.keys() and "validation" not in path:
            yield path, values["accuracy"]
        for name, value in values.items():
            yield from accuracies(value, (*path, str(name)))
    elif isinstance(values, list):
        for place, value in enumerate(values):
            yield from accuracies(value, (*path, str(place)))


def _times(values: Mapping[str, Any]) -> dict[str, float]:
    """The median time of each variant, over its processes."""
    found: dict[str, float] = {}
    for name, made in values.get("measurements", {}).items():
        runs = made if isinstance(made, list) else [made]
        medians = [median(run["samples_s"]) for run in runs if run.get("samples_s")]
        if medians:
            found[name] = median(medians)
    return found


def _has_other_order(ours: Mapping[str, float], theirs: Mapping[str, float]) -> bool:
    """Whether another variant is clearly the fastest of what is timed alike ("MXINT8 16")."""

    def size(name: str) -> str:
        last = name.rpartition(" ")[2]
        return last if last.isdigit() else ""

    for one in set(map(size, ours)):
        names = [name for name in ours if size(name) == one and name in theirs]
        if len(names) > 1:
            a, b = min(names, key=ours.__getitem__), min(names, key=theirs.__getitem__)
            if min(ours[b] / ours[a], theirs[a] / theirs[b]) > CLEARLY:
                return True
    return False


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        ours: Mapping[str, Any] = a
        theirs: Mapping[str, Any] = b
        names = [name for name in ours if not str(name).endswith(TIMES)]
        return all(name in theirs and _alike(ours[name], theirs[name]) for name in names)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(a, float) and isinstance(b, float | int):
        return isclose(a, b, rel_tol=1e-3, abs_tol=1e-5)  # sums in another order
    return a == b
