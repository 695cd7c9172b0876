"""Records: one file a case, whole or not there, refused when they are not ours."""

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madl.errors import MadlError
from madl.logbook import records
from madl.logbook.records import Case, Store
from madl.machine import sources
from tests.conftest import a_record, a_run, python

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats())


def test_everything_that_defines_the_result_is_in_the_key_and_no_order():
    for names in itertools.permutations("abc"):
        params = {name: "abc".index(name) for name in names}
        assert Case(experiment="toy", params=params).key == "31283e22b1d4"
    base = {"experiment": "toy", "params": {"x": 1}}
    others = ({"params": {"x": 2}}, {"params": {"x": 1, "y": None}}, {"version": 2})
    every = [base, {**base, "experiment": "other"}, *({**base, **other} for other in others)]
    assert len({Case(**one).key for one in every}) == 5


@pytest.mark.parametrize("where", ["record", "case", "run"])
def test_a_record_with_an_unknown_field_is_refused(where):
    data = json.loads(records.encode(a_record()))
    (data if where == "record" else data[where])["surprise"] = 1
    with pytest.raises(MadlError, match="other fields than"):
        records.decode(json.dumps(data), "here")


def test_a_writer_killed_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    code = """
import os, sys
from pathlib import Path
from madl.logbook import records
os.fsync = lambda handle: os.kill(os.getpid(), 9)  # die between writing and renaming
records.write_atomically(Path(sys.argv[1]), "new" * 1000)
"""
    assert python("-c", code, path).returncode == -9
    assert path.read_text() == "old"


def test_what_is_swept_is_what_a_killed_writer_left_and_nothing_else(tmp_path, monkeypatch):
    store, folder = Store(tmp_path), tmp_path / "records" / "toy"
    with monkeypatch.context() as killed:
        killed.setattr("os.replace", None)  # it ends between writing and renaming
        killed.setattr("os.unlink", lambda path: None)
        with pytest.raises(TypeError):
            store.put(a_record())
    assert len(list(folder.iterdir())) == 1
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".DS_Store").touch()
    store.sweep()
    assert {path.name for path in folder.iterdir()} == {".ipynb_checkpoints", ".DS_Store"}


def test_an_artifact_is_built_once_and_whole_and_what_a_killed_builder_left_goes(tmp_path):
    left, others = (tmp_path / "artifacts" / f".{name}-abc_def4" for name in ("model", "model-b"))
    left.mkdir(parents=True)
    others.mkdir()
    store, built = Store(tmp_path), []

    def build(folder):
        built.append(1)
        folder.mkdir()
        (folder / "weights").write_text("w")
        if len(built) == 1:
            raise OSError("interrupted")

    with pytest.raises(OSError, match="interrupted"):
        store.artifact("model", build)
    assert {path.name for path in others.parent.iterdir()} == {others.name, "model.lock"}
    for _ in range(2):
        assert (store.artifact("model", build) / "weights").read_text() == "w"
    assert len(built) == 2


WRITES = 10  # of a builder, and more
KILLED = """
import os, sys
from pathlib import Path
from madl.logbook.records import Store

def build(folder):
    folder.mkdir()
    (folder / "weights").write_text("w")

def dies(does):
    return lambda *args: os.kill(os.getpid(), 9) if next(calls) == last else does(*args)

fsync, replace = os.fsync, os.replace
for last in range(int(sys.argv[2])):
    if not (child := os.fork()):
        calls = iter(range(100))
        os.fsync, os.replace = dies(fsync), dies(replace)
        Store(Path(sys.argv[1], str(last))).artifact("model", build)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A folder of folders: in each a builder was killed at its n-th write, or has fewer."""
    folder = tmp_path_factory.mktemp("killed")
    done = python("-c", KILLED, folder, str(WRITES), check=True)
    assert {*map(int, done.stdout.split())} == {0, signal.SIGKILL}
    return folder


def build(folder: Path) -> None:
    folder.mkdir()
    (folder / "weights").write_text("w")


@pytest.mark.parametrize("last", range(WRITES))
def test_a_builder_that_is_killed_at_any_write_leaves_nothing_that_stays(killed, last):
    folder = killed / str(last)
    assert (Store(folder).artifact("model", build) / "weights").read_text() == "w"
    left = {path.name for path in (folder / "artifacts").iterdir()}
    assert left == {"model", "model.lock", "model.stamp"}


def test_published_times_have_four_digits_and_all_else_has_its_own(tmp_path):
    values = {"runs": [{"samples_s": [0.00123456789, 12345.678], "first_call_s": 0.123456789}]}
    records.publish([a_record(1, values=values)], tmp_path / "toy.jsonl")
    (found,) = records.read_published(tmp_path / "toy.jsonl")
    assert found.values["runs"] == [{"samples_s": [0.001235, 12350.0], "first_call_s": 0.123456789}]
    once = (tmp_path / "toy.jsonl").read_bytes()
    records.publish([found], tmp_path / "toy.jsonl")
    assert (tmp_path / "toy.jsonl").read_bytes() == once


