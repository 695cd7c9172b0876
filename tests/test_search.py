"""Searches: what is drawn, what survives a kill, what is refused."""

import json
import os
import signal
import subprocess
import time

import optuna
import pytest

from madl.errors import MadlError
from madl.training import search as searching
from madl.training.search import Trial, search
from tests.conftest import ROOT, wait_for

SPACE = {
    "depth": [1, 2, 3],
    "kind": ["linear", "identity"],
    "bias": [True, False],
    "width": [1, 2, 4, 8],
}
FIRST = {name: values[0] for name, values in SPACE.items()}


def objective(point):
    value = 0.1 * point["depth"] + 0.01 * point["width"] + 0.3 * (point["kind"] == "identity")
    return value, {"bits": 8 * point["width"]}


def run(folder, sampler="random", *, seed=3, trials=20, space=SPACE, objective=objective, begin=()):
    return search(folder, space, objective, sampler=sampler, seed=seed, trials=trials, begin=begin)


def points(trials: list[Trial]) -> list[dict]:
    return [trial.point for trial in trials]


@pytest.mark.parametrize("sampler", searching.SAMPLERS)
def test_a_seed_decides_the_trials_and_a_longer_study_begins_with_the_shorter_one(
    tmp_path, sampler
):
    found = run(tmp_path / "a", sampler)
    assert [trial.index for trial in found] == list(range(20))
    for trial in found:
        assert set(trial.point) == set(SPACE)
        assert all(trial.point[name] in values for name, values in SPACE.items())
        assert (trial.value, trial.notes) == objective(trial.point)
    assert points(run(tmp_path / "other", sampler, seed=4)) != points(found)
    assert run(tmp_path / "b", sampler, trials=7) == found[:7]
    assert run(tmp_path / "b", sampler) == found
    assert run(tmp_path / "b", sampler, trials=7) == found[:7]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_study_begins_with_what_it_is_given_and_learns_of_it(tmp_path, sampler):
    first = {"depth": 2, "kind": "identity", "bias": True, "width": 8}
    begin = [first, {**first, "width": 4}]
    found = run(tmp_path / "a", sampler, begin=begin)
    assert points(found[:2]) == begin
    assert len(found) == 20
    run(tmp_path / "b", sampler, trials=1, begin=begin)  # stopped there
    assert run(tmp_path / "b", sampler, begin=begin) == found
    with pytest.raises(MadlError, match="was made with begin"):
        run(tmp_path / "b", sampler)


def test_a_grid_visits_every_point_once_and_beyond_the_limit_is_refused(tmp_path):
    found = run(tmp_path, "grid", trials=100)
    assert len(found) == searching.num_points(SPACE) == 48
    assert len({json.dumps(point) for point in points(found)}) == 48
    space = {f"layer{i}": [2, 4, 8] for i in range(40)}
    with pytest.raises(MadlError, match="12,157,665,459,056,928,801 points, the limit is"):
        run(tmp_path, "grid", space=space)
    assert (
        len(run(tmp_path / "b", "random", space=space, objective=lambda p: (1.0, {}), trials=2))
        == 2
    )


def test_tpe_starts_with_the_random_sampler_s_own_points(tmp_path):
    tpe, drawn = run(tmp_path / "tpe", "tpe"), run(tmp_path / "random", "random")
    startup = searching.STARTUP_TRIALS
    assert points(tpe)[:startup] == points(drawn)[:startup]
    assert points(tpe)[startup:] != points(drawn)[startup:]
    assert [trial.at_random for trial in tpe] == [True] * startup + [False] * (20 - startup)
    assert all(trial.at_random for trial in drawn)
    late, by_chance = (sum(one.value for one in found[startup:]) for found in (tpe, drawn))
    assert late > by_chance  # larger is better


WORKER = """
import sys, time
from pathlib import Path
from tests.test_search import objective, run

folder, sampler, slow = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = folder.parent / "log"

def told(point):
    with log.open("a") as file:
        file.write("one\\n")
    time.sleep(60 if len(log.read_text().split()) == slow else 0.02)
    return objective(point)

run(folder, sampler, objective=told)
"""


