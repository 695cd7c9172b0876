"""What replicates: every primary claim in every whole run, and in the same timings run again."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.claims import Result
from madl.logbook.records import Row, Store
from madl.machine import device, sources
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.site import prose
from madl.site.views import Page, View
from madl.training import workloads

DECIDED = ("supported", "refuted")
AGREEMENT = ("reversed", "decided in some", "alike")  # of the runs of a claim, the worst first


def rows(pages: Iterable[Page]) -> list[Row]:
    """Every primary claim that more than one run has measured, a column a run; reversals first."""
    made: list[dict[str, Any]] = []
    for page in pages:
        runs = {run_name(view): measured(view) for view in (page.view, *page.others)}
        for name, claim in page.view.experiment.claims.items():
            having = {run: results[name] for run, results in runs.items() if name in results}
            if len(having) > 1:
                row = {
                    "question": page.questions[0].id if page.questions else page.name,
                    "hypothesis": claim.hypothesis.rstrip("."),
                    "agreement": agreement(one.decided for one in having.values()),
                }
                shown = {run: prose.with_interval(one) for run, one in having.items()}
                made.append(row | {run: f"{having[run].decided}, {shown[run]}" for run in having})
    made.sort(key=lambda row: AGREEMENT.index(row["agreement"]))
    columns = dict.fromkeys(name for row in made for name in row)
    return [{name: row.get(name, "") for name in columns} for row in made]


def summary(page: Page) -> str:
    """How many of a page's primary claims came out alike in every run, in a few words."""
    counts = Counter(row["agreement"] for row in rows([page]))
    return "; ".join(f"{counts[one]} {one}" for one in AGREEMENT if counts[one]) or "no other run"


def agreement(verdicts: Iterable[str]) -> str:
    """Of the runs of a claim, one of `AGREEMENT`."""
    found = set(verdicts)
    if found.issuperset(DECIDED):
        return "reversed"
    return "alike" if len(found) == 1 else "decided in some"


def run_name(view: View) -> str:
    """A run by its data and machine."""
    default = workloads.resolve(workloads.DEFAULT).params()
    return ", ".join([*workloads.differences(view.plan.workload, default), view.machine])


def measured(view: View) -> dict[str, Result]:
    """The primary claims that this run has measured; what is borrowed is another's."""
    borrowed = {record.case.key for record in view.borrowed}
    return {
        name: made
        for name, made in view.results.items()
        if made.primary and made.contrast is not None
        if not any(case.key in borrowed for case in made.cases)
    }


# ---- the same timings again and again -----------------------------------------------------------


def repeat(
    plan: StoredPlan, store: Store, stems: Sequence[str], times: int
) -> Iterator[dict[str, Result]]:
    """What came out of every primary claim on times ("lab4_compile.faster"), once for each run.

    Every case that runs alone is run anew, in a store that is deleted afterwards; what does not
    measure time is taken from the store.

    Raises:
        MadlError: no case measures time, what one needs has no results yet, or a case fails.
    """
    stems = [name for name in stems or plan.project.names() if _measures_time(plan, name)]
    if not stems:
        raise MadlError("nothing to repeat: none of these experiments measures time")
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
            again = Store(Path(folder))
            known = store.root / "artifacts"
            known.mkdir(parents=True, exist_ok=True)
            (again.root / "artifacts").symlink_to(known)
            for name in plan.project.with_needs(stems):
                runs_alone = plan.project.load(name).runs_alone
                for record in plan.finished(name):
                    if name not in stems or not runs_alone(record.case.params):
                        again.put(record)
            fresh = replace(plan, store=again)
            for progress in runner.run(fresh, again, stems, Options()):
                if progress.record.status == "failed":
                    name = progress.record.case.experiment
                    raise MadlError(f"a case of {name} failed: {progress.record.error}")
            views = [View(name=name, plan=fresh, published=False) for name in stems]
            yield {
                f"{view.name}.{name}": made
                for view in views
                for name, made in measured(view).items()
                if _is_timed(view, made)
            }


def _is_timed(view: View, made: Result) -> bool:
    """Whether it rests on cases that measure time."""
    runs_alone = view.experiment.runs_alone
    return any(c.experiment == view.name and runs_alone(c.params) for c in made.cases)


def _measures_time(plan: StoredPlan, name: str) -> bool:
    if not plan.is_ready(name):
        chosen = f"--profile {plan.profile.name}{workloads.arguments(plan.workload)}"
        raise MadlError(
            f"{name} waits for what it needs; run `python cli.py run {name} {chosen}` once"
        )
    runs_alone = plan.project.load(name).runs_alone
    return any(runs_alone(case.params) for case in plan.cases(name))


def counts(plan: StoredPlan, found: Sequence[Mapping[str, Result]]) -> list[dict[str, Any]]:
    """A row a claim: how often each outcome came out, and the effect of each run."""
    made: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for one in found for name in one):
        runs = [one[name] for one in found if name in one]
        stem, _, claim = name.partition(".")
        row = {"claim": name, "hypothesis": plan.project.load(stem).claims[claim].hypothesis}
        compared = [one.comparison for one in runs]
        busy = benchmarks.OUTCOMES[-1]
        row |= Counter(busy if c.blocked else one.decided for c, one in zip(compared, runs))
        effects = [float(f"{c.unit.shown(c.effect):.4g}") for c in compared]
        made.append(row | {"effects": effects})
    return made


def changed(row: Mapping[str, Any]) -> bool:
    """Whether a claim did not come out the same every time."""
    return sum(name in row for name in benchmarks.OUTCOMES) > 1


def publish(plan: StoredPlan, rows: Sequence[Mapping[str, Any]], times: int) -> Path:
    """Keep with the project what came out, for the page of the machine."""
    stems = dict.fromkeys(row["claim"].partition(".")[0] for row in rows)
    return benchmarks.publish(
        "repeats",
        rows,
        machine=device.host_label(),
        peers=("torch",),
        contention=None,  # of all runs together; a row says how many ran beside other work
        folder=plan.project.docs / "data" / "benchmarks",
        runs=times,
        profile=plan.profile.name,
        code={stem: sources.digest(plan.project.root, stem) for stem in stems},
    )