def test_published_evidence_keeps_a_machine_s_newer_result_and_a_good_one_before_any(tmp_path):
    path = tmp_path / "toy.jsonl"
    days = [a_run(started=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2, 3)]
    good = [a_record(1, run=run, seconds=float(i)) for i, run in enumerate(days)]
    skipped = a_record(1, run=days[2], status="skipped", values={}, error="no such tool")
    for one, kept in ((skipped, skipped), (good[1], good[1]), (good[0], good[1])):
        records.publish([one], path)
        assert records.read_published(path) == [kept]
    records.publish([skipped], path)
    assert records.read_published(path) == [good[1]]
    records.publish([good[2]], path)
    assert records.read_published(path) == [good[2]]
    others = [a_record(1, run=a_run(host="there")), a_record(2)]
    records.publish(others, path)
    assert len(records.read_published(path)) == 3


OUTCOMES = {"n": 4, "bits": "8A==", "examples": "x"}  # four right ones


def changed(**changes) -> str:
    """A record's text with other values, or other fields of the case, the run or the record."""
    data = json.loads(records.encode(a_record(values={"accuracy": 1.0, "outcomes": OUTCOMES})))
    for name, value in changes.items():
        at = next((one for one in (data, data["case"], data["run"]) if name in one), data["values"])
        at[name] = value
    return json.dumps(data)


WRONG = {
    "accuracy": [None, "0.5", [0.5], True, 1.5, -0.1, float("nan"), float("inf"), 0.75],
    "validation_accuracy": [None, "high", 2],
    "loss": [None, "low", [1.0], float("-inf")],
    "losses": [None, 3, ["a"], {"layer": [None]}],
    "outcomes": [
        *(None, [], "bits", {}),
        *({**OUTCOMES, "n": n} for n in (0, -4, 9, "4", 4.0, True, 10**12)),
        *({**OUTCOMES, "bits": bits} for bits in ("8A", "8A==8A==", "", "/w==", None, 3, "ü")),
        {**OUTCOMES, "examples": 3},
    ],
    "anything": [
        *(float("nan"), {"deep": [{"er": float("inf")}]}, "\ud800"),
        *(10**400, -1e101, [0, 10**101], {"deep": [{"er": -(10**400)}]}),
    ],
    "values": [None, [], "x", 3],
    "params": [None, [], {"x": []}, {"x": {}}, {"x": float("nan")}],
    "experiment": [None, 3, "", "../../etc", "a b"],
    "version": [None, "1", 1.5],
    "host": [None, 3, ["a"], "\udc00"],
    "started": [None, 3],
    "threads": ["1", None, True],
    "dirty": [None, "no", 1],
    "contention": ["0", True, -1, float("nan"), 10**400],
    "claims": [None, [], {"grows": 3}],
    "seconds": [None, "1", -1, float("inf"), True, 10**400],
    "status": [None, "fine", []],
    "error": [3, ["e"], {}],
    "run": [None, [], "x", 3],
    "case": [None, [], "x", 3],
    "schema": [None, "1", [], 2],
}


