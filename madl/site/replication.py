"""What replicates: every primary claim in every run of its cases, and in the same timings again."""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.claims import Result
from madl.logbook.experiment import PROFILES
from madl.logbook.numbers import counted_units
from madl.logbook.records import Case, Pending, Row, Source, Store
from madl.logbook.stats import counted
from madl.machine import device
from madl.running import runner
from madl.running.plans import FirstOf, Listed, Options, StoredPlan, transferred
from madl.site import prose
from madl.site.views import BLOCKED, Page, View, pages
from madl.training import workloads

DECIDED = ("supported", "refuted")
# of the runs of a claim, the worst first
AGREEMENT = ("reversed", "decided in some", "decided in none", "alike")


def rows(pages: Iterable[Page]) -> list[Row]:
    """Every primary claim that more than one run has measured, a column a run; reversals first."""
    made: list[dict[str, Any]] = []
    for page in pages:
        runs: dict[str, Mapping[str, Result]] = {}
        for view in (page.view, *page.others):  # of two by one name, the one that the page shows
            runs.setdefault(run_name(view), view.measured)
        for name, claim in page.view.experiment.claims.items():
            having = {run: results[name] for run, results in runs.items() if name in results}
            if len(having) > 1:
                row = {
                    "question": page.questions[0].id if page.questions else page.name,
                    "hypothesis": claim.hypothesis.rstrip("."),
                    "agreement": agreement(one.decided for one in having.values()),
                }
                made.append(row | {run: _told(one) for run, one in having.items()})
    made.sort(key=lambda row: AGREEMENT.index(row["agreement"]))
    columns = dict.fromkeys(name for row in made for name in row)
    return [{name: row.get(name, "") for name in columns} for row in made]


def _told(one: Result) -> str:
    """Its verdict, its effect, and of how many."""
    n = counted_units(one.comparison.units, one.comparison.population)
    return f"{one.decided}, {prose.with_interval(one)}, {n}"


def summary(page: Page) -> str:
    """How many of a page's primary claims came out alike in every run, in a few words."""
    counts = Counter(row["agreement"] for row in rows([page]))
    told = [f"{counts[one]} {one}" for one in AGREEMENT if counts[one]]
    if again := list(page.view.again.values()):
        steady = sum(not changed(row) for row in again)
        runs = sum(again[0].get(name, 0) for name in benchmarks.OUTCOMES)
        told.append(f"{steady} of {len(again)} alike in {counted(runs, 'more run')}")
    return "; ".join(told) or "no other published run"


def agreement(verdicts: Iterable[str]) -> str:
    """Of the runs of a claim, one of `AGREEMENT`."""
    found = set(verdicts)
    if found.issuperset(DECIDED):
        return "reversed"
    if found.isdisjoint(DECIDED):
        return "decided in none"
    return "alike" if len(found) == 1 else "decided in some"


def run_name(view: View) -> str:
    """A run by its data, its machine, and whether it is of the code that there is."""
    default = workloads.resolve(workloads.DEFAULT).params()
    older = ["older code"] * view.is_older
    return ", ".join([*workloads.differences(view.plan.workload, default), view.machine, *older])


# ---- what primary claims read, run again --------------------------------------------------------


def claimed(plan: StoredPlan) -> Listed:
    """Of full's cases those that primary claims read, as cases of this plan's workload.

    Whatever was chosen, was chosen on the default workload: its evidence says which cases they are.

    Raises:
        MadlError: a record, claim or chart that cannot be used or made.
    """
    default = workloads.resolve(workloads.DEFAULT).params()
    read: dict[str, dict[str, Case]] = {}
    for page in pages(replace(plan.whole, workload=default)):
        for case in page.view.claimed:
            there = transferred(case, plan.workload)
            is_of_it = plan.workload == default or there != case
            if is_of_it and case.params.get("seed") in (None, *plan.whole.seeds):
                read.setdefault(case.experiment, {})[there.key] = there
    listed = {name: list(cases.values()) for name, cases in read.items()}
    full = PROFILES["full"]
    return Listed(plan.project, plan.store, full, plan.workload, plan.num_seeds, listed=listed)


def repeat(
    plan: StoredPlan, store: Store, stems: Sequence[str], times: int
) -> Iterator[dict[str, Result]]:
    """What came out of every primary claim on times ("lab4_compile.faster"), once for each run.

    The cases that measure time, of those which these claims read, are run anew, in a store that is
    deleted afterwards; everything else is as in the most complete evidence.

    Raises:
        MadlError: no case of a claim measures time, a case fails, or a claim has no result.
    """
    for stem in stems:
        plan.project.load(stem)
    views = [page.view for page in pages(plan) if not stems or page.name in stems]
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
            work = Listed(plan.project, again, plan.whole.profile, plan.workload, listed=timed)
            for progress in runner.run(work, again, [view.name for view in views], Options()):
                if progress.record.status == "failed":
                    name = progress.record.case.experiment
                    raise MadlError(f"a case of {name} failed: {progress.record.error}")
            yield {
                f"{view.name}.{name}": made
                for view in views
                for name, made in _judged_again(view, again).items()
            }


def _timed(view: View, made: Result) -> list[Case]:
    """Of the cases that it rests on, those of this page that measure time and can run here."""
    runs_alone, why_not = view.experiment.runs_alone, view.plan.project.why_unavailable
    own = [c for c in made.cases if c.experiment == view.name and runs_alone(c.params)]
    return [case for case in own if why_not(case) is None]


def _judged_again(view: View, again: Source) -> dict[str, Result]:
    """Its claims on times, with what was run again in the place of its evidence.

    Raises:
        MadlError: one has no result.
    """
    plan = replace(view.plan, store=FirstOf([again, view.plan.store]), is_fixed=True)
    results = View(name=view.name, plan=plan).results
    found = {name: results[name] for name, made in view.measured.items() if _timed(view, made)}
    for name, made in found.items():
        if made.contrast is None and made.why not in BLOCKED.values():
            raise MadlError(f"{view.name}.{name} ran again and has no result: {made.why}")
    return found


def counts(plan: StoredPlan, found: Sequence[Mapping[str, Result]]) -> list[dict[str, Any]]:
    """A row a claim: how often each outcome came out, and the effect of each run."""
    made: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for one in found for name in one):
        runs = [one[name] for one in found if name in one]
        stem, _, claim = name.partition(".")
        row = {"claim": name, "hypothesis": plan.project.load(stem).claims[claim].hypothesis}
        busy, compared = benchmarks.OUTCOMES[-1], [r.comparison for r in runs if r.contrast]
        row |= Counter(one.decided if one.contrast else busy for one in runs)
        effects = [float(f"{c.unit.shown(c.effect):.4g}") for c in compared]
        made.append(row | {"effects": effects})
    return made


def changed(row: Mapping[str, Any]) -> bool:
    """Whether a claim did not come out the same every time."""
    return sum(name in row for name in benchmarks.OUTCOMES) > 1


def publish(plan: StoredPlan, rows: Sequence[Mapping[str, Any]], times: int) -> Path:
    """Keep with the project what came out, for the page of the machine.

    What as many runs of other pages' code, as it is, gave on this machine stays beside it.
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
    return row["claim"].partition(".")[0]
