"""Whether changed code gives the values of the evidence: states of a small repository."""

import dataclasses
import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from madl.errors import MadlError
from madl.logbook import equivalences
from madl.logbook.records import Case, Store, decode
from madl.running import verify as verifying
from madl.running.project import Project
from tests.conftest import ROOT, a_record, a_run, python, skeleton, without_torch

PAGE = """
from madl.logbook.experiment import Experiment

page = Experiment(title="Powers", timed=lambda params: params["how"] == "timed")

@page.cases
def cases(plan):
    return [{"how": how, "x": x} for how in ("square", "cube", "timed") for x in range(4)]

@page.run
def run(params, ctx):
    from experiments.powers import study

    return study.study(params["how"], params["x"], ctx)
"""
STUDY = '''
import time

def study(how, x, ctx):
    """A power."""
    ctx.artifact("made", lambda folder: folder.mkdir())
    if how == "cube":
        return {"power": x * x * x, "seconds_s": time.time()}
    power = x * x
    return {"power": power, "rows": [{"n": x}]}
'''


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory):
    """A repository that is committed, and its records."""
    folder = tmp_path_factory.mktemp("powers")
    root = skeleton(folder / "repository", "powers", PAGE, "# {{ title() }}")
    (root / "experiments" / "powers" / "study.py").write_text(STUDY)
    ignored = shutil.ignore_patterns("__pycache__", "cells")
    for name in ("madl", "kernels"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    (root / ".gitignore").write_text(".madl\n__pycache__\n")
    commit(root)
    without_torch(folder)
    measure(root, folder)
    return root


@pytest.fixture
def repository(tmp_path, no_torch, monkeypatch, measured_once):
    """The same in a folder of its own."""
    monkeypatch.setenv("PYTHONPATH", str(no_torch))
    return shutil.copytree(measured_once, tmp_path / "repository")


def commit(root):
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "-A"), (*named, "commit", "-qm", "it")):
        subprocess.run(["git", *command], cwd=root, check=True)


def measure(root, folder):
    """Put records of all cases into the store, as the code that is there gives them."""
    cases = [
        Case(experiment="powers", params={"how": how, "x": x})
        for how in ("square", "cube", "timed")
        for x in range(4)
    ]
    (folder / "cases").write_text(json.dumps([dataclasses.asdict(case) for case in cases]))
    names = [str(folder / name) for name in ("cases", "store", "records")]
    path = f"{root}:{folder / 'lib'}"
    python("-m", "madl.running.cases", *names, "1", cwd=root, check=True, PYTHONPATH=path)
    for line in (folder / "records").read_text().splitlines():
        Store(Project(root).state).put(decode(line, "here"))


SCENARIOS = {  # edit → told, number of differences, lines not executed
    ("power = x * x\n", "power = x**2\n"): ("4 of 8 cases drawn gave equal values", 0, 0),
    ('"""A power."""', '"""Another."""'): None,
    ("power = x * x\n", "power = x * x + 1\n"): ("not equal: today's code differs in", 2, 0),
    ('"n": x', '"n": float(x) + 0.5'): ("not equal: today's code differs in", 2, 0),
    ("    power =", "    if x > 9:\n        return {}\n    power ="): (
        *("nothing proved: 4 of 8 cases drawn did not execute", 0),
        1,
    ),
    ("power = x * x\n", "power = x // 0\n"): ("ZeroDivisionError", 2, 0),
}


@pytest.mark.parametrize("edit", SCENARIOS)
def test_changed_code_is_held_against_the_code_of_the_evidence(repository, edit):
    study = repository / "experiments" / "powers" / "study.py"
    assert edit[0] in STUDY
    study.write_text(STUDY.replace(*edit, 1))
    states = verifying.earlier_states(Project(repository), ["powers"])
    if SCENARIOS[edit] is None:
        assert states == []
        return
    (state,) = states
    told, num_different, num_missed = SCENARIOS[edit]
    found = verifying.verify(Project(repository), state, num_cases=4)
    assert told in found.told
    assert (len(found.different), len(found.not_executed)) == (num_different, num_missed)
    assert found.holds == (num_different == num_missed == 0)
    assert not found.unstable
    assert found.drawn_from == 8  # none of the timed
    data = Project(repository).docs / "data"
    assert equivalences.read(data, "powers") == [found]
    assert equivalences.known(data, "powers", found.before, found.after) == found
    codes = {found.before, found.after}
    assert equivalences.age(data, "powers", {found.after}, found.after) == ""
    assert equivalences.age(data, "powers", codes, found.after) == f"by earlier code; {found.told}"
    assert equivalences.age(data, "powers", {*codes, "other"}, found.after) == (
        "by earlier code" if found.holds else f"by earlier code; {found.told}"
    )


