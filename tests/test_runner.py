"""Running: what is left, once each, through failures, kills and restarts."""

import logging
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from madl.errors import MadlError
from madl.logbook.records import Store, publish
from madl.running import queues, runner, status
from madl.running.pace import Pace
from madl.running.plans import Options, RunPlan
from madl.running.project import Project
from tests.conftest import ROOT, a_record, own, wait_for, write


def executed(tmp_path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


def run_all(plan, **options) -> list[runner.Progress]:
    return list(runner.run(plan, Store(plan.project.state), [], Options(**options)))


def with_later(plan, *, is_chosen: bool = False) -> None:
    """A page that needs the toy; its one case follows from a result of the toy, if `is_chosen`."""
    later = (plan.project.experiments / "toy" / "page.py").read_text()
    later = later.replace('title="Squares"', 'title="Later", needs=("toy",)')
    if is_chosen:
        chosen = 'return [{"x": plan.records("toy").single(x=2).values["square"], "seed": 0}]'
        later = re.sub(r"return \[.* for x in .*\]", chosen, later)
    write(plan.project.experiments / "later" / "page.py", later)
    write(plan.project.experiments / "later" / "page.md.j2", "")


def test_force_makes_artifacts_and_what_follows_from_the_results_anew(plan, tmp_path):
    toy = plan.project.experiments / "toy" / "page.py"
    with_later(plan, is_chosen=True)
    run_all(plan)
    toy.write_text(
        toy.read_text()
        .replace("lambda path: path.mkdir()", "lambda path: (path / 'new').mkdir(parents=True)")
        .replace("** 2}", "** (2 + (folder / 'new').is_dir())}")
    )
    again = RunPlan(Project(plan.project.root), plan.profile, {})
    run_all(again, force=True)
    assert executed(tmp_path) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 8]
    assert own(again).is_complete("later")


def test_code_that_changes_while_it_runs_ends_the_run_and_stores_nothing_false(plan):
    toy = plan.project.experiments / "toy" / "page.py"
    text = toy.read_text()
    events = runner.run(plan, Store(plan.project.state), [], Options())
    next(events)
    toy.write_text(text.replace("** 2}", "** 3}"))
    with pytest.raises(MadlError, match="code of toy has changed since this run began"):
        next(events)
    assert len(stored(plan)) == 1


@pytest.mark.parametrize("scheduler", [None, "one that loses its workers"])
def test_a_repeat_that_fails_leaves_the_good_record(plan, monkeypatch, scheduler):
    run_all(plan)
    good = [plan.project.store.get(case) for case in own(plan).cases("toy")]

    def all_lost(cases, execute, *, lost, **_):
        while cases:
            case = cases.popleft()
            yield lost(case, "it died") if case.params["x"] == 2 else execute(1, case)

    monkeypatch.setattr(runner.executors, "cluster", all_lost)
    monkeypatch.setenv("TOY_FAIL", "2")
    events = run_all(plan, force=True, scheduler=scheduler)
    assert [event.record.status for event in events] == ["ok", "ok", "failed", "ok"]
    assert events[2].record.error.endswith("; the earlier result is kept")
    assert plan.project.store.get(own(plan).cases("toy")[2]) == good[2]
    assert run_all(plan) == []


