"""The command line: torch-free until a case runs, every mistake one clear line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from madl.site.report import Ledger
from tests.conftest import write

ROOT = Path(__file__).parents[1]


def call(*arguments: str):
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


@pytest.mark.parametrize("command", sorted(cli.main.commands))
def test_every_command_has_help_and_is_documented(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert cli.main.commands[command].help
    assert f"cli.py {command}" in (ROOT / "docs" / "usage.md").read_text()


@pytest.mark.parametrize("arguments", [["--help"], ["checklist"], ["report"], ["status"]])
def test_torch_is_not_imported_where_no_case_runs(toy, arguments, python_file):
    script = python_file(
        "blocked.py",
        f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})

        class Blocked:
            def find_spec(self, name, *_):
                if name in ("torch", "transformers", "datasets", "tokenizers", "safetensors"):
                    raise ImportError(f"{{name}} is not installed here")

        sys.meta_path.insert(0, Blocked())
        import cli
        cli.main({arguments!r})
        """,
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_makes_the_site_before_and_after_what_it_runs_and_again_does_neither(toy, monkeypatch):
    made = []
    monkeypatch.setattr("madl.site.report.write", lambda *_: made.append(True) or Ledger())
    monkeypatch.setattr("madl.site.build.build", lambda project: None)
    (toy.root / "site").mkdir()
    (toy.root / "site" / "index.html").touch()
    write(toy.root / "mkdocs.yml", "")
    write(toy.root / "cli.py", "")
    assert "open " in call("all", "--executor", "inline").output
    assert len(made) == 2
    assert call("all", "--executor", "inline").exit_code == 0
    assert len(made) == 2


def test_quick_runs_the_sample_alone(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_QUICK", "2")
    call("run", "--executor", "inline")
    assert (tmp_path / "log").read_text().split() == ["0", "1"]
    assert "2 of 2 done" in call("status").output
    assert "2 of 4 done, 0 failed, 2 left" in call("status", "--profile", "full").output


def test_a_failed_case_fails_the_command_and_the_pages_are_rendered_all_the_same(toy, monkeypatch):
    monkeypatch.setenv("TOY_FAIL", "3")
    result = call("all", "--executor", "inline")
    assert result.exit_code == 1
    assert (toy.docs / "labs" / "toy.md").exists()
    assert "the toy was told to fail" in call("status").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toyy"], "'toyy'; did you mean toy? known: toy; or by question: 9.1\n"),
        (["all", "--profile", "huge"], "unknown profile 'huge'; known: smoke, quick, full"),
        (["run", "--shard", "3/2"], "--shard is i/n with 1 <= i <= n"),
        (["run", "--shard", "1/99999999999"], "1 <= i <= n <= 10,000, for example 2/3; got '1/9"),
        (["doctor", "--publish"], "--publish keeps what --repeat counts; give --repeat, too"),
        (["doctor", "toy"], "only --repeat is of experiments; give it, or leave out toy"),
        (["doctor", "--model", "x"], "of experiments; give it, or leave out --model"),
        (["run", "--profile", "full", "--seeds", "6"], "--seeds is 1 to 5; got '6'"),
        (["all", "--seeds", "1"], "--seeds is of the full profile; leave it out, or use --profile"),
        (["run", "--executor", "inline", "--jobs", "2"], "--executor inline runs one case at a"),
        (
            ["run", "--executor", "dask", "--scheduler", "tcp://127.0.0.1:9", "--jobs", "2"],
            "with --executor dask the workers are the jobs; leave out --jobs",
        ),
        (["run", "--device", "cuda", "--jobs", "2"], "cases take turns on a GPU; leave out --jobs"),
        (["run", "--device", "tpu"], "cannot use device 'tpu'"),
        (["run", "--model", "./nowhere"], "no folder ./nowhere"),
        (["run", "--model", ""], "no folder ''; give a folder in the hub's layout, or a hub id"),
        (["all", "--dataset", " "], "no folder ' '; give a folder in the hub's layout"),
        (["run", "--executor", "dask"], "--executor dask and --scheduler ADDRESS go together"),
        (["run", "--scheduler", "tcp://127.0.0.1:9"], "--executor dask and --scheduler ADDRESS"),
        (["bench", "nothing"], "unknown benchmark 'nothing'"),
    ],
)
def test_a_mistake_is_one_clear_line_and_nothing_is_run(toy, tmp_path, arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert message in result.output
    assert (tmp_path / "log").read_text() == ""
    assert not toy.state.exists()


def test_a_full_disk_is_one_clear_line(toy, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "records/x.json")

    monkeypatch.setattr("madl.logbook.records.write_atomically", full)
    result = call("run", "--executor", "inline")
    assert result.exit_code == 1
    assert "Error: the disk is full (records/x.json); free some space" in result.output


def test_checklist_strict_fails_while_a_question_is_open(toy):
    call("run", "--executor", "inline")
    assert call("checklist").exit_code == 0
    assert call("checklist", "--strict").exit_code == 1
    listed = json.loads(call("checklist", "--json").output)["questions"]
    assert [(q["id"], q["status"]) for q in listed] == [("9.1", "answered"), ("9.2", "open")]
    assert {"id", "title", "status"} <= set(listed[0])


def test_the_number_of_a_question_stands_for_its_experiment(toy, tmp_path):
    assert call("run", "9.1", "toy", "--executor", "inline").exit_code == 0
    assert len((tmp_path / "log").read_text().split()) == 4
    assert call("status", "9.1").output.startswith("toy ")


def test_status_says_when_code_has_changed(toy):
    call("run", "--executor", "inline")
    source = toy.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("** 2", "** 2 + 0"))
    assert "4 of 4 done, 0 failed, 0 left, 4 from older code" in call("status").output
    rows = json.loads(call("status", "--json").output)["experiments"]
    assert rows[0]["changed"] == 4


def test_status_names_a_damaged_record_and_shows_the_rest(toy):
    call("run", "--executor", "inline")
    text = (toy.experiments / "toy" / "page.py").read_text()
    write(toy.experiments / "other" / "page.py", text)
    path = next((toy.state / "records" / "toy").glob("*.json"))
    path.write_text("{")
    result = call("status")
    assert result.exit_code == 1
    assert "0 of 4 done, 0 failed, 4 left" in result.output.splitlines()[0]
    assert "3 of 4 done, 0 failed, 0 left, 1 damaged" in result.output
    assert f"{path} is not a whole record" in result.output
    rows = json.loads(call("status", "--json").output)["experiments"]
    assert [row["damaged"] for row in rows] == [0, 1]


def test_publish_writes_one_line_a_case(toy):
    call("run", "--executor", "inline")
    call("publish")
    assert len((toy.docs / "data" / "toy.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("name", ["MADL_KERNELS", "MADL_CUDA_KERNELS"])
def test_a_path_of_kernels_that_there_is_not_is_refused_before_anything_runs(
    toy, monkeypatch, tmp_path, name
):
    monkeypatch.setenv(name, "fast")
    done = call("run")
    assert done.exit_code == 2
    assert f"{name}=fast: unknown path; known: auto" in done.output
    assert (tmp_path / "log").read_text() == ""


def test_the_log_has_one_plain_line_a_case(toy, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "cli.py", "run", "--executor", "inline"],
        capture_output=True,
        text=True,
        env=os.environ,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert [line.split("  ")[0] for line in lines] == [
        f"[{i}/4] toy x={i - 1}" for i in range(1, 5)
    ]
    assert done.stdout == ""
