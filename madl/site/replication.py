"""Replication: primary claims on other machines and data, and claims on times in more sittings."""

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from madl.errors import MadlError
from madl.logbook.arms import SEED, SITTING
from madl.logbook.claims import Result
from madl.logbook.experiment import PROFILES
from madl.logbook.numbers import count_of_units
from madl.logbook.records import Case, Record, Row, Store
from madl.logbook.stats import mean
from madl.logbook.values import Unit
from madl.machine import device
from madl.running import runner
from madl.running.evidence import Evidence, EvidenceTable, first_good, with_workload
from madl.running.plans import ExplicitPlan, Options, RunPlan, explicit_plan
from madl.site import prose
from madl.site.disagreements import OtherRun, other_runs, run_name
from madl.site.views import Page, View, pages
from madl.training import workloads

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
    return f"{result.decided}, {prose.with_interval(result)}, {n}"


def _beside(run: OtherRun) -> str:
    """Another run's summary, and how far its effect is from that of the page's."""
    gap, unit = run.difference, run.difference.unit
    ends = prose.bracketed(gap.interval_at(run.level), unit)
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


# ---- what primary claims read, run again --------------------------------------------------------


def claimed_cases(plan: RunPlan, store: Store) -> ExplicitPlan:
    """The plan of the full profile's cases that primary claims read, with this plan's workload.

    Which cases they are is read from evidence of the default workload, on which all was tuned. With
    that workload, cases of further seeds are among them.

    Raises:
        MadlError: a record that cannot be used, or a claim or chart that cannot be made.
    """
    default = workloads.resolve(workloads.DEFAULT).params()
    read: dict[str, Case] = {}
    for page in pages(replace(plan.whole, workload=default), store):
        for case in page.view.claimed:
            there = with_workload(case, plan.workload)
            is_of_it = plan.workload == default or there != case
            if is_of_it and case.params.get(SEED) in (None, *plan.whole.seeds):
                read[there.key] = there
                if plan.workload == default and (twin := page.view.twins.get(case.key)):
                    read[twin.key] = twin
    return explicit_plan(replace(plan, profile=PROFILES["full"]), read.values())


def add_sittings(
    plan: RunPlan, store: Store, stems: Sequence[str], times: int
) -> Iterator[list[View]]:
    """Measure claims on times in so many further sittings; yield the pages' views after each.

    They are views of this machine: where it has not measured the sittings of the plan, it does so
    first. All that is not timed is read from the evidence that the pages show.

    Raises:
        MadlError: no primary claim of these experiments (of all, without `stems`) can be timed
            here, or a case fails.
    """
    for stem in stems:
        plan.project.load(stem)
    for number in range(1, times + 1):
        views = [(v, _on_this_machine(v, store)) for v in _timed_views(plan, store, stems)]
        work = explicit_plan(
            plan.whole, [c for shown, here in views for c in _next_cases(shown, here)]
        )
        for progress in runner.run(work, store, [here.name for _, here in views], Options()):
            if progress.record.status == "failed":
                name = progress.record.case.experiment
                raise MadlError(f"a case of {name} failed: {progress.record.error}")
        log.info("sitting %d of %d done", number, times)
        yield [_on_this_machine(shown, store) for shown, _ in views]


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
    """The cases of the plan's sittings that this machine lacks, else those of the next sitting."""

    def is_missing(case: Case) -> bool:
        record = here.evidence.record(case)
        return record is None or record.status != "ok"

    if missing := list(filter(is_missing, _measurable(shown))):
        return missing
    sittings = map(here.in_sitting, itertools.count(here.last_sitting + 1))
    return next(missing for cases in sittings if (missing := list(filter(is_missing, cases))))


def times_of(view: View) -> list[Record]:
    """The results of the plan's sittings and of further ones that the view's claims read."""
    read = (view.evidence.record(case) for case in view.timed)
    return [*filter(None, read), *(r for r in view.further if SITTING in r.case.params)]


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
