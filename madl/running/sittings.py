"""Claims on times, measured in further sittings."""

import itertools
import logging
from collections.abc import Sequence

from madl.errors import MadlError
from madl.logbook.arms import SITTING
from madl.logbook.records import Case, Record, Store
from madl.machine import device
from madl.running import runner
from madl.running.evidence import Evidence, EvidenceTable, first_good
from madl.running.pages import pages
from madl.running.plans import Options, RunPlan, explicit_plan
from madl.running.views import View

log = logging.getLogger(__name__)


def add_sittings(plan: RunPlan, store: Store, stems: Sequence[str], times: int) -> list[View]:
    """Measure claims on times in so many further sittings; return the pages' views after them.

    They are views of this machine: where it has not measured the sittings of the plan, it does so
    first. All that is not timed is read from the evidence that the pages show.

    Raises:
        MadlError: no primary claim of these experiments (of all, without `stems`) can be timed
            here, or a case fails.
    """
    for stem in stems:
        plan.project.load(stem)
    timed = _timed_views(plan, store, stems)
    for number in range(1, times + 1):
        cases = [c for shown in timed for c in _next_cases(shown, _on_this_machine(shown, store))]
        work = explicit_plan(plan.whole, cases)
        for progress in runner.run(work, store, [view.name for view in timed], Options()):
            if progress.record.status == "failed":
                name = progress.record.case.experiment
                raise MadlError(f"a case of {name} failed: {progress.record.error}")
        log.info("sitting %d of %d done", number, times)
    return [_on_this_machine(view, store) for view in timed]


def _timed_views(plan: RunPlan, store: Store, stems: Sequence[str]) -> list[View]:
    """The views that pages show, of those with claims on times that this machine can measure."""
    views = [page.view for page in pages(plan, store) if not stems or page.name in stems]
    if views := [view for view in views if _measurable(view)]:
        return views
    raise MadlError("nothing to repeat: no primary claim of these can be timed here")


def _measurable(view: View) -> list[Case]:
    """The timed cases of the view's primary claims that can run on this machine."""
    why_not = view.plan.project.why_unavailable
    return [case for case in view.timed if why_not(case) is None]


def _on_this_machine(view: View, store: Store) -> View:
    """The view with times of this machine alone: of its store, else published by it."""
    published = EvidenceTable(plan=view.plan.whole).published
    own = first_good(store.get, published.get(device.host_label(), store.get))
    shown = first_good(own, view.evidence.source)
    timed = view.experiment.runs_alone

    def record_of(case: Case) -> Record | None:
        return (own if case.experiment == view.name and timed(case.params) else shown)(case)

    return View(name=view.name, evidence=Evidence(plan=view.plan, source=record_of))


def _next_cases(shown: View, here: View) -> list[Case]:
    """The cases of the plan's sittings that this machine lacks, else those of the next sitting.

    Raises:
        MadlError: what this machine has measured lacks what the claims compare.
    """

    def is_missing(case: Case) -> bool:
        record = here.evidence.record(case)
        return record is None or record.status != "ok"

    if missing := list(filter(is_missing, _measurable(shown))):
        return missing
    if not here.timed:
        raise MadlError(f"no primary claim of {here.name} can be made of what was timed here")
    sittings = map(here.in_sitting, itertools.count(here.last_sitting + 1))
    return next(missing for cases in sittings if (missing := list(filter(is_missing, cases))))


def times_of(view: View) -> list[Record]:
    """The results of the plan's sittings and of further ones that the view's claims read."""
    read = (view.evidence.record(case) for case in view.timed)
    return [*filter(None, read), *(r for r in view.further if SITTING in r.case.params)]
