"""Stops: whatever ends a run, nothing that it has started outlives it, and nothing done is lost."""

import signal
import time

import pytest

from tests.faults.conftest import GRACE_S, Nest, wait_for

STOPS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "hangup": signal.SIGHUP,
    "ctrl-c": signal.SIGINT,
}
LAYOUTS = {"inline": ("--executor", "inline"), "one": ("--jobs", "1"), "two": ("--jobs", "2")}


def ends_with_everything(nest: Nest, run) -> float:
    """How long after the run itself the last process that it had started was still there."""
    run.communicate(timeout=GRACE_S + 3)  # what it does itself at its end, on a busy machine
    ended = time.monotonic()
    wait_for(lambda: not nest.left() or time.monotonic() - ended > GRACE_S)
    assert nest.left() == {}
    return time.monotonic() - ended


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("way", ["fresh", "pool", "shell"])
def test_what_a_case_has_started_ends_with_the_run(nest, way, stop):
    run = nest.run(*LAYOUTS["inline"], ways=way)
    wait_for(nest.waiting)
    run.send_signal(STOPS[stop])
    ends_with_everything(nest, run)
    assert nest.temporaries() == []
