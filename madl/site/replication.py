"""What replicates: every primary claim in every whole run, and in the same timings run again."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run makes of a claim."""

    verdict: str
    effect: str = ""  # with its interval, as pages print it
    is_blocked: bool = False  # others used the machine, so that nothing was tested
    size: float | None = None  # of the effect, in the reader's unit
    is_timed: bool = False  # it rests on cases that measure time

    def __str__(self) -> str:
        return f"{self.verdict}, {self.effect}" if self.effect else self.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """A claim with its outcome in each run that measured it, by the run's name."""

    page: Page
    name: str
    hypothesis: str
    runs: Mapping[str, Outcome]

    @property
    def agreement(self) -> str:
        """One of `AGREEMENT`."""
        verdicts = {outcome.verdict for outcome in self.runs.values()}
        if verdicts.issuperset(DECIDED):
            return "reversed"
        return "alike" if len(verdicts) == 1 else "decided in some"

    def row(self) -> Row:
        return {
            "": self.page.questions[0].id if self.page.questions else self.page.name,
            "hypothesis": self.hypothesis.rstrip("."),
            "agreement": self.agreement,
            **{run: str(outcome) for run, outcome in self.runs.items()},
        }


def replicated(pages: Iterable[Page]) -> list[Replicated]:
    """Every primary claim that more than one run has measured, reversals first."""
    found: list[Replicated] = []
    for page in pages:
        runs = {run_name(view): outcomes(view) for view in (page.view, *page.others)}
        for name, claim in page.view.experiment.claims.items():
            having = {run: made[name] for run, made in runs.items() if name in made}
            if len(having) > 1:
                hypothesis = claim.hypothesis
                found.append(Replicated(page=page, name=name, hypothesis=hypothesis, runs=having))
    return sorted(found, key=lambda one: AGREEMENT.index(one.agreement))


def rows(pages: Iterable[Page]) -> list[Row]:
    """The same as one table, a column a run."""
    made = [one.row() for one in replicated(pages)]
    columns = dict.fromkeys(name for row in made for name in row)
    return [{name: row.get(name, "") for name in columns} for row in made]


def run_name(view: View) -> str:
    """A run by its data and machine."""
    default = workloads.resolve(workloads.DEFAULT).params()
    return ", ".join([*workloads.differences(view.plan.workload, default), view.machine])


def outcomes(view: View) -> dict[str, Outcome]:
    """What came out of each primary claim that this run measured; what is borrowed is another's."""
    runs_alone = view.experiment.runs_alone
    borrowed = {record.case.key for record in view.borrowed}

    def is_timed(made: Result) -> bool:
        return any(c.experiment == view.name and runs_alone(c.params) for c in made.cases)

    return {
        name: Outcome(
            verdict=made.decided,
            effect=prose.with_interval(made),
            is_blocked=bool(made.comparison.blocked),
            size=made.comparison.unit.shown(made.comparison.effect),
            is_timed=is_timed(made),
        )
        for name, made in view.results.items()
        if made.primary and made.contrast is not None
        if not any(case.key in borrowed for case in made.cases)
    }


# ---- the same timings again and again -----------------------------------------------------------


def repeat(
    plan: StoredPlan, store: Store, stems: Sequence[str], times: int
) -> Iterator[dict[str, Outcome]]:
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
            made = {name: View(name=name, plan=fresh, published=False) for name in stems}
            yield {
                f"{stem}.{name}": outcome
                for stem, view in made.items()
                for name, outcome in outcomes(view).items()
                if outcome.is_timed
            }


def _measures_time(plan: StoredPlan, name: str) -> bool:
    if not plan.is_ready(name):
        chosen = f"--profile {plan.profile.name}{workloads.arguments(plan.workload)}"
        raise MadlError(
            f"{name} waits for what it needs; run `python cli.py run {name} {chosen}` once"
        )
    runs_alone = plan.project.load(name).runs_alone
    return any(runs_alone(case.params) for case in plan.cases(name))


def counts(plan: StoredPlan, found: Sequence[Mapping[str, Outcome]]) -> list[dict[str, Any]]:
    """A row a claim: how often each outcome came out, and the effect of each run."""
    made: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for one in found for name in one):
        runs = [one[name] for one in found if name in one]
        stem, _, claim = name.partition(".")
        row = {"claim": name, "hypothesis": plan.project.load(stem).claims[claim].hypothesis}
        row |= Counter(benchmarks.OUTCOMES[-1] if r.is_blocked else r.verdict for r in runs)
        made.append(row | {"effects": [float(f"{one.size:.4g}") for one in runs]})
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
