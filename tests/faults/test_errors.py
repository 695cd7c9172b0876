"""Whatever is broken: one line that names it, the documented exit status, no traceback without -v.

Broken records are in `test_report.py` and `test_records.py`, models and data of others in
`test_outside.py`.
"""

import os

import pytest

from madl.machine import lifeline
from madl.running import runner
from tests.conftest import a_record, own
from tests.faults.conftest import in_one_line, is_one_line


def spoil(toy, file: str, old: str | bytes | None, new: str | bytes) -> None:
    path = toy.root / file
    new = new.encode() if isinstance(new, str) else new
    text = path.read_bytes()
    if old is not None:
        assert str(old).encode() in text, old
        new = text.replace(str(old).encode(), new, 1)
    path.write_bytes(new)


EXPERIMENT, QUESTIONS, TEMPLATE = (
    "experiments/toy/page.py",
    "experiments/questions.toml",
    "experiments/toy/page.md.j2",
)
CASES = 'return [{"x": x, "seed": 0}'
WHY = 'return os.environ.get("TOY_MISSING")'
BROKEN: dict[str, tuple[str, str | None, str | bytes, str]] = {  # file, old, new, what is said
    "no Python": (EXPERIMENT, None, "page = =", "experiments/toy/page.py, line 1: SyntaxError"),
    "exits": (EXPERIMENT, None, "raise SystemExit(0)", "line 1: SystemExit: 0"),
    "no page": (EXPERIMENT, None, "", "declares no page; write `page = Experiment("),
    "needs itself": (EXPERIMENT, '"Squares"', '"a", needs=("toy",)', "in a circle: toy needs toy"),
    "no scalar": (EXPERIMENT, CASES, 'return [{"x": [x]}', "its cases: TypeError: the parameter x"),
    "why is a number": (EXPERIMENT, WHY, "return 3", "TypeError: 3 is neither a text nor None"),
    "no TOML": (QUESTIONS, None, '["9.1"', "questions.toml is not TOML: Expected ']'"),
    "half a question": (QUESTIONS, 'title = "Squares"', "", "questions.toml, 9.1: a question has"),
    "no template": (TEMPLATE, None, "{{ title( }}", "toy/page.md.j2, line 1: unexpected '}'"),
    "a template of bytes": (TEMPLATE, None, b"\xff", "save it as UTF-8 text"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_broken_is_one_line_that_names_it(toy, what):
    file, old, new, said = BROKEN[what]
    spoil(toy, file, old, new)
    done = in_one_line("all", "--jobs", "1", "--device", "cpu")
    assert done.exit_code == 1
    assert is_one_line(done.output)
    last = done.output.splitlines()[-1]
    assert last.startswith("Error: ")
    assert said in last


RUN = 'return {"square": params'
FAILS = {  # in a case → what its record says
    "it exits": ("raise SystemExit(0)", "SystemExit: 0"),
    "no values": ("return None", "its values cannot be stored: values are None, not names"),
    "memory": ("raise MemoryError", "not enough memory; end other programs, or use fewer --jobs"),
    "half a character": (r'return {"square": "\ud800"}', "a text has half a character"),
    "several lines": (r'raise ValueError("a\nb")', "ValueError: a"),
}


@pytest.mark.parametrize("what", FAILS)
def test_a_case_that_fails_is_a_record_with_one_line(toy, what):
    code, said = FAILS[what]
    spoil(toy, EXPERIMENT, RUN, f"{code}\n    {RUN}")
    done = in_one_line("all", "--jobs", "1", "--device", "cpu")
    assert done.exit_code == 1
    assert (toy.docs / "labs" / "toy.md").exists()
    listed = in_one_line("status")
    assert listed.exit_code == 0
    assert "0 of 4 done, 4 failed" in listed.output
    errors = [line for line in listed.output.splitlines()[1:] if line.strip()]
    assert len(errors) == 1
    assert said in errors[0]


def test_temporary_files_go_nowhere_else(tmp_path):
    """Python would look for another folder where the disk is full; what lies there stays."""
    import tempfile

    before = tempfile.gettempdir()
    with lifeline.guarded(tmp_path / "tmp") as folder:
        folder.rmdir()
        with pytest.raises(FileNotFoundError):
            tempfile.mkdtemp()
        folder.mkdir()
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder.resolve())
    assert tempfile.gettempdir() == before


def test_a_rerun_keeps_the_registration_and_another_result_does_not(plan, toy):
    """Claims worded after a result do not become earlier than it by running the case again."""
    from madl.logbook.records import Store
    from madl.running.plans import Options, RunPlan
    from madl.running.project import Project

    store, options = Store(toy.state), Options(force=True)
    list(runner.run(plan, store, (), options))
    case = own(plan).cases("toy")[1]
    first = store.get(case).run.claims
    spoil(toy, EXPERIMENT, "One squared is more than a half", "One squared is more than a third")
    again = RunPlan(Project(toy.root), plan.profile, plan.workload)
    list(runner.run(again, store, (), options))
    kept = store.get(case).run
    assert kept.preregistered_claims == first
    assert Project(toy.root).load("toy").digests != first
    store.put(a_record(case=case, values={"square": 3}, run=kept))  # as if it had been other
    list(runner.run(again, store, (), options))
    assert store.get(case).run.claims == Project(toy.root).load("toy").digests
