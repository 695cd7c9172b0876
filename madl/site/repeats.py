"""The same timings again and again: how many verdicts would another run have given otherwise?

What does not measure time is deterministic and is taken from the store; every case that runs alone
is run anew in a store of its own, which is deleted afterwards. So nothing of the logbook changes.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from madl.errors import MadlError
from madl.logbook import benchmarks
from madl.logbook.records import Store
from madl.machine import device
from madl.running import runner
from madl.running.plans import Options, StoredPlan
from madl.site.views import View

Verdicts = dict[str, str]  # "lab4_compile.resnet_pays" → "supported"


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
        raise MadlError(f"{name} waits for results of what it needs; run it once: cli.py run")
    runs_alone = plan.project.load(name).runs_alone
    return any(runs_alone(case.params) for case in plan.cases(name))


def repeat(plan: StoredPlan, store: Store, stems: Sequence[str], times: int) -> Iterator[Verdicts]:
    """The verdict of every claim of these pages, once for each time that they were run."""
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=store.root, prefix=".repeat-") as folder:
            again = Store(Path(folder))
            (again.root / "artifacts").symlink_to(store.root / "artifacts")
            for name in plan.project.with_needs(stems):
                _take_over(plan, again, name, but_timed=name in stems)
            fresh = replace(plan, store=again)
            for progress in runner.run(fresh, again, stems, Options()):
                if progress.record.status == "failed":
                    raise MadlError(f"a case of {progress.label} failed: {progress.record.error}")
            views = (View(name=name, plan=fresh, published=False) for name in stems)
            yield {
                f"{view.name}.{finding.name}": finding.verdict
                for view in views
                for finding in view.findings.values()
            }


def _take_over(plan: StoredPlan, again: Store, name: str, *, but_timed: bool) -> None:
    """What is not to be run again, as it is stored."""
    runs_alone = plan.project.load(name).runs_alone
    for record in plan.finished(name):
        if not (but_timed and runs_alone(record.case.params)):
            again.put(record)


def flips(found: Sequence[Verdicts]) -> dict[str, Counter[str]]:
    """The claims that did not get the same verdict every time, with how often they got which."""
    counts = {name: Counter(one[name] for one in found) for name in found[0]}
    return {name: count for name, count in counts.items() if len(count) > 1}


def publish(found: Sequence[Verdicts], folder: Path) -> Path:
    """Keep with the project what came out, for the machine's page."""
    turned = [{"claim": name, **counts} for name, counts in flips(found).items()]
    counted = {"runs": len(found), "verdicts": len(found[0])}
    machine, peers = device.host_label(), ("torch",)
    return benchmarks.publish(
        "repeats", turned, machine=machine, peers=peers, contention=None, folder=folder, **counted
    )
