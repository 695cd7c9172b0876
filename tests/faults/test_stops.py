"""Stops: whatever ends a run, nothing that it has started outlives it, and nothing done is lost."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from madl.logbook import records
from tests.conftest import wait_for
from tests.faults.conftest import DRAWS, GRACE_S, Nest

if not Path("/proc").is_dir():
    pytest.skip("who is alive is read from /proc", allow_module_level=True)

pytestmark = pytest.mark.faults
STOPS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "hangup": signal.SIGHUP,
    "ctrl-c": signal.SIGINT,
}
LAYOUTS = {"inline": ("--jobs", "1"), "two": ("--jobs", "2")}


def assert_all_ends_with(nest: Nest, run: subprocess.Popen[str]) -> str:
    """What the run has said, once it and everything that it had started have ended."""
    _, said = run.communicate(timeout=30)
    end = time.monotonic() + GRACE_S
    while nest.left() and time.monotonic() < end:
        time.sleep(0.02)
    assert nest.left() == {}
    return said


@pytest.mark.parametrize(
    ("way", "stop"), [("fresh", "kill"), ("pool", "ctrl-c"), ("shell", "term"), ("fresh", "hangup")]
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


@pytest.mark.parametrize("way", ["fresh", "shell"])
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
    os.kill(rng.choice(others or [run.pid]), signal.SIGKILL)
    time.sleep(0.3)
    run.kill()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stops_at_random_moments_lose_nothing_and_leave_nothing(nest, layout):
    """8 stops of each layout, each of which finds the records of those before it untouched."""
    rng = random.Random(layout)
    before: dict[Path, bytes] = {}
    for _ in range(8):
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
        said = assert_all_ends_with(nest, run)
        if "cli.py" in said:  # and not Python, which was just starting
            assert "Traceback" not in said, (how, said)
        after = nest.records()
        assert {path: after[path] for path in before} == before
        for path, text in after.items():
            assert records.decode(text.decode(), str(path)).case.key == path.stem
        before = {p: t for p, t in after.items() if json.loads(t)["status"] == "ok"}
    assert before, "none of the runs has finished a case"
    run = nest.run("--jobs", "2", seconds=0.0)
    assert_all_ends_with(nest, run)
    assert run.returncode == 0
    assert len(nest.records()) == 4 * DRAWS
    assert nest.temporaries() == []


@pytest.mark.parametrize("way", ["fresh", "shell"])
def test_what_a_dask_worker_has_started_ends_with_it(nest, way):
    from tests.test_executors import Cluster

    dask = Cluster(nest.root, **nest.environment(way, 60))
    worker = dask.add_worker("--no-nanny")
    try:
        run = nest.run("--scheduler", dask.address, ways=way)
        nest.wait_until_inside(run)
        worker.kill()
        worker.wait()
        known = (" scheduler ", "lifeline.py")  # and the run, with its guard

        def others() -> list[str]:
            left = [what for pid, what in nest.left().items() if pid != run.pid]
            return [what for what in left if not any(one in what for one in known)]

        wait_for(lambda: not others())
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=30)
        assert "Traceback" not in said
    finally:
        dask.end()


def test_a_guard_that_is_killed_leaves_what_asks_the_kernel(nest):
    """Workers and fresh processes end with their parent all the same."""
    run = nest.run(*LAYOUTS["two"], ways="plain fresh")
    nest.wait_until_inside(run, cases=2)
    guards = [pid for pid, what in nest.left().items() if "lifeline.py" in what]
    assert guards
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    run.kill()
    assert_all_ends_with(nest, run)
    assert nest.temporaries() != []  # which the next run takes away
    again = nest.run(ways="plain", seconds=0)
    assert_all_ends_with(nest, again)
    assert again.returncode == 0
    assert nest.temporaries() == []
