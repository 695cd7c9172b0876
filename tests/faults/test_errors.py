"""Whatever is broken: one line that names it, the documented exit status, no traceback without -v.

Broken records are in `test_report.py` and `test_records.py`, models and data of others in
`test_outside.py`.
"""

import errno
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import cli
from madl.machine import lifeline
from madl.running import runner
from tests.conftest import a_record
from tests.faults.conftest import ROOT, is_one_line

Spoil = tuple[str, str | bytes | None, str | bytes]  # file, what to replace (None: all), with what


def call(*arguments: str):
    done = CliRunner().invoke(cli.main, [*arguments], catch_exceptions=False)
    assert "Traceback" not in done.output
    assert '  File "' not in done.output
    return done


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
    "no text": (EXPERIMENT, None, b"\xff\xfe", "experiments/toy/page.py, line 1: SyntaxError"),
    "a null byte": (EXPERIMENT, None, b"a\0b", "experiments/toy/page.py: SyntaxError: source"),
    "fails": (EXPERIMENT, "\npage =", "\n1 / 0\npage =", "line 15: ZeroDivisionError"),
    "exits": (EXPERIMENT, "\npage =", "\nraise SystemExit(0)\npage =", "line 15: SystemExit: 0"),
    "no page": (EXPERIMENT, None, "", "declares no page; write `page = Experiment("),
    "needs what is not": (
        EXPERIMENT,
        '"Squares"',
        '"a", needs=("tory",)',
        "needs 'tory'; did you mean toy? known: toy",
    ),
    "needs itself": (EXPERIMENT, '"Squares"', '"a", needs=("toy",)', "in a circle: toy needs toy"),
    "cases fail": (EXPERIMENT, CASES, f"1 / 0\n    {CASES}", "line 20: its cases: ZeroDivision"),
    "cases exit": (EXPERIMENT, CASES, f"raise SystemExit\n    {CASES}", "its cases: SystemExit"),
    "no cases": (EXPERIMENT, CASES, "return [3", "its cases: TypeError: 'int' object is not"),
    "no scalar": (EXPERIMENT, CASES, 'return [{"x": [x]}', "its cases: TypeError: the parameter x"),
    "not a number": (EXPERIMENT, CASES, 'return [{"x": float("nan")}', "its cases: ValueError"),
    "why fails": (EXPERIMENT, WHY, f"1 / 0\n    {WHY}", "line 46: why a case is unavailable: Zero"),
    "why is a number": (EXPERIMENT, WHY, "return 3", "TypeError: 3 is neither a text nor None"),
    "no TOML": (QUESTIONS, None, '["9.1"', "questions.toml is not TOML: Expected ']'"),
    "bytes": (QUESTIONS, None, b"\xff", "byte 0 is not UTF-8); restore it from the repository"),
    "no question": (QUESTIONS, None, "x = 3", "questions.toml, x: a question has stem, title"),
    "half a question": (QUESTIONS, 'title = "Squares"', "", "questions.toml, 9.1: a question has"),
    "a number": (
        QUESTIONS,
        '"Squares"',
        "3",
        "9.1: a question has stem, title, text, asked (",
    ),
    "deep": (QUESTIONS, None, "x = " + "[" * 5000, "questions.toml is not TOML: maximum recursion"),
    "no template": (
        TEMPLATE,
        None,
        "{{ title( }}",
        "template toy/page.md.j2, line 1: unexpected '}'",
    ),
    "a template of bytes": (TEMPLATE, None, b"\xff", "save it as UTF-8 text"),
    "includes itself": (
        TEMPLATE,
        None,
        "{% include 'toy/page.md.j2' %}",
        "toy/page.md.j2: maximum",
    ),
    "no sum": (TEMPLATE, None, "{{ title() / 2 }}", "template toy/page.md.j2: unsupported operand"),
    "a home page": (
        "templates/index.md.j2",
        None,
        "{{",
        "index.md.j2, line 1: unexpected",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_broken_is_one_line_that_names_it(toy, what):
    file, old, new, said = BROKEN[what]
    spoil(toy, file, old, new)
    done = call("all", "--executor", "inline", "--device", "cpu")
    assert done.exit_code == 1
    assert is_one_line(done.output)
    last = done.output.splitlines()[-1]
    assert last.startswith("Error: ")
    assert said in last


@pytest.mark.parametrize("file", [EXPERIMENT, QUESTIONS, TEMPLATE, "templates/ledger.md.j2"])
@pytest.mark.parametrize("how", ["gone", "a folder"])
def test_a_file_that_is_no_file_is_one_line(toy, file, how):
    (toy.root / file).unlink()
    if how == "a folder":
        (toy.root / file).mkdir()
    done = call("report")
    if (file, how) == (EXPERIMENT, "gone"):  # then there is no such experiment
        assert done.exit_code == 0
        return
    assert done.exit_code == 1
    assert is_one_line(done.output)
    assert file.partition("/")[2] in done.output


MADE = {  # in the experiment's claims, facts and charts
    "a claim exits": ("one = r.one(x=1)", "raise SystemExit(0)", "claim grows of toy: SystemExit"),
    "no judgement": (
        "return contrast(",
        "return None and contrast(",
        "claim grows of toy: it returns",
    ),
    "no chart": ("return Chart(", "return None and Chart(", "squares of toy: it returns nothing"),
}


@pytest.mark.parametrize("what", MADE)
def test_what_cannot_be_made_costs_itself_and_the_exit_status(toy, what):
    old, new, said = MADE[what]
    spoil(toy, EXPERIMENT, old, new)
    done = call("all", "--executor", "inline", "--device", "cpu")
    assert done.exit_code == 1
    assert said in done.output
    assert is_one_line(done.output)
    assert "4 of 4 cases" in (toy.docs / "labs" / "toy.md").read_text()


@pytest.mark.parametrize("what", ["csv", "figure", "plot"])
def test_a_figure_that_cannot_be_drawn_costs_itself_wherever_it_stands(toy, monkeypatch, what):
    """On its page, as a file of data beside it, on the home page, and in the page's picture."""
    from madl.site import page
    from madl.site.plotting import layout

    def fails(*_, **__):
        raise ValueError("math domain error")

    places = {"csv": (page, "to_csv"), "figure": (page.svg, "figure"), "plot": (layout, "plot")}
    monkeypatch.setattr(*places[what], fails)
    done = call("all", "--executor", "inline", "--device", "cpu")
    assert done.exit_code == 1
    said = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert [line for line in said if "squares of toy: ValueError: math domain" in line] == said
    assert len(said) == 1
    assert "4 of 4 cases" in (toy.docs / "labs" / "toy.md").read_text()
    assert (toy.docs / "index.md").is_file()


RUN = 'return {"square": params'
FAILS = {  # in a case → what its record says
    "it exits": ("raise SystemExit(0)", "SystemExit: 0"),
    "no values": ("return None", "its values cannot be stored: values are None, not names"),
    "a set": ('return {"square": {1, 2}}', "which JSON does not have"),
    "a loop": ('a = []; a.append(a); return {"square": a}', "is nested more than 40 deep"),
    "memory": ("raise MemoryError", "not enough memory; end other programs, or use fewer --jobs"),
    "recursion": ("return run(params, ctx)", "RecursionError: maximum recursion depth"),
    "a file": ('open("/nowhere/x")', "FileNotFoundError: [Errno 2] No such file or directory"),
    "half a character": (r'return {"square": "\ud800"}', "a text has half a character"),
    "several lines": (r'raise ValueError("a\nb")', "ValueError: a"),
}


@pytest.mark.parametrize("what", FAILS)
def test_a_case_that_fails_is_a_record_with_one_line(toy, what):
    code, said = FAILS[what]
    spoil(toy, EXPERIMENT, RUN, f"{code}\n    {RUN}")
    done = call("run", "--executor", "inline", "--device", "cpu")
    assert done.exit_code == 1
    listed = call("status")
    assert listed.exit_code == 0
    assert "0 of 4 done, 4 failed" in listed.output
    errors = [line for line in listed.output.splitlines()[1:] if line.strip()]
    assert len(errors) == 1
    assert said in errors[0]


def test_v_shows_where_and_nothing_else_does(toy):
    spoil(toy, EXPERIMENT, "\npage =", "\n1 / 0\npage =")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for options, tracebacks in (((), 0), (("-v",), 1)):
        done = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), *options, "report"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 1
        assert bool(done.stderr.count("Traceback")) == bool(tracebacks)
        assert done.stderr.splitlines()[-1].startswith(
            "Error: experiments/toy/page.py, line 15: Zero"
        )


