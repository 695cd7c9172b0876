"""Records: one file a case, whole or not there, refused when they are not ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madl.errors import MadlError
from madl.logbook import records
from madl.logbook.records import Case, Store
from tests.conftest import a_record, a_run

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False))


@given(st.dictionaries(st.text(), scalars))
def test_a_record_survives_the_codec(values):
    values = {k: v for k, v in values.items() if v not in (float("inf"), float("-inf"))}
    record = a_record(values=values)
    assert records.decode(records.encode(record), "here") == record


@given(st.permutations(["a", "b", "c"]))
def test_the_key_does_not_depend_on_the_order_of_parameters(names):
    params = {name: "abc".index(name) for name in names}
    assert Case(experiment="toy", params=params).key == "31283e22b1d4"


def test_everything_that_defines_the_result_is_in_the_key():
    base = Case(experiment="toy", params={"x": 1})
    others = [
        Case(experiment="toy", params={"x": 2}),
        Case(experiment="toy", params={"x": 1, "y": None}),
        Case(experiment="other", params={"x": 1}),
        Case(experiment="toy", params={"x": 1}, version=2),
    ]
    assert len({case.key for case in (base, *others)}) == 5


def test_nan_never_enters_a_file(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        store.put(a_record(values={"loss": float("nan")}))
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("cut", [0, 1, 40, -2])
def test_a_truncated_record_is_refused_with_what_to_do(tmp_path, cut):
    store, record = Store(tmp_path), a_record()
    store.put(record)
    path = next(tmp_path.rglob("*.json"))
    path.write_text(path.read_text()[:cut])
    with pytest.raises(MadlError, match=r"not a whole record.*delete it"):
        store.get(record.case)
    assert path.exists()


def test_a_record_of_another_schema_is_refused(tmp_path):
    data = json.loads(records.encode(a_record())) | {"schema": 99}
    with pytest.raises(MadlError, match="schema 99, this version reads 1"):
        records.decode(json.dumps(data), "here")


@pytest.mark.parametrize("where", ["record", "case", "run"])
def test_a_record_with_an_unknown_field_is_refused(where):
    data = json.loads(records.encode(a_record()))
    (data if where == "record" else data[where])["surprise"] = 1
    with pytest.raises(MadlError, match="does not know"):
        records.decode(json.dumps(data), "here")


def test_a_writer_killed_half_way_leaves_the_old_file(tmp_path, python_file):
    path = tmp_path / "file"
    path.write_text("old")
    script = python_file(
        "writer.py",
        """
        import os, sys
        from pathlib import Path
        from madl.logbook import records
        os.fsync = lambda handle: os.kill(os.getpid(), 9)  # die between writing and renaming
        records.write_atomically(Path(sys.argv[1]), "new" * 1000)
        """,
    )
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert done.returncode == -9
    assert path.read_text() == "old"


def test_an_artifact_is_built_once_and_whole(tmp_path):
    store, built = Store(tmp_path), []

    def build(folder):
        built.append(1)
        folder.mkdir()
        (folder / "weights").write_text("w")
        if len(built) == 1:
            raise OSError("interrupted")

    with pytest.raises(OSError, match="interrupted"):
        store.artifact("model", build)
    assert not (tmp_path / "artifacts" / "model").exists()
    for _ in range(2):
        assert (store.artifact("model", build) / "weights").read_text() == "w"
    assert len(built) == 2


def test_published_evidence_merges_by_machine_and_case(tmp_path):
    path = tmp_path / "toy.jsonl"
    here, there = a_run(host="here"), a_run(host="there")
    records.publish(records.Records([a_record(1, run=here), a_record(2, run=here)]), path)
    records.publish(records.Records([a_record(1, run=there)]), path)
    records.publish(records.Records([a_record(1, run=here, seconds=9.0)]), path)
    merged = records.read_published(path)
    assert len(merged) == 3
    assert [r.seconds for r in merged if r.run.host == "here" and r.case.params["x"] == 1] == [9.0]


def test_a_folder_keeps_what_a_killed_case_wrote(tmp_path):
    folder = Store(tmp_path).folder("study")
    (folder / "journal").write_text("half")
    assert (Store(tmp_path).folder("study") / "journal").read_text() == "half"
    assert Store(tmp_path).folder("other") != folder