def test_what_cannot_run_here_is_skipped_with_the_reason_and_done_once_it_can(
    plan, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOY_MISSING", "no such tool")
    store = Store(plan.project.state)
    run_all(plan)
    assert executed(tmp_path) == [0, 2, 3]
    assert store.get(own(plan).cases("toy")[1]).error == "no such tool"
    assert own(plan).is_complete("toy")
    assert status.counts(own(plan), "toy")["skipped"] == 1
    stored = {path: path.read_bytes() for path in store.root.rglob("*.json")}
    assert run_all(plan) == []
    assert {path: path.read_bytes() for path in store.root.rglob("*.json")} == stored
    monkeypatch.delenv("TOY_MISSING")
    state = status.counts(own(plan), "toy")
    assert (state["skipped"], state["left"], own(plan).is_complete("toy")) == (0, 1, False)
    assert [event.record.case.params["x"] for event in run_all(plan)] == [1]
    assert len(own(plan).records("toy")) == 4


def test_damaged_records_stop_the_run_before_anything_is_executed_and_are_all_named(plan, tmp_path):
    with_later(plan)
    run_all(plan)
    damaged = [
        plan.project.store._path(own(plan).cases(name)[x]) for name, x in (("toy", 1), ("later", 2))
    ]
    for path in damaged:
        path.write_text("{")
    with pytest.raises(MadlError, match="whole record.*; delete them and their cases") as said:
        run_all(plan)
    assert all(str(path) in str(said.value) for path in damaged)
    assert len(executed(tmp_path)) == 8


def test_a_worker_without_a_gpu_skips_what_a_run_on_a_gpu_gives_it(plan, monkeypatch):
    monkeypatch.setenv("TOY_MISSING", "no such tool")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    root = plan.project.root
    where = root, Store(plan.project.state), "cuda", False, runner._code_at_start(root), 1
    record = runner.execute_on_worker(*where, own(plan).cases("toy")[1])
    assert (record.status, record.error, record.run.device) == ("skipped", "no such tool", "cpu")


def test_a_worker_that_found_another_study_is_started_again(plan):
    root = plan.project.root
    runner._code_at_start.cache_clear()
    before = runner._code_at_start(root)
    write(plan.project.experiments / "toy" / "study.py", "WIDTH = 4\n")
    runner._code_at_start.cache_clear()  # as the parent that starts later
    where = root, Store(plan.project.state), "cpu", False, before, 1
    with pytest.raises(MadlError, match="runs other code than this project's"):
        runner.execute_on_worker(*where, own(plan).cases("toy")[0])


def test_a_case_for_a_missing_gpu_is_skipped_whatever_its_page_says(plan, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = plan.project.experiments / "toy" / "page.py"
    path.write_text(path.read_text().replace('"seed": 0}', '"seed": 0, "device": "cuda"}'))
    assert run_all(plan) == []
    assert plan.project.store.get(own(plan).cases("toy")[0]).error == "no CUDA device here"


def test_on_a_cluster_what_the_model_lacks_is_skipped_and_not_sent(plan, monkeypatch):
    monkeypatch.setenv("TOY_MISSING", "no such tool")  # for a worker to say
    lacks = "not for this model: it has no layers"
    unfit = lambda plan, case: lacks if case.params["x"] == 2 else None  # noqa: E731
    monkeypatch.setattr(RunPlan, "why_unfit", unfit)
    options = Options(scheduler="there")
    assert [c.params["x"] for c in queues.cases_left(own(plan), "toy", options)] == [0, 1, 3]
    queues.record_skipped(own(plan), plan.project.store, "toy", options)
    errors = [r and r.error for r in map(plan.project.store.get, own(plan).cases("toy"))]
    assert errors == [None, None, lacks, None]


def test_a_kernel_that_cannot_be_chosen_fails_the_case_and_not_the_run(plan, monkeypatch):
    def chosen(*_):
        raise ValueError("MADL_KERNELS is fast")

    monkeypatch.setattr(runner, "_kernels", chosen)
    assert {event.record.error for event in run_all(plan)} == {"ValueError: MADL_KERNELS is fast"}


def test_nothing_is_run_twice(plan, tmp_path):
    run_all(plan)
    assert run_all(plan) == []
    assert executed(tmp_path) == [0, 1, 2, 3]


def test_a_failed_case_is_a_record_tried_again_and_what_needs_it_waits(plan, monkeypatch):
    with_later(plan)
    assert plan.project.names() == ["toy", "later"]
    monkeypatch.setenv("TOY_FAIL", "2")
    events = run_all(plan)
    assert [e.record.status for e in events] == ["ok", "ok", "failed", "ok"]
    assert {e.record.case.experiment for e in events} == {"toy"}
    assert events[2].record.error == "the toy was told to fail"
    monkeypatch.delenv("TOY_FAIL")
    again = [(e.record.case.experiment, e.record.case.params["x"]) for e in run_all(plan)]
    assert again == [("toy", 2), *(("later", x) for x in range(4))]


def test_a_second_run_on_the_same_folder_is_refused_in_a_line(plan, tmp_path):
    first = runner.run(plan, Store(plan.project.state), [], Options())
    next(first)
    with pytest.raises(MadlError, match="a run is at work on .* already; wait for it, or stop it"):
        run_all(plan)
    first.close()
    run_all(plan)
    assert executed(tmp_path) == [0, 1, 2, 3]


@pytest.fixture
def cli(no_torch, processes):

    def start(*arguments: str, **environment: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(no_torch), **environment}
        return processes.start(ROOT / "cli.py", *arguments, env=environment, stderr=subprocess.PIPE)

    return start


def stored(plan) -> list[Path]:
    return list(plan.project.state.rglob("[!.]*.json"))


def test_a_kill_in_the_middle_of_a_case_loses_only_that_case(plan, cli, tmp_path):
    run = cli("run", "--jobs", "2", TOY_SLOW="2")
    wait_for(lambda: 2 in executed(tmp_path) and len(stored(plan)) == 3)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert len(stored(plan)) == 3
    assert cli("run", "--jobs", "1").wait() == 0
    assert {x: executed(tmp_path).count(x) for x in range(4)} == {0: 1, 1: 1, 2: 2, 3: 1}
    assert own(plan).is_complete("toy")


def test_ctrl_c_stops_with_one_line_and_the_next_run_goes_on(plan, cli, tmp_path):
    run = cli("run", "--jobs", "1", TOY_SLOW="1")
    wait_for(lambda: 1 in executed(tmp_path))
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.strip().endswith("stopped; run the same command again to go on")
    assert cli("run", "--jobs", "1").wait() == 0
    assert executed(tmp_path) == [0, 1, 1, 2, 3]


FINALIZED = """
class Closing:
    def __del__(self):
        Path(os.environ["TOY_LOG"]).with_suffix(".closing").touch()
        time.sleep(60)

"""


def test_ctrl_c_that_python_swallows_in_a_finalizer_stops_with_one_line_too(
    toy, plan, cli, tmp_path
):
    page = toy.experiments / "toy" / "page.py"
    text = page.read_text().replace("@page.run", f"{FINALIZED}@page.run", 1)
    page.write_text(text.replace("    log = Path", "    Closing()\n    log = Path", 1))
    run = cli("run", "--jobs", "1")
    wait_for((tmp_path / "log.closing").exists)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.strip().endswith("stopped; run the same command again to go on")


STEP = """
from madl.logbook.experiment import Experiment

page = Experiment(title="a step", needs={needs}, timed={timed})

@page.cases
def cases(plan):
    return [{{"step": x, "seed": 0}} for x in range(2)]

@page.run
def run(params, ctx):
    return {{"step": params["step"]}}
"""


@pytest.fixture
def light_workers(no_torch, monkeypatch):
    """Workers that start now import a module in the place of torch, which takes no seconds."""
    import torch  # noqa: F401  # this process keeps its own

    monkeypatch.syspath_prepend(no_torch)


@pytest.mark.usefixtures("light_workers")
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_others_need_comes_first_and_what_is_timed_last(plan, jobs):
    steps = (("after", ("needed",), False), ("clock", (), True), ("needed", (), False))
    for name, needs, timed in steps:
        text = STEP.format(needs=needs, timed=timed)
        write(plan.project.experiments / f"{name}" / "page.py", text)
        write(plan.project.experiments / f"{name}" / "page.md.j2", "")
    events = run_all(plan, jobs=jobs)
    order = [event.record.case.experiment for event in events]
    assert sorted(order[:2]) == ["needed", "needed"]
    assert order[-2:] == ["clock", "clock"]
    assert order.count("after") == 2
    assert order.index("after") > 1
    assert [event.done for event in events] == list(range(1, 11))
    assert events[-1].total == 10


def test_timed_cases_of_all_pages_go_in_rounds(plan):
    cases = '[{"step": x, "process": k, "seed": 0} for x in range(2) for k in range(3)]'
    for name in ("clock", "watch"):
        text = STEP.format(needs=(), timed=True)
        text = text.replace('[{"step": x, "seed": 0} for x in range(2)]', cases)
        write(plan.project.experiments / name / "page.py", text)
        write(plan.project.experiments / name / "page.md.j2", "")
    order = [event.record.case for event in run_all(plan, jobs=1)]
    timed = [case for case in order if case.experiment in ("clock", "watch")]
    assert [case.params["process"] for case in timed] == [0] * 4 + [1] * 4 + [2] * 4
    assert [case.experiment for case in timed] == [*["clock"] * 2, *["watch"] * 2] * 3


def test_a_case_is_run_by_the_study_of_its_page_where_the_page_has_no_function(plan):
    folder = plan.project.experiments / "studied"
    page, study = STEP.format(needs=(), timed=False).split("@page.run\n")
    write(folder / "page.py", page)
    assert any(
        "write a function `run` into its study.py" in event.record.error
        for event in run_all(plan, jobs=1)
        if event.record.case.experiment == "studied"
    )
    write(folder / "study.py", f'"""Steps."""\n\n{study}')
    again = RunPlan(Project(plan.project.root), plan.profile, {})
    assert [event.record.values["step"] for event in run_all(again, jobs=1)] == [0, 1]


def test_the_longest_go_first_page_by_page_and_before_them_what_nobody_knows(plan):
    takes_s = {"brief": 1.0, "long": 10.0, "upon": 100.0}  # upon the toy
    for name in takes_s:
        needs = ("toy",) if name == "upon" else ()
        write(plan.project.experiments / name / "page.py", STEP.format(needs=needs, timed=False))
        write(plan.project.experiments / name / "page.md.j2", "")
    for name, seconds in takes_s.items():
        first, last = own(plan).cases(name)
        known = [a_record(case=first, seconds=seconds / 2), a_record(case=last, seconds=seconds)]
        publish(known, plan.project.docs / "data" / f"{name}.jsonl")
    order = [event.record.case for event in run_all(plan, jobs=1)]
    names = [*["toy"] * 4, *["long"] * 2, *["brief"] * 2, *["upon"] * 2]
    assert [case.experiment for case in order] == names
    assert [case.params["step"] for case in order[4:8]] == [1, 0] * 2


@pytest.mark.usefixtures("light_workers")
@pytest.mark.parametrize(("jobs", "said"), [(1, "4 min"), (2, "2 min")])
def test_the_time_left_counts_what_waits_and_goes_at_the_pace_of_this_machine(
    plan, caplog, jobs, said
):
    """In evidence ten seconds a case, of which this machine needs none, then a hundred a case."""
    caplog.set_level(logging.INFO)
    write(plan.project.experiments / "later" / "page.py", STEP.format(needs=("toy",), timed=False))
    store = Store(plan.project.state)
    for name, seconds in (("toy", 10.0), ("later", 100.0)):
        known = [a_record(case=case, seconds=seconds) for case in own(plan).cases(name)]
        publish(known, plan.project.docs / "data" / f"{name}.jsonl")
    first, *others = runner.run(plan, store, [], Options(jobs=jobs))
    assert f"6 cases, about {said}" in caplog.text
    assert (first.done, first.total) == (1, 6)
    assert 0 < first.left_s < 0.7 * 230 / jobs
    assert [event.total for event in others] == [6] * 5
    assert others[-1].left_s == 0


def test_a_moment_that_evidence_did_not_need_makes_no_day_of_the_time_left(plan):
    quick, slow = own(plan).cases("toy")[:2]
    pace = Pace(plan, usual_s={quick.key: 0.02, slow.key: 100.0})
    pace.finished(a_record(case=quick, seconds=3.0))
    assert 100 < pace.expected_s(slow) < 120
    pace.finished(a_record(case=slow, status="failed", seconds=0.1))
    assert 100 < pace.expected_s(slow) < 120


def test_the_same_case_takes_what_it_took_whatever_resembles_it(plan):
    cases = own(plan).cases("toy")
    known = [a_record(case=case, seconds=10.0 * (i + 1)) for i, case in enumerate(cases)]
    publish(known, plan.project.docs / "data" / "toy.jsonl")
    pace = Pace(plan)
    pace.learn("toy", cases[:1])  # nothing tells it apart from the others
    assert pace.expected_s(cases[0]) == 10.0