def test_another_python_than_we_can_use_is_one_line():
    """The check comes before everything that such a Python could not read."""
    text = (ROOT / "cli.py").read_text()
    first = text.index("if sys.version_info < (3, 11)")
    assert text.index("sys.exit", first) < text.index("import click")
    code = f"import sys; sys.version_info = (3, 10); exec(open({str(ROOT / 'cli.py')!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Python 3.11 or newer is needed")
    assert done.stderr.count("\n") == 1


def test_a_disk_that_is_full_is_called_by_its_file_s_name():
    error = OSError(errno.ENOSPC, "No space left on device", "docs/index.md")
    assert "the disk is full (docs/index.md); free some space" in cli._what_to_do(error)
    nameless = OSError(errno.ENOSPC, "No space left on device")
    assert "where .madl, docs or temporary files lie" in cli._what_to_do(nameless)
    assert "not enough memory; end other programs" in cli._what_to_do(MemoryError())
    invalid = OSError(errno.EINVAL, "Invalid argument")  # what `--dataset /proc/self` gives
    assert "cannot be used (invalid argument); see that those given" in cli._what_to_do(invalid)


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


# ---- registration -------------------------------------------------------------------------------


def test_a_rerun_keeps_the_registration_and_another_result_does_not(plan, toy):
    """Claims worded after a result do not become earlier than it by running the case again."""
    from madl.logbook.records import Store
    from madl.running.plans import Options, StoredPlan
    from madl.running.project import Project

    store, options = Store(toy.state), Options(force=True)
    list(runner.run(plan, store, (), options))
    case = plan.cases("toy")[1]
    first = store.get(case).run.claims
    spoil(toy, EXPERIMENT, "One squared is more than a half", "One squared is more than a third")
    again = StoredPlan(Project(toy.root), store, plan.profile, plan.workload)
    list(runner.run(again, store, (), options))
    kept = store.get(case).run
    assert kept.at_first == first
    assert Project(toy.root).load("toy").digests != first
    store.put(a_record(case=case, values={"square": 3}, run=kept))  # as if it had been other
    list(runner.run(again, store, (), options))
    assert store.get(case).run.claims == Project(toy.root).load("toy").digests
