"""Sharing the work: a Dask cluster of real processes."""

import json
import os
import signal
import subprocess
from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from madl.errors import MadlError
from madl.logbook.records import Case
from madl.running import executors
from tests.conftest import ROOT, Processes, own, wait_for

pytest.importorskip("distributed", reason="Dask is not installed (extra `cluster`)")

from distributed.comm import CommClosedError

from tests.test_runner import cli as cli
from tests.test_runner import executed, stored


class Cluster(Processes):
    """A Dask scheduler and workers as a user starts them, each a process of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        super().__init__()
        self.file = folder / "scheduler.json"
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self.how = {**quiet, "env": environment, "cwd": folder}
        self.scheduler = self._dask("scheduler", "--port", "0")
        wait_for(lambda: self.file.exists() and self.file.read_text().endswith("}"))
        self.address = json.loads(self.file.read_text())["address"]

    def _dask(self, what: str, *arguments: str) -> subprocess.Popen:
        here = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", self.file)
        return self.start("-m", "dask", what, *here, *arguments, **self.how)

    def add_worker(self, *arguments: str) -> subprocess.Popen:
        return self._dask("worker", "--nthreads", "1", *arguments)


@pytest.fixture
def cluster(plan, tmp_path, no_torch):
    """Depends on the toy, whose environment the workers get."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder, PYTHONPATH=f"{no_torch}{os.pathsep}{ROOT}")
    yield made
    made.end()


SLOW = """    pid = log.with_suffix(f".{params['x']}.pid")
    first = not pid.exists()
    pid.write_text(str(os.getpid()))
    if params['x'] == 2 and first:
        time.sleep(60)
"""


@pytest.fixture
def slow_once(toy):
    """Case 2 takes a minute the first time it is tried and writes down who runs it."""
    page = toy.experiments / "toy" / "page.py"
    page.write_text(page.read_text().replace("    if params", f"{SLOW}    if params", 1))


def test_a_worker_killed_in_the_middle_of_a_case_loses_only_that_case(
    slow_once, plan, cluster, cli, tmp_path
):
    cluster.add_worker("--nworkers", "2")
    run = cli("run", "--scheduler", str(cluster.file))
    wait_for(lambda: 2 in executed(tmp_path) and len(stored(plan)) == 3)
    before = {path: path.stat().st_mtime_ns for path in stored(plan)}
    os.kill(int((tmp_path / "log.2.pid").read_text()), signal.SIGKILL)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 0, stderr
    assert {x: executed(tmp_path).count(x) for x in range(4)} == {0: 1, 1: 1, 2: 2, 3: 1}
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in before.items())
    found = [plan.project.store.get(case) for case in own(plan).cases("toy")]
    assert [one.values["square"] for one in found] == [0, 1, 4, 9]
    assert {one.run.threads for one in found} == {1}


def test_what_is_finished_when_the_workers_die_between_two_cases_is_kept(monkeypatch):
    class Pool:
        def __init__(self, **_):
            self.num_submitted = 0

        def submit(self, execute, case):
            self.num_submitted += 1
            if self.num_submitted > 2:
                raise BrokenProcessPool
            future = Future()
            future.set_result(execute(case))
            return future

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(executors, "ProcessPoolExecutor", Pool)
    results = executors.processes(deque("abcd"), str.upper, jobs=1, start=lambda: None)
    assert sorted([next(results), next(results)]) == ["A", "B"]
    with pytest.raises(MadlError, match="a worker process died"):
        next(results)


class Gone:
    """A client of a scheduler that has gone: all that is asked of it raises."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def __getattr__(self, name: str):
        raise self.problem


@pytest.mark.parametrize("problem", [CommClosedError(), RuntimeError("Timeout is expiring")])
def test_whatever_a_client_raises_once_its_scheduler_is_gone_is_one_clear_line(
    problem, monkeypatch
):
    monkeypatch.setattr(executors, "_connect", lambda scheduler: Gone(problem))
    records = executors.cluster(
        deque([Case(experiment="toy", params={"x": 0})]),
        None,
        scheduler="tcp://gone",
        alone=False,
        lost=None,
    )
    with pytest.raises(MadlError, match="is no longer there; finished cases are kept"):
        next(records)


@pytest.mark.faults
def test_a_scheduler_that_dies_is_one_clear_line(slow_once, plan, cluster, cli, tmp_path):
    cluster.add_worker()
    run = cli("run", "--scheduler", cluster.address)
    wait_for(lambda: 2 in executed(tmp_path))
    cluster.scheduler.kill()
    _, stderr = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "is no longer there; finished cases are kept" in stderr
    assert "Traceback" not in stderr
    assert len(stored(plan)) == 2
