"""Replication: the verdicts of primary claims on other machines and data, and in more sittings."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from madl.logbook.claims import Result
from madl.logbook.numbers import bracketed, count_of_units
from madl.logbook.records import Row
from madl.logbook.stats import mean
from madl.logbook.values import Unit
from madl.running.pages import Page
from madl.running.views import View
from madl.site import how_sure, prose
from madl.site.disagreements import OtherRun, other_runs, run_name

log = logging.getLogger(__name__)

DECIDED = ("supported", "refuted")
# how the verdicts of a claim's runs agree, the worst first
REVERSED, IN_SOME, IN_NONE, ALIKE = AGREEMENT = (
    "verdict reversed",
    "decided in some runs",
    "decided in no run",
    "same verdict",
)


def replicated(pages: Iterable[Page]) -> Iterator[tuple[Page, Result, list[OtherRun]]]:
    """Each primary claim with several runs: its page, the page's own result, the other runs."""
    for page in pages:
        for name, own in page.view.measured.items():
            if others := list(other_runs(page, name)):
                yield page, own, others


def rows(pages: Iterable[Page]) -> list[Row]:
    """A row for each of these claims, a column for each run; reversals first."""
    claims = [
        (agreement(own, others), page, own, others) for page, own, others in replicated(pages)
    ]
    claims.sort(key=lambda claim: AGREEMENT.index(claim[0]))
    return [
        {
            "question": page.questions[0].id if page.questions else page.name,
            "hypothesis": own.hypothesis.rstrip("."),
            "agreement": alike + ", another size" * any(run.differs for run in others),
            run_name(page.view): _summary(own),
            **{run_name(run.view): _beside(run) for run in others},
        }
        for alike, page, own, others in claims
    ]


def _summary(result: Result) -> str:
    """Its verdict, its effect, and of how many."""
    n = count_of_units(result.comparison.units, result.comparison.population)
    return f"{result.decided}, {how_sure.with_interval(result)}, {n}"


def _beside(run: OtherRun) -> str:
    """Another run's summary, and how far its effect is from that of the page's."""
    gap, unit = run.difference, run.difference.unit
    ends = bracketed(gap.interval_at(run.level), unit)
    name = "ratio" if unit is Unit.TIMES else "difference"
    return f"{_summary(run.other)}; {name} {prose.signed(gap.effect, unit, more=1)} {ends}"


def summary(page: Page) -> str:
    """How many of a page's primary claims agree how: "2 same verdict; 1 verdict reversed"."""
    counts = Counter(row["agreement"] for row in rows([page]))
    parts = [f"{count} {agreement}" for agreement, count in counts.items()]
    return "; ".join(parts) or "no other published run"


def agreement(own: Result, others: Iterable[OtherRun]) -> str:
    """How the verdicts of a claim in its runs agree: one of `AGREEMENT`."""
    distinct = {own.decided, *(run.other.decided for run in others)}
    if distinct.issuperset(DECIDED):
        return REVERSED
    if distinct.isdisjoint(DECIDED):
        return IN_NONE
    return ALIKE if len(distinct) == 1 else IN_SOME


def outcomes(view: View) -> dict[str, str]:
    """Name of a claim on times, "lab4_compile.faster" → its verdict, effect and sittings."""
    times = {name: r for name, r in view.measured.items() if r.comparison.unit is Unit.TIMES}
    return {f"{view.name}.{name}": _summary(result) for name, result in times.items()}


def predicted(pages: Iterable[Page]) -> tuple[int, int]:
    """How many sittings lie in the interval that the others of their claim predict; of how many.

    They are those of all claims on times, on every machine, left out one by one.
    """
    held = count = 0
    for view in (view for page in pages for view in (page.view, *page.others)):
        for result in view.measured.values():
            comparison, each = result.comparison, result.comparison.by_unit
            if comparison.unit is not Unit.TIMES or len(each) < 3:
                continue
            for i, left_out in enumerate(each):
                others = [*each[:i], *each[i + 1 :]]
                low, high = mean(others, unit=Unit.TIMES, unit_name="sittings").prediction
                held, count = held + (low <= left_out <= high), count + 1
    return held, count
