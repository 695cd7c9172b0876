"""Stops: whatever ends a run, nothing that it has started outlives it, and nothing done is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from madl.logbook import records
from tests.conftest import wait_for
from tests.faults.conftest import GRACE_S, ROOT, Nest

if not Path("/proc").is_dir():
    pytest.skip("who is alive is read from /proc", allow_module_level=True)

STOPS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "hangup": signal.SIGHUP,
    "ctrl-c": signal.SIGINT,
}
LAYOUTS = {"inline": ("--executor", "inline"), "one": ("--jobs", "1"), "two": ("--jobs", "2")}
SAMPLE = [("fresh", "kill"), ("pool", "ctrl-c"), ("shell", "term")]
EVERY = [(way, stop) for way in ("fresh", "pool", "shell") for stop in STOPS]


def assert_all_ends_with(nest: Nest, run: subprocess.Popen[str]) -> str:
    """What the run has said, once it and everything that it had started have ended."""
    _, said = run.communicate(timeout=30)
    end = time.monotonic() + GRACE_S
    while nest.left() and time.monotonic() < end:
        time.sleep(0.02)
    assert nest.left() == {}
    return said


@pytest.mark.parametrize(
    ("way", "stop"),
    [
        pytest.param(*one, marks=() if one in SAMPLE else pytest.mark.faults, id="-".join(one))
        for one in EVERY
    ],
)
def test_what_a_case_has_started_ends_with_the_run(nest, way, stop):
    run = nest.run(*LAYOUTS["inline"], ways=way)
    nest.wait_until_inside(run)
    run.send_signal(STOPS[stop])
    said = assert_all_ends_with(nest, run)
    assert "Traceback" not in said
    assert nest.temporaries() == []
    if stop == "ctrl-c":
        assert run.returncode == 130
        assert said.endswith("stopped; run the same command again to go on\n")


@pytest.mark.faults
@pytest.mark.parametrize("way", ["plain", "fresh", "pool", "shell"])
def test_what_a_killed_worker_has_started_ends_too(nest, way):
    run = nest.run(*LAYOUTS["two"], ways=way)
    nest.wait_until_inside(run, cases=2)
    workers = [pid for pid, command in nest.left().items() if "spawn_main" in command]
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(next(pid for pid in workers if str(pid) in children), signal.SIGKILL)
    said = assert_all_ends_with(nest, run)
    assert run.returncode == 1
    assert "a worker process died" in said
    assert "Traceback" not in said


@pytest.mark.faults
def test_ctrl_c_twice_is_as_good_as_once(nest):
    run = nest.run(*LAYOUTS["two"], ways="fresh pool")
    nest.wait_until_inside(run, cases=2)
    for _ in range(2):
        run.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert_all_ends_with(nest, run)
    assert run.returncode in (130, -signal.SIGINT)


def stop(nest: Nest, run: subprocess.Popen[str], how: str, rng: random.Random) -> None:
    """Stop a run, or kill one of the processes that it has started."""
    if how != "worker":
        run.send_signal(STOPS[how])
        return
    spared = (
        "resource_tracker",  # Python misses it, loudly, and starts another
        "lifeline.py",  # the guard: without it, what the case had started outlives the kill below
    )
    left = nest.left().items()
    others = [p for p, what in left if p != run.pid and not any(name in what for name in spared)]
    if others:
        os.kill(rng.choice(others), signal.SIGKILL)
    else:
        run.kill()


@pytest.mark.faults
@pytest.mark.parametrize("layout", LAYOUTS)
def test_stops_at_random_moments_lose_nothing_and_leave_nothing(nest, layout):
    """14 stops of each layout, each of which finds the records of those before it untouched."""
    rng = random.Random(layout)
    before: dict[Path, bytes] = {}
    for _ in range(14):
        run = nest.run(*LAYOUTS[layout], seconds=0.05)
        if rng.random() < 0.5:  # while it starts, on a quiet machine; else while it works
            time.sleep(rng.uniform(0.1, 3.0))
        else:
            known = len(before)
            while len(nest.records()) == known and run.poll() is None:
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 0.5))
        how = rng.choice([*STOPS, "worker"])
        if run.poll() is None:
            stop(nest, run, how, rng)
        if how == "worker" and run.poll() is None:  # what a case had started, and the case failed
            time.sleep(0.3)
            run.kill()
        said = assert_all_ends_with(nest, run)
        if "cli.py" in said:  # and not Python, which was just starting
            assert "Traceback" not in said, (how, said)
        after = nest.records()
        assert {path: after[path] for path in before} == before
        for path, text in after.items():
            read = records.decode(text.decode(), str(path))
            assert read.case.key == path.stem
        good = {p: t for p, t in after.items() if json.loads(t)["status"] == "ok"}
        before = good
    assert before, "none of the runs has finished a case"
    run = nest.run("--jobs", "2", seconds=0.0)
    assert_all_ends_with(nest, run)
    assert run.returncode == 0
    assert len(nest.records()) == 120
    assert nest.temporaries() == []


class Dask:
    """A scheduler and workers of the nest, as a user starts them."""

    def __init__(self, nest: Nest, ways: str, seconds: float) -> None:
        pytest.importorskip("distributed", reason="Dask is not installed (extra `cluster`)")
        self.file = nest.root / "scheduler.json"
        self.options = {
            "env": nest.environment(ways, seconds),
            "cwd": nest.root,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self.started: list[subprocess.Popen[bytes]] = []
        there = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(self.file))
        self.start("scheduler", "--port", "0", *there)
        wait_for(lambda: self.file.exists() and self.file.read_text().endswith("}"))
        self.layout = ("--executor", "dask", "--scheduler", str(self.file))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        dask = [sys.executable, "-m", "dask"]
        self.started.append(subprocess.Popen([*dask, *arguments], **self.options))
        return self.started[-1]

    def worker(self) -> subprocess.Popen[bytes]:
        there = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(self.file))
        return self.start("worker", "--nthreads", "1", "--no-nanny", *there)

    def end(self) -> None:
        for process in reversed(self.started):
            process.kill()
            process.wait()


@pytest.mark.faults
@pytest.mark.parametrize("way", ["plain", "fresh", "pool", "shell"])
def test_what_a_dask_worker_has_started_ends_with_it(nest, way):
    dask = Dask(nest, way, 60)
    worker = dask.worker()
    try:
        run = nest.run(*dask.layout, ways=way)
        nest.wait_until_inside(run)
        worker.kill()
        worker.wait()
        time.sleep(GRACE_S)
        known = (" scheduler ", "lifeline.py")  # and the run, with its guard
        left = {pid: what for pid, what in nest.left().items() if pid != run.pid}
        assert [what for what in left.values() if not any(one in what for one in known)] == []
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=30)
        assert "Traceback" not in said
    finally:
        dask.end()


@pytest.mark.faults
def test_stops_at_random_moments_on_a_cluster_lose_nothing(nest):
    """8 stops of runs and of workers, which others replace."""
    rng, ways = random.Random("dask"), "plain fresh"
    dask = Dask(nest, ways, 0.05)
    workers = [dask.worker() for _ in range(2)]
    before: dict[Path, bytes] = {}
    try:
        for place in range(8):
            run = nest.run(*dask.layout, ways=ways, seconds=0.05)
            known = len(nest.records())
            wait_for(lambda: len(nest.records()) > known or run.poll() is not None)  # noqa: B023
            time.sleep(rng.uniform(0.0, 0.5))
            if place % 2:
                workers.pop(0).kill()
                workers.append(dask.worker())
                time.sleep(rng.uniform(0.0, 0.5))
            if run.poll() is None:
                run.send_signal(STOPS[rng.choice([*STOPS])])
            _, said = run.communicate(timeout=30)
            assert "Traceback" not in said, said
            after = nest.records()
            assert {path: after[path] for path in before} == before
            before = {p: t for p, t in after.items() if json.loads(t)["status"] == "ok"}
            for path, text in after.items():
                assert records.decode(text.decode(), str(path)).case.key == path.stem
        assert before
        run = nest.run(*dask.layout, ways=ways, seconds=0.0)
        _, said = run.communicate(timeout=120)
        assert run.returncode == 0, said
        assert len(nest.records()) == 60
    finally:
        dask.end()


@pytest.mark.faults
def test_a_guard_that_is_killed_leaves_what_asks_the_kernel(nest):
    """Workers and fresh processes end with their parent all the same."""
    run = nest.run(*LAYOUTS["two"], ways="plain fresh")
    nest.wait_until_inside(run, cases=2)
    guards = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if b"lifeline.py\0" in read(folder / "cmdline")
        and str(run.pid).encode() in read(folder / "cmdline")
    ]
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    run.kill()
    assert_all_ends_with(nest, run)
    assert len(guards) == 1
    assert nest.temporaries() != []  # which the next run takes away
    again = nest.run(ways="plain", seconds=0)
    assert_all_ends_with(nest, again)
    assert again.returncode == 0
    assert nest.temporaries() == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_guard_imports_nothing_of_ours():
    """It is started for every run, and must not wait for anything."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print([*filter(bool, sys.modules)])"
    path = ROOT / "madl" / "machine" / "lifeline.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, path], capture_output=True, text=True, check=True
    )
    assert "madl" not in done.stdout
    assert "filelock" not in done.stdout
