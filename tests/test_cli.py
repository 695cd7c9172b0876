"""The command line: torch-free until a case runs, every mistake one clear line."""

import json

import pytest
from click.testing import CliRunner

import cli
from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES
from madl.running import caches
from madl.training import workloads
from tests import commands
from tests.conftest import ROOT, write


def call(*arguments: str):
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


def test_the_reference_of_commands_is_what_they_print():
    usage = commands.USAGE.read_text()
    assert usage == commands.with_reference(usage), "run `python -m tests.commands`"
    assert all(command.help for command in cli.main.commands.values())
    assert call("run", "--help").exit_code == 0


def test_the_choices_of_profiles_and_workloads_are_those_that_there_are():
    choices = {option.name: option.type for option in cli.main.commands["run"].params}
    assert list(choices["profile"].choices) == list(PROFILES)
    assert set(choices["workload"].choices) == set(workloads.PRESETS)
    assert choices["seeds"].max == len(CONFIRMING_SEEDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toyy"], "'toyy'; did you mean toy? known: toy; or by question: 9.1\n"),
        (["all", "--profile", "huge"], "'huge' is not one of 'smoke', 'quick', 'full'"),
        (["all", "--jobs", "0"], "'--jobs': 0 is not in the range x>=1 (see `python "),
        (["status", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["al"], "No such command 'al'"),
        (["--verbos"], "No such option '--verbos'"),
        (["new"], "Missing argument 'STEM'"),
        (["repeat", "--times", "0"], "'--times': 0 is not in the range x>=1"),
        (["run", "--profile", "full", "--seeds", "6"], "6 is not in the range 1<=x<=5"),
        (["all", "--seeds", "1"], "--seeds is of the full profile; leave it out, or use --profile"),
        (["run", "--scheduler", "tcp://127.0.0.1:9", "--jobs", "2"], "Dask's workers are the jobs"),
        (["run", "--device", "cuda", "--jobs", "2"], "cases take turns on a GPU; leave out --jobs"),
        (["run", "--device", "tpu"], "cannot use device 'tpu'"),
        (["run", "--model", "./nowhere"], "no folder ./nowhere"),
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


@pytest.mark.parametrize("name", caches.OF_COMPILERS)
def test_a_folder_of_a_compiler_that_cannot_be_written_is_one_clear_line(
    toy, tmp_path, monkeypatch, name
):
    """Each is a library's own: torch's is not imported, and yosys fails, without it."""
    (tmp_path / "file").write_text("no folder")
    for folder in ("", "/proc/none", str(tmp_path / "file" / "below")):
        monkeypatch.setenv(name, folder)
        test_a_mistake_is_one_clear_line_and_nothing_is_run(
            toy, tmp_path, ["run"], f"{name} names the folder {folder!r}, which cannot be written"
        )
    monkeypatch.setenv(name, str(tmp_path / "new" / "folder"))
    assert call("run", "--jobs", "1").exit_code == 0
    assert f"`{name}`" in (ROOT / "docs" / "usage.md").read_text()


def test_a_full_disk_is_one_clear_line(toy, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "records/x.json")

    monkeypatch.setattr("madl.logbook.records.write_atomically", full)
    result = call("run", "--jobs", "1")
    assert result.exit_code == 1
    assert "Error: the disk is full (records/x.json); free some space" in result.output


def test_checklist_strict_fails_while_a_question_is_open(toy):
    call("run", "--jobs", "1")
    assert call("checklist").exit_code == 0
    assert call("checklist", "--strict").exit_code == 1
    listed = json.loads(call("checklist", "--json").output)["questions"]
    assert [(q["id"], q["status"]) for q in listed] == [("9.1", "answered"), ("9.2", "open")]


def test_status_says_when_code_has_changed(toy, tmp_path):
    assert call("run", "9.1", "toy", "--jobs", "1").exit_code == 0
    assert len((tmp_path / "log").read_text().split()) == 4  # a question stands for its experiment
    source = toy.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("** 2", "** 2 + 0"))
    said = call("status", "9.1").output
    assert said.startswith("toy ")
    assert "4 of 4 done, 0 failed, 0 left, 4 by earlier code" in said
    rows = json.loads(call("status", "--json").output)["experiments"]
    assert rows[0]["changed"] == 4


def test_status_names_a_damaged_record_and_shows_the_rest(toy):
    call("run", "--jobs", "1")
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


def test_what_changes_while_the_site_is_made_is_in_the_next_one(toy, monkeypatch):
    rendered = []

    def render(**asked):
        rendered.append(asked)
        write(toy.docs / "toy.md", f"rendered {len(rendered)} times")
        if len(rendered) == 1:
            write(toy.experiments / "toy" / "page.md.j2", "changed meanwhile")
        return "a summary", []

    monkeypatch.setattr(cli, "_rendered", render)
    monkeypatch.setattr("madl.site.build.build", lambda project: None)
    write(toy.root / "site" / "index.html", "")
    for expected in (1, 2, 2):
        assert cli._render_and_build(toy, {}) == ("a summary", [], True)
        assert len(rendered) == expected
    monkeypatch.setenv("SITE_URL", "https://example.org/")
    cli._render_and_build(toy, {})
    assert len(rendered) == 3