@pytest.fixture
def worker(tmp_path, processes):
    """Start a process that searches; `slow` names the evaluation at which it hangs."""

    def start(sampler="random", slow=0) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return processes.start("-c", WORKER, tmp_path / "study", sampler, slow, env=environment)

    return start


def evaluations(tmp_path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().split() if log.exists() else []


def test_a_killed_study_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, worker):
    begun = time.monotonic()
    killed = worker("tpe", slow=14)
    wait_for(lambda: len(evaluations(tmp_path)) == 14)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    started = time.monotonic()
    assert worker("tpe").wait() == 0
    # nobody waits for a dead worker's lock
    assert time.monotonic() - started < 20 + (started - begun)
    assert len(evaluations(tmp_path)) == 21  # thirteen were kept, one was tried again
    assert run(tmp_path / "study", "tpe") == run(tmp_path / "undisturbed", "tpe")


def test_two_workers_of_a_study_evaluate_no_trial_twice(tmp_path, worker):
    both = [worker(), worker()]
    assert [process.wait() for process in both] == [0, 0]
    assert len(evaluations(tmp_path)) == 20
    assert points(run(tmp_path / "study")) == points(run(tmp_path / "one"))


def test_a_failed_trial_is_tried_again_and_what_was_evaluated_is_not(tmp_path, ctx):
    def fails_at_depth_3(point):
        if point["depth"] == 3:
            raise MadlError("too deep")
        return objective(point)

    with pytest.raises(MadlError, match="too deep"):
        run(tmp_path / "a", objective=fails_at_depth_3)
    assert run(tmp_path / "a") == run(tmp_path / "b")
    calls: list[int] = []

    def evaluate():
        calls.append(1)
        return {"value": 0.5}

    for _ in range(3):
        assert searching.memoized(ctx, {"width": 4, "seed": 0}, evaluate) == {"value": 0.5}
    searching.memoized(ctx, {"width": 8, "seed": 0}, evaluate)
    assert len(calls) == 2


@pytest.mark.parametrize("change", ["rubbish", {"index": 3}, {"point": {}}, {"value": "high"}])
def test_a_trial_that_is_none_of_this_study_is_refused_and_kept(tmp_path, change):
    run(tmp_path, trials=5)
    trial = tmp_path / "trial-2.json"
    is_text = isinstance(change, str)
    text = change if is_text else json.dumps(json.loads(trial.read_text()) | change)
    trial.write_text(text)
    with pytest.raises(MadlError, match=r"trial-2\.json is not .*; remove it"):
        run(tmp_path)
    assert trial.read_text() == text


def test_a_study_of_another_search_or_version_is_refused(tmp_path, monkeypatch):
    run(tmp_path, trials=5)
    for how, said in (
        ({"seed": 4}, "made with seed 3, this search has seed 4"),
        ({"space": {**SPACE, "depth": [1, 2]}}, "made with space"),
        ({"sampler": "tpe"}, "made with sampler"),
    ):
        with pytest.raises(MadlError, match=said):
            run(tmp_path, **how)
    monkeypatch.setattr(optuna, "__version__", "6.0.0")
    with pytest.raises(MadlError, match=r"made with optuna 5.* has optuna 6\.0\.0"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        *(
            ({"space": {**SPACE, "heads": values}}, MadlError, "parameter heads has the values")
            for values in ([], [4], [4, 4], [4, 8, 4])
        ),
        ({"space": {}}, MadlError, "no parameters"),
        ({"sampler": "annealing"}, MadlError, "'annealing'; known: random, grid, tpe"),
        ({"sampler": "grid", "begin": [FIRST]}, MadlError, "give it no points to begin with"),
        ({"objective": lambda p: (float("nan"), {})}, ValueError, "must be a finite number"),
        ({"objective": lambda p: (1.0, {"model": object()})}, ValueError, "JSON only"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, how, error, said):
    with pytest.raises(error, match=said):
        run(tmp_path, **how)
