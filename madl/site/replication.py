"""Replication: primary claims on other machines and data, and claims on times measured again."""

import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.arms import SEED
from madl.logbook.claims import BLOCKED, Result
from madl.logbook.experiment import PROFILES
from madl.logbook.numbers import count_of_units
from madl.logbook.records import Case, Pending, Row, Store
from madl.logbook.values import Unit, pluralize
from madl.machine import device
from madl.running import runner
from madl.running.evidence import first_good, with_workload
from madl.running.plans import ExplicitPlan, Options, RunPlan, explicit_plan
from madl.site import prose
from madl.site.disagreements import OtherRun, other_runs, run_name
from madl.site.views import Page, View, pages
from madl.training import workloads

DECIDED = ("supported", "refuted")
# how the verdicts of a claim's runs agree, the worst first
AGREEMENT = ("reversed", "decided in some", "decided in none", "alike")


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
            "agreement": alike + ", effects differ" * any(run.differs for run in others),
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
    """Counts of a page's primary claims by how their runs agree: "2 alike; 1 reversed"."""
    counts = Counter(row["agreement"] for row in rows([page]))
    parts = [f"{count} {agreement}" for agreement, count in counts.items()]
    if again := list(page.view.again.values()):
        steady = sum(not changed(row) for row in again)
        runs = sum(again[0].get(name, 0) for name in benchmarks.OUTCOMES)
        parts.append(f"{steady} of {len(again)} alike in {pluralize(runs, 'more run')}")
    return "; ".join(parts) or "no other published run"


def agreement(own: Result, others: Iterable[OtherRun]) -> str:
    """How the verdicts of a claim in its runs agree: one of `AGREEMENT`."""
    distinct = {own.decided, *(run.other.decided for run in others)}
    if distinct.issuperset(DECIDED):
        return "reversed"
    if distinct.isdisjoint(DECIDED):
        return "decided in none"
    return "alike" if len(distinct) == 1 else "decided in some"


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


def repeat(
    plan: RunPlan, store: Store, stems: Sequence[str], times: int
) -> Iterator[dict[str, Result]]:
    """Measure all claims on times again, and yield each run's results by "lab4_compile.faster".

    A run measures the timed cases of the primary claims of these experiments (of all, without
    `stems`), in a store that is deleted afterwards. All other cases it reads from the evidence that
    the pages show.

    Raises:
        MadlError: no case of a claim measures time, a case fails, or a claim has no result.
    """
    for stem in stems:
        plan.project.load(stem)
    views = [page.view for page in pages(plan, store) if not stems or page.name in stems]
    timed = {
        view.name: list(
            {c.key: c for r in view.measured.values() for c in _timed(view, r)}.values()
        )
        for view in views
    }
    views = [view for view in views if timed[view.name]]
    if not views:
        raise MadlError("nothing to repeat: no primary claim of these can be timed here")
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
            again = Store(Path(folder))
            known = store.root / "artifacts"
            known.mkdir(parents=True, exist_ok=True)
            (again.root / "artifacts").symlink_to(known)
            work = explicit_plan(plan.whole, itertools.chain(*timed.values()))
            for progress in runner.run(work, again, [view.name for view in views], Options()):
                if progress.record.status == "failed":
                    name = progress.record.case.experiment
                    raise MadlError(f"a case of {name} failed: {progress.record.error}")
            yield {
                f"{view.name}.{name}": result
                for view in views
                for name, result in _judge_again(view, again).items()
            }


def _timed(view: View, result: Result) -> list[Case]:
    """The page's own cases behind a result that measure time and can run on this machine."""
    runs_alone, why_not = view.experiment.runs_alone, view.plan.project.why_unavailable
    own = [c for c in result.cases if c.experiment == view.name and runs_alone(c.params)]
    return [case for case in own if why_not(case) is None]


def _judge_again(view: View, again: Store) -> dict[str, Result]:
    """The results of the page's claims on times, from records of `again` where it has good ones.

    Raises:
        MadlError: a claim has no result, for another reason than a busy machine.
    """
    row = view.evidence
    evidence = replace(row, source=first_good(again.get, row.source))
    results = View(name=view.name, evidence=evidence).results
    timed = {name: results[name] for name, first in view.measured.items() if _timed(view, first)}
    for name, result in timed.items():
        if result.contrast is None and result.why not in BLOCKED.values():
            raise MadlError(f"{view.name}.{name} ran again and has no result: {result.why}")
    return timed


def counts(plan: RunPlan, runs: Sequence[Mapping[str, Result]]) -> list[dict[str, Any]]:
    """A row for each repeated claim: how often it had each outcome, and each run's effect."""
    claims: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for run in runs for name in run):
        results = [run[name] for run in runs if name in run]
        stem, _, claim = name.partition(".")
        row = {"claim": name, "hypothesis": plan.project.load(stem).claims[claim].hypothesis}
        busy, compared = benchmarks.OUTCOMES[-1], [r.comparison for r in results if r.contrast]
        row |= Counter(result.decided if result.contrast else busy for result in results)
        effects = [float(f"{c.unit.shown(c.effect):.4g}") for c in compared]
        claims.append(row | {"effects": effects})
    return claims


def changed(row: Mapping[str, Any]) -> bool:
    """Whether a claim, given as its row of `counts`, had more than one outcome."""
    return sum(name in row for name in benchmarks.OUTCOMES) > 1


def publish(plan: RunPlan, rows: Sequence[Mapping[str, Any]], times: int) -> Path:
    """Write rows of `counts` to `docs/data/benchmarks/repeats.json`, for the page of the machine.

    Earlier rows of other pages are kept if they are of this machine, profile and number of runs,
    and of the page's code of today.
    """
    folder, machine = plan.project.docs / "data" / "benchmarks", device.host_label()
    how = {"runs": times, "profile": plan.profile.name}
    code = {stem: plan.project.code(stem) for stem in dict.fromkeys(map(_stem, rows))}
    with contextlib.suppress(Pending, MadlError):
        before = benchmarks.read("repeats", folder)
        if before["run"]["machine"] == machine and how.items() <= before.items():
            others = {s: was for s, was in before["code"].items() if s not in code}
            others = {s: was for s, was in others.items() if plan.project.code(s) == was}
            rows = [*(row for row in before["rows"] if _stem(row) in others), *rows]
            code = others | code
    return benchmarks.publish(
        "repeats",
        rows,
        machine=machine,
        peers=("torch",),
        contention=None,  # of all runs together; a row says how many ran beside other work
        folder=folder,
        **how,
        code=code,
    )


def _stem(row: Mapping[str, Any]) -> str:
    """The experiment's name, from a row's "stem.claim"."""
    return row["claim"].partition(".")[0]