def test_nothing_is_proved_by_code_that_differs_from_itself(repository, tmp_path):
    study = repository / "experiments" / "powers" / "study.py"
    study.write_text(STUDY.replace('"n": x', '"n": time.time()'))
    commit(repository)
    measure(repository, tmp_path)
    study.write_text(study.read_text().replace("x * x\n", "x**2\n"))
    (state,) = verifying.earlier_states(Project(repository), ["powers"])
    found = verifying.verify(Project(repository), state, num_cases=2)
    assert "nothing proved: the earlier code differs from itself" in found.told
    assert "/rows/0/n" in found.told.replace(": rows", "/rows")
    assert not found.holds


def test_only_experiments_that_there_are_can_be_verified(repository):
    gone = a_record(case=Case(experiment="powers_tuning", params={"x": 1}))
    Store(Project(repository).state).put(gone)  # of a page that tuned, once
    assert verifying.earlier_states(Project(repository), ["powers"]) == []
    with pytest.raises(MadlError, match="power.*powers"):
        verifying.earlier_states(Project(repository), ["power"])


def test_cases_of_tuning_are_verified_with_their_page_or_alone(monkeypatch):
    cases = [Case(experiment=f"baseline{end}", params={"x": 1}) for end in ("", "_tuning")]
    monkeypatch.setattr(verifying, "_evidence", lambda project: [a_record(case=c) for c in cases])
    names = [["baseline"], ["baseline_tuning"]]
    states = [verifying.earlier_states(Project(), asked) for asked in names]
    found = [[state.experiment for state in some] for some in states]
    assert found == [["baseline", "baseline_tuning"], ["baseline_tuning"]]


@pytest.mark.parametrize("why", ["never committed", "of a commit that is not here"])
def test_code_that_no_commit_holds_is_not_verified(repository, tmp_path, why):
    study = repository / "experiments" / "powers" / "study.py"
    if why == "never committed":
        study.write_text(STUDY.replace("x * x\n", "x + x\n"))
        measure(repository, tmp_path)
    study.write_text(STUDY.replace("x * x\n", "x**2\n"))
    (state,) = verifying.earlier_states(Project(repository), ["powers"])
    if why != "never committed":
        shutil.rmtree(repository / ".git")
        commit(repository)
    with pytest.raises(MadlError, match="not to be verified: .* run it again"):
        verifying.verify(Project(repository), state, num_cases=5)
    assert equivalences.read(Project(repository).docs / "data", "powers") == []


def test_a_draw_holds_each_kind_and_depends_on_both_codes():
    def records(code):
        params = [{"how": how, "x": x} for how in "abc" for x in range(20)]
        return [
            replace(a_record(run=a_run(code=code)), case=Case(experiment="toy", params=p))
            for p in params
        ]

    state = verifying.Earlier("toy", "one", records("one"))
    drawn = verifying.draw(state, "two", 5)
    assert {case.params["how"] for case in drawn[:3]} == set("abc")
    assert len({case.key for case in drawn}) == 5
    assert drawn == verifying.draw(state, "two", 5)
    assert drawn != verifying.draw(state, "three", 5)
    assert len(verifying.draw(state, "two", 1)) == 3
    assert len(verifying.draw(state, "two", 1000)) == 60


def test_a_damaged_line_of_equivalences_is_told(tmp_path):
    (tmp_path / "equivalences").mkdir()
    (tmp_path / "equivalences" / "toy.jsonl").write_text('{"experiment": "toy"}\n')
    with pytest.raises(MadlError, match="toy.jsonl:1 cannot be read"):
        equivalences.read(tmp_path, "toy")
