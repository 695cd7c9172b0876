"""Other machines' and data's runs of a page's claims, and where their effects differ."""

from collections.abc import Iterator
from dataclasses import dataclass

from madl.logbook.claims import Result
from madl.logbook.stats import Comparison, difference
from madl.logbook.values import ALPHA
from madl.running.pages import Page
from madl.running.views import View
from madl.training import workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRun:
    """A primary claim as another machine or other data have it, beside the page's own run."""

    view: View
    place: str  # the other data's or model's name, else "another machine"
    own: Result
    other: Result
    level: float  # of the interval, so that of all runs of a claim one in twenty differs by chance

    @property
    def difference(self) -> Comparison:
        """Its effect less that of the page's run."""
        return difference(self.other.comparison, self.own.comparison)

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        low, high = self.difference.interval_at(self.level)
        return not low <= 0 <= high


def run_name(view: View) -> str:
    """A run's name for readers: its data if not the default ones, its machine, its code's age."""
    default = workloads.resolve(workloads.DEFAULT).params()
    age = view.age.replace("by earlier", "earlier")
    parts = [*workloads.differences(view.plan.workload, default), view.machine, age]
    return ", ".join(filter(None, parts))


def other_runs(page: Page, claim: str) -> Iterator[OtherRun]:
    """Every other run of a primary claim that the page's own run has measured.

    Of two runs by one name it is the first.
    """
    own = page.view.measured.get(claim)
    by_name: dict[str, View] = {}
    for view in (page.view, *page.others):
        by_name.setdefault(run_name(view), view)
    others = [view for view in by_name.values() if view is not page.view]
    others = [view for view in others if claim in view.measured] if own else []
    for view in others:
        level = 1 - ALPHA / len(others)
        assert own is not None
        changes = workloads.differences(view.plan.workload, page.view.plan.workload)
        name = next(iter(changes), "another machine")
        place = name.rpartition("/")[2].partition("#")[0]  # of a hub's id, or a folder's
        other = view.measured[claim]
        yield OtherRun(view=view, place=place, own=own, other=other, level=level)


def disagreement(page: Page, claim: str) -> OtherRun | None:
    """The run whose effect differs most clearly from the page's; None if none differs."""
    differing = (run for run in other_runs(page, claim) if run.differs)
    return max(differing, key=lambda run: abs(_errors(run.difference)), default=None)


def _errors(comparison: Comparison) -> float:
    return comparison.effect / comparison.error if comparison.error else float("inf")
