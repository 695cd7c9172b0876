"""What running cases side by side brings, and what it costs: cases a minute against workers.

    python cli.py bench scaling [--case-s 10] [--cases 4] [--workers 1 2] [--publish]

Both tables run the product's own runner on a throw-away logbook of equal cases:

* Throughput: each case is the same number of float32 matrix products on one thread. On as many
  workers as cores the limit is linear, less what the cores share: clock and memory bandwidth.
* Overhead: cases that only wait, one at a time, so that all beyond their length is ours. What
  comes once (starting a process, importing torch) is shown apart from what each case costs.

Predicted: 20 ms a case inline (the provenance asks git twice, the record is synced to disk), some
10 ms more for the way to a worker and back; 3 s once for a worker's import of torch. Target: a case
of 10 s or more takes at most 5 % longer than inline, all counted.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks._command import call, seconds, whole
from madl.logbook import benchmarks
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store
from madl.machine import device
from madl.machine.contention import ContentionMeter
from madl.running import plans, runner
from madl.running.project import Project

ROOT = Path(__file__).parents[1]
SIDE = 512  # of the matrices

EXPERIMENT = f'''
"""Equal cases that compute, or only wait."""

import time

from madl.logbook.experiment import Experiment

page = Experiment(title="Equal cases")


@page.cases
def cases(plan):
    return [{{"case": i, **plan.workload}} for i in range(plan.workload["cases"])]


@page.run
def run(params, ctx):
    import torch

    if params["products"] is None:
        time.sleep(params["case_s"])
        return {{}}
    a = torch.randn({SIDE}, {SIDE})
    for _ in range(params["products"]):
        a = torch.nn.functional.normalize(a @ a)
    return {{"sum": float(a.sum())}}
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case-s", type=seconds, default=10.0, help="length of a case")
    parser.add_argument("--cases", type=whole, default=4, help="cases of each run")
    parser.add_argument("--workers", type=whole, nargs="+", default=[1, device.num_cores()])
    parser.add_argument("--publish", action="store_true", help="write docs/data/benchmarks/")
    arguments = parser.parse_args()
    machine = f"{device.cpu_name()}, {device.num_cores()} cores"
    print(f"{machine}; {arguments.cases} cases of about {arguments.case_s:g} s")
    busy_before = outside_load()
    with tempfile.TemporaryDirectory() as work:
        project = make_project(Path(work))
        rows = overhead(project, arguments.case_s, arguments.cases)
        rows += throughput(project, arguments.case_s, arguments.cases, arguments.workers)
    for row in rows:
        print(f"{row['run']:<36}{row['result']:<28}{row['compared']}")
    print(f"share of the machine that others used before: {busy_before}")
    if arguments.publish:
        peers = ("torch", "distributed")
        path = benchmarks.publish(
            "scaling", rows, machine=machine, peers=peers, contention=busy_before
        )
        print(f"wrote {path}")


def outside_load() -> float | None:
    """Other processes' share of the machine, while this one only waits."""
    meter = ContentionMeter.start()
    time.sleep(2)
    return meter.share()


def make_project(work: Path) -> Project:
    """A logbook of that one experiment."""
    for folder in ("experiments", "templates", "docs"):
        (work / folder).mkdir()
    (work / "experiments" / "equal.py").write_text(EXPERIMENT)
    (work / "experiments" / "questions.toml").write_text("")
    return Project(work)


def ends_s(project: Project, workload: Mapping[str, Any], **how: Any) -> list[float]:
    """When each case had been stored, from the start of the run on."""
    with tempfile.TemporaryDirectory() as state:
        store = Store(Path(state))
        plan = plans.StoredPlan(project, store, PROFILES["quick"], workload)
        started = time.perf_counter()
        ends: list[float] = []
        for event in runner.run(plan, store, [], plans.Options(**how)):
            assert event.record.status == "ok", event.record.error
            ends.append(time.perf_counter() - started)
    return ends


@contextmanager
def local_cluster(workers: int) -> Generator[str]:
    """The address of a scheduler with that many workers on this machine, each a process."""
    from distributed import LocalCluster

    os.environ["PYTHONPATH"] = str(ROOT)
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as made:
        yield made.scheduler_address


def overhead(project: Project, case_s: float, cases: int) -> list[dict[str, str]]:
    """Cases that only wait, one at a time: inline, and on one worker."""
    waiting = {"cases": cases, "case_s": case_s, "products": None}
    found = {"inline": ends_s(project, waiting)}
    with local_cluster(1) as address:
        found["Dask, 1 worker"] = ends_s(project, waiting, scheduler=address)
    base_s = found["inline"][-1]
    rows: list[dict[str, str]] = []
    for name, ends in found.items():
        each_ms = 1e3 * ((ends[-1] - ends[0]) / max(len(ends) - 1, 1) - case_s)
        once_s = ends[0] - case_s - each_ms / 1e3
        rows.append(
            {
                "run": f"waiting cases, {name}",
                "result": f"{each_ms:.0f} ms a case, {once_s:.1f} s once",
                "compared": f"{ends[-1] / base_s - 1:+.1%} in all",
            }
        )
    return rows


def throughput(
    project: Project, case_s: float, cases: int, workers: list[int]
) -> list[dict[str, str]]:
    """Equal work on more and more workers, one thread each."""
    computing = {"cases": cases, "case_s": case_s, "products": products_for(case_s)}
    found: dict[str, list[float]] = {}
    for count in sorted({1, *workers}):
        with local_cluster(count) as address:
            found[f"Dask, {count} workers"] = ends_s(project, computing, scheduler=address)
        if count > 1:
            found[f"processes, {count} jobs"] = ends_s(project, computing, jobs=count)
    base_s = next(iter(found.values()))[-1]
    return [
        {
            "run": f"computing cases, {name}",
            "result": f"{60 * cases / ends[-1]:.1f} cases a minute",
            "compared": f"{base_s / ends[-1]:.2f} × one worker",
        }
        for name, ends in found.items()
    ]


def products_for(case_s: float) -> int:
    """How many products take about that long on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a = torch.randn(SIDE, SIDE)
    torch.nn.functional.normalize(a @ a)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < 1:
        a = torch.nn.functional.normalize(a @ a)
        count += 1
    torch.set_num_threads(threads)
    return max(round(count * case_s), 1)


if __name__ == "__main__":
    call(main)
