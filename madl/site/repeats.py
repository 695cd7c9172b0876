"""The same timings again and again: how many verdicts would another run have given otherwise?

What does not measure time is deterministic and is taken from the store; every case that runs alone
is run anew in a store of its own, which is deleted afterwards. So nothing of the logbook changes.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.claims import Finding
from madl.logbook.records import Store
from madl.machine import device, sources
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.site.views import View
from madl.training import workloads

Findings = dict[str, Finding]  # of one run: "lab4_compile.resnet_faster" → what came out


def timed_stems(plan: StoredPlan, stems: Sequence[str]) -> list[str]:
    """Those of the experiments that have cases which measure time.

    Raises:
        MadlError: none has, or what one of them needs has no results yet.
    """
    names = [name for name in stems or plan.project.names() if _timed(plan, name)]
    if not names:
        raise MadlError("nothing to repeat: none of these experiments measures time")
    return names


def _timed(plan: StoredPlan, name: str) -> bool:
    if not plan.is_ready(name):
        chosen = f"--profile {plan.profile.name}{workloads.arguments(plan.workload)}"
        raise MadlError(
            f"{name} waits for what it needs; run `python cli.py run {name} {chosen}` once"
        )
    runs_alone = plan.project.load(name).runs_alone
    return any(runs_alone(case.params) for case in plan.cases(name))


def repeat(plan: StoredPlan, store: Store, stems: Sequence[str], times: int) -> Iterator[Findings]:
    """What every claim on times of these pages found, once for each time that they were run."""
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
            again = Store(Path(folder))
            known = store.root / "artifacts"
            known.mkdir(parents=True, exist_ok=True)
            (again.root / "artifacts").symlink_to(known)
            for name in plan.project.with_needs(stems):
                _take_over(plan, again, name, but_timed=name in stems)
            fresh = replace(plan, store=again)
            for progress in runner.run(fresh, again, stems, Options()):
                if progress.record.status == "failed":
                    name = progress.record.case.experiment
                    raise MadlError(f"a case of {name} failed: {progress.record.error}")
            views = (View(name=name, plan=fresh, published=False) for name in stems)
            yield {
                f"{view.name}.{made.name}": made
                for view in views
                for made in view.findings.values()
                if _rests_on_times(view, made)
            }


def _rests_on_times(view: View, made: Finding) -> bool:
    runs_alone = view.experiment.runs_alone
    return any(c.experiment == view.name and runs_alone(c.params) for c in made.cases)


def _take_over(plan: StoredPlan, again: Store, name: str, *, but_timed: bool) -> None:
    """What is not to be run again, as it is stored."""
    runs_alone = plan.project.load(name).runs_alone
    for record in plan.finished(name):
        if not (but_timed and runs_alone(record.case.params)):
            again.put(record)


def counts(found: Sequence[Findings]) -> list[dict[str, Any]]:
    """A row a claim: how often each outcome came out, of what, and the effect of each run."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for one in found for name in one):
        runs = [one[name] for one in found if name in one]
        row: dict[str, Any] = {"claim": name, "hypothesis": runs[0].hypothesis}
        row |= Counter(outcome(made) for made in runs)
        known = [made.evidence for made in runs if made.evidence]
        row["of"] = list(dict.fromkeys(one.part for one in known))
        row["effects"] = [float(f"{one.unit.shown(one.effect):.4g}") for one in known]
        rows.append(row)
    return rows


def outcome(made: Finding) -> str:
    """A verdict; apart from it, that nothing was decided because others used the machine."""
    is_blocked = made.evidence is not None and made.evidence.is_blocked
    return benchmarks.OUTCOMES[-1] if is_blocked else made.verdict


def changed(row: Mapping[str, Any]) -> bool:
    """Whether a claim did not come out the same every time."""
    return sum(name in row for name in benchmarks.OUTCOMES) > 1


def publish(found: Sequence[Findings], plan: StoredPlan) -> Path:
    """Keep with the project what came out, for the pages of what was timed and of the machine."""
    rows = counts(found)
    stems = dict.fromkeys(row["claim"].partition(".")[0] for row in rows)
    return benchmarks.publish(
        "repeats",
        rows,
        machine=device.host_label(),
        peers=("torch",),
        contention=None,  # of all runs together; a row says how many ran beside other work
        folder=plan.project.docs / "data" / "benchmarks",
        runs=len(found),
        profile=plan.profile.name,
        code={stem: sources.digest(plan.project.root, stem) for stem in stems},
    )