@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs], ids=str
)
def test_a_record_with_a_wrong_value_is_refused_in_one_line(name, value):
    with pytest.raises(MadlError, match="^here .*; .*delete it and its case will run again$") as e:
        records.decode(changed(**{name: value}), "here")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "text",
    [
        *("null", "[]", "3", '"x"', "{", "{}", "", "\0", "[" * 100_000, '{"schema":1}'),
        '{"schema":1,"case":' + "[" * 100_000,
        changed(anything=0).replace('"anything": 0', '"anything": 1e999'),
        changed(anything=0).replace('"anything": 0', '"anything": ' + "[" * 900 + "]" * 900),
        changed(anything=0).replace('"anything": 0', '"anything": ' + "9" * 9000),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_record_is_refused_in_one_line(text):
    assert records.decode(changed(), "here").values["outcomes"] == OUTCOMES
    with pytest.raises(MadlError, match="^here .*; delete it and its case will run again$") as e:
        records.decode(text, "here")
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 400


def numbers_in(value):
    """All numbers that are nested in lists and mappings."""
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(part)
    elif isinstance(value, int | float):
        yield value


@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_can_be_written_is_read_again_and_what_cannot_is_said(value):
    record = a_record(values={"some": value, "loss": 1})
    try:
        text = records.encode(record)
    except ValueError:
        assert any(not abs(number) < 1e100 for number in numbers_in(value))
    else:
        assert records.decode(text, "here") == record


def test_a_record_in_the_place_of_its_sibling_is_refused(tmp_path):
    store = Store(tmp_path)
    for x in (1, 2):
        store.put(a_record(x))
    one, two = (store._path(a_record(x).case) for x in (1, 2))
    one.write_bytes(two.read_bytes())
    with pytest.raises(MadlError, match=r"is the record of another case, toy .*'x': 2.*"):
        store.get(a_record(1).case)
    assert store.get(a_record(2).case) == a_record(2)


def test_published_lines_and_files_that_cannot_be_used_cost_themselves_only(tmp_path):
    path = tmp_path / "toy.jsonl"
    records.publish([a_record(x) for x in (1, 2, 3, 4)], path)
    lines = path.read_bytes().splitlines()
    last = records.decode(lines[3].decode(), "here")
    other = a_record(5, case=Case(experiment="other", params={}))
    lines[:3] = [lines[0][:40], b"\xff" + lines[1], records.encode(other).encode()]
    path.write_bytes(b"\n".join(lines))
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    machines, unusable = records.published_by_machine(tmp_path)
    assert [one.get(last.case.key) for one in machines.values()] == [last]
    gone, *told = map(str, unusable)
    assert gone.startswith(f"{tmp_path}/gone.jsonl cannot be read (no such file or directory); ")
    assert [line.split(" ")[0] for line in told] == [f"{path}:{i}" for i in (1, 2, 3)]
    assert "it is of the experiment other; restore the file, or remove the line" in told[2]
    with pytest.raises(MadlError, match=r"toy.jsonl:1 is not a whole record .*; restore the file"):
        records.read_published(path)


DAMAGES = {
    "truncated": lambda weights: weights.write_text(""),
    "flipped": lambda weights: weights.write_text("x"),
    "gone": lambda weights: weights.unlink(),
    "swapped": lambda weights: weights.rename(weights.with_name("other")),
    "more": lambda weights: weights.with_name("more").write_text(""),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_artifact_is_made_again(tmp_path, caplog, how):
    store = Store(tmp_path)
    folder = store.artifact("model", build)
    DAMAGES[how](folder / "weights")
    assert (store.artifact("model", build) / "weights").read_text() == "w"
    assert "model is damaged; it is made again" in caplog.text
    assert {path.name for path in folder.iterdir()} == {"weights"}


def test_what_other_code_made_is_made_again(tmp_path):
    built = []

    def build(folder):
        folder.mkdir()
        (folder / "weights").write_text(str(built.append(1)))

    store = Store(tmp_path)
    for code, builds in (("a", 1), ("a", 1), ("b", 2), ("a", 3)):
        store.artifact("model", build, code)
        assert len(built) == builds
    (tmp_path / "artifacts" / "model.stamp").unlink()  # by a version that kept none
    store.artifact("model", build, "a")
    assert len(built) == 4
    for code, kept in (("a", []), ("a", ["trial"]), ("b", []), ("b", ["trial"])):
        study = store.folder("study", code)
        assert [path.name for path in study.iterdir()] == kept
        (study / "trial").touch()


def test_an_artifact_is_stamped_with_its_builder_s_code(ctx, monkeypatch):
    from madl.training import baseline

    def build(folder):
        folder.mkdir()

    asked = []
    monkeypatch.setattr(sources, "digest_of_module", lambda root, module: str(asked.append(module)))
    ctx.artifact("model", build)
    ctx.artifact("value", build, by=baseline.checkpoint)
    assert asked == [__name__, "madl.training.baseline"]


def test_a_store_from_now_on_makes_everything_once_more(tmp_path):
    made = []

    def both(store):
        store.artifact("model", lambda folder: (folder.mkdir(), made.append(folder)))
        study = store.folder("study")
        found = len(made), [path.name for path in study.iterdir()]
        (study / str(len(made))).touch()
        return found

    before = Store(tmp_path)
    assert [both(before), both(before)] == [(1, []), (1, ["1"])]
    for folder in (tmp_path / "artifacts" / "model", tmp_path / "folders" / "study"):
        os.utime(folder, (0, 0))  # a clock of files may be as coarse as a test is fast
    anew = before.from_now_on()
    assert [both(anew), both(anew), both(before)] == [(2, []), (2, ["2"]), (2, ["2"])]


def of(started: str, values=None, **claims) -> records.Record:
    return a_record(values=values or {"square": 1}, run=a_run(started=started, claims=claims))


def test_a_case_keeps_the_claims_that_were_there_first_beside_those_of_its_last_run():
    first, second = of("2026-01-01", grows="a"), of("2026-01-02", {"square": 2}, grows="b")
    again = of("2026-01-03", grows="c", more="d")
    made = records.register(again, [second, first]).run
    assert (made.claims, made.first_claims) == ({"grows": "c", "more": "d"}, {"grows": "a"})
    assert made.preregistered_claims == {"grows": "a"}
    once_more = records.register(of("2026-01-04", grows="e"), [replace(again, run=made)]).run
    assert once_more.first_claims == {"grows": "a"}
    one = of("2026-01-03", grows="c")
    failed = a_record(status="failed", error="e", run=a_run(claims={"grows": "a"}))
    assert records.register(one, []) == records.register(one, [failed]) == one
    assert one.run.preregistered_claims == {"grows": "c"}
    assert "first_claims" not in records.encode(one)
    for first in ({}, {"grows": "a"}):
        one = a_record(run=a_run(first_claims=first))
        assert records.decode(records.encode(one), "it").run.first_claims == first
