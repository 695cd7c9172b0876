"""The command for a machine with a GPU, rehearsed on one without, and what it may import."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from madl.errors import MadlError
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case
from madl.running import gpu, shards
from madl.running.gpu import Gpu, Outcome
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.training import workloads
from tests.conftest import a_run  # what any record has

ROOT = Path(__file__).parents[1]
ABSENT = """
    import sys

    NAMES = {
        *("optuna", "datasets", "rich", "mkdocs", "material", "markdown", "nh3", "matplotlib"),
        *("pyarrow", "pandas", "distributed", "dask", "peft", "accelerate", "onnx", "onnxruntime"),
    }


    class Absent:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name.partition(".")[0] in NAMES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)


    sys.meta_path.insert(0, Absent)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> dict[str, str]:
    """The environment of a machine without what rendering and searching need, and without a GPU."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(textwrap.dedent(ABSENT))
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


def python(bare, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_without_a_gpu_it_is_one_line_and_nothing_is_written(bare, tmp_path):
    command = [sys.executable, "cli.py", "gpu", str(tmp_path / "out")]
    done = subprocess.run(command, env=bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error: no CUDA device here; run it where there is one")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_it_lists_what_one_would_add(bare, tmp_path):
    said = python(bare, "cli.py", "gpu", "--list", str(tmp_path / "out")).splitlines()
    assert said[0] == "0 left"
    count = int(said[1].partition(" ")[0])
    listed = said[2 : 2 + count]
    assert said[1].endswith("not run here:")
    assert said[2 + count :] == ["0 failed", "0 done"]
    assert all("no CUDA device" in line or "has no CUDA cases" in line for line in listed)
    for part in ("pytest -m cuda", "machine", "lab4_memory", "bench mxint8_cuda"):
        assert any(line.startswith(f"  {part}: ") for line in listed), part
    for page in ("lab4_compile", "lab4_attention", "lab4_mxint8", "lab4_tiles"):
        assert any(page in line for line in listed), page
    assert not (tmp_path / "out").exists()


def test_every_test_that_needs_a_gpu_is_collected_and_says_why_it_is_skipped(bare):
    files = [str(path) for path in gpu.cuda_tests(ROOT / "tests")[0]]
    said = python(bare, *gpu.PYTEST, *files)
    assert "no CUDA device here" in said
    assert re.search(r"^\d+ skipped, \d+ deselected in", said.splitlines()[-1])


def test_what_a_case_and_the_benchmark_import_is_there(bare):
    code = """
    import importlib, runpy
    importlib.import_module("experiments.lab4_compile.study")
    for name in ("replay", "timing", "fresh", "memory", "allocator"):
        importlib.import_module(f"madl.machine.{name}")
    importlib.import_module("madl.training.models")
    importlib.import_module("kernels.mxint8_cuda")
    runpy.run_path("benchmarks/mxint8_cuda.py", run_name="benchmark")
    """
    python(bare, "-c", textwrap.dedent(code))


# ---- with a GPU that is pretended ---------------------------------------------------------------


@pytest.fixture
def work(monkeypatch, tmp_path) -> Gpu:
    monkeypatch.setattr(gpu, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gpu, "PAGES", ("machine", "lab4_tiles"))
    project = Project()
    monkeypatch.setattr(type(project.load("machine")), "why_unavailable", lambda self, params: None)
    params = workloads.resolve("snippets").params()
    store = gpu.Store(tmp_path)
    return Gpu(project, StoredPlan(project, store, PROFILES["smoke"], params), tmp_path)


def states(work: Gpu) -> list[str]:
    return [outcome.state for outcome in work.outcomes()]


def test_parts_are_done_in_their_order_and_once(work, monkeypatch, tmp_path):
    done = []

    def tests(self, seconds, *, has_whole_call):
        done.append("tests")
        code = gpu.sources.digest_of_all(self.project.root)
        found = {"code": code, "status": 0, "said": "9 passed"}
        (self.folder / "tests.json").write_text(json.dumps(found))

    def call(function, argument, *, timeout_s):
        done.append(argument["experiment"])
        record = gpu.without_values(
            ROOT, "cpu", Case(**case_of(argument)), "failed", "no such luck"
        )
        gpu.Store(tmp_path).put(record)

    def benchmark(self, seconds):
        done.append("benchmark")
        self._benchmark_file().parent.mkdir(parents=True)
        self._benchmark_file().write_text(json.dumps({"rows": [1], "left": []}))

    monkeypatch.setattr(Gpu, "_run_tests", tests)
    monkeypatch.setattr(Gpu, "_run_benchmark", benchmark)
    monkeypatch.setattr(gpu.fresh, "call", call)
    assert states(work) == ["left", "left", "left", "not run here"]
    assert [one.state for one in work.run()] == ["done", "failed", "done"]
    assert done == ["tests", "machine", "benchmark"]
    assert states(work) == ["done", "failed", "done", "not run here"]
    assert [str(one) for one in work.run()] == ["machine: failed (no such luck)"]  # once more


def test_the_kernels_benchmark_comes_before_the_long_pages(monkeypatch, tmp_path):
    project, store = Project(), gpu.Store(tmp_path)
    plan = StoredPlan(project, store, PROFILES["smoke"], workloads.resolve("snippets").params())
    parts = [
        p if isinstance(p, str) else p.experiment for p in Gpu(project, plan, tmp_path)._parts()
    ]
    short = ["tests", "machine", "benchmark", "lab4_memory", "lab4_attention", "lab4_compile"]
    assert list(dict.fromkeys(parts)) == short


def test_what_may_not_end_in_a_call_is_left_for_the_next(work, monkeypatch):
    now, done = [0.0], []

    def do(self, part, seconds, *, has_whole_call):
        done.append(part)
        now[0] += 450.0

    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Gpu, "_do", do)
    list(work.run(seconds=520.0))
    assert done == ["tests", "benchmark"]  # which keeps each of its works


def test_a_work_of_the_benchmark_that_fails_is_told_once_nothing_else_is_left(work, tmp_path):
    def known(**found):
        path = work._benchmark_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"rows": [], **found}))
        return work.outcome("benchmark")

    assert known(left=["a", "b"], failed={"b": "no kernel"}).state == "left"
    failed = known(left=["b"], failed={"b": "no kernel"})
    assert (failed.state, failed.why) == ("failed", "b: no kernel")
    assert known(left=[], failed={}).state == "done"


def test_what_is_brought_back_is_merged_beside_other_machines(tmp_path):
    def record(host):
        case = Case(experiment="machine", params={"device": "cuda"})
        run = a_run(host=host)
        return gpu.results.Record(case=case, status="ok", values={}, seconds=1.0, run=run)

    folder, into = tmp_path / "out", tmp_path / "data"
    with pytest.raises(MadlError, match="has no evidence; run `cli.py gpu"):
        list(gpu.publish(folder, into))
    into.mkdir()
    gpu.results.publish([record("a CPU")], into / "machine.jsonl")
    (folder / "data" / "benchmarks").mkdir(parents=True)
    gpu.results.publish([record("a GPU")], folder / "data" / "machine.jsonl")
    (folder / "data" / "benchmarks" / "mxint8_cuda.json").write_text("{}\n")
    assert list(gpu.publish(folder, into)) == [
        "machine.jsonl: 1 record",
        "benchmarks/mxint8_cuda.json",
    ]
    merged = gpu.results.read_published(into / "machine.jsonl")
    assert [one.run.host for one in merged] == ["a CPU", "a GPU"]
    assert (into / "benchmarks" / "mxint8_cuda.json").read_text() == "{}\n"


def case_of(argument):
    return {name: argument[name] for name in ("experiment", "params", "version")}


def test_a_folder_has_one_call_at_a_time(work, tmp_path):
    with (
        shards.at_work(tmp_path / "shards", shards.WHOLE),
        pytest.raises(MadlError, match="a run is at work"),
    ):
        list(work.run())


def test_nothing_is_begun_when_the_time_is_over(work):
    assert list(work.run(seconds=1)) == []


@pytest.mark.parametrize(("whole", "state"), [(False, "left"), (True, "failed")])
def test_a_case_that_is_stopped_is_left_unless_it_had_a_whole_call(work, monkeypatch, whole, state):
    def call(function, argument, *, timeout_s):
        raise gpu.MadlError(f"{function} took longer than {timeout_s:g} s")

    monkeypatch.setattr(gpu.fresh, "call", call)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a GPU")
    (case,) = work.pages["machine"]
    work._run_case(case, 100, has_whole_call=whole)
    assert work.outcome(case).state == state


def test_tests_that_take_more_than_a_call_keep_no_case_from_its_turn(work, monkeypatch):
    monkeypatch.setattr(gpu, "_ended", lambda command, seconds, said, *_, **__: said.touch())
    work._run_tests(100, has_whole_call=False)
    assert work.outcome("tests").state == "left"
    work._run_tests(520, has_whole_call=True)
    assert work.outcome("tests").state == "failed"
    assert work.outcome("tests").why.startswith("took longer than 520 s")
    done = []
    monkeypatch.setattr(Gpu, "_do", lambda self, part, *_, **__: done.append(part))
    list(work.run())
    assert done == [*work.pages["machine"], "benchmark", "tests"]


def test_a_good_case_is_evidence_at_once(work, tmp_path):
    (case,) = work.pages["machine"]
    work.store.put(gpu.results.Record(
        case=case, status="ok", values={}, seconds=1.0, run=a_run()
    ))  # fmt: skip
    work._publish()
    assert work.outcome(case) == Outcome("machine", "done")
    assert len((tmp_path / "data" / "machine.jsonl").read_text().splitlines()) == 1


def test_a_program_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    said = tmp_path / "said.txt"
    assert gpu._ended([sys.executable, "-c", script], 2.0, said, tmp_path) is None
    assert gpu._ended([sys.executable, "-c", "print('one')"], 60.0, said, tmp_path) == 0
    assert said.read_text() == "one\n"


def test_a_file_that_cannot_be_imported_here_is_named(tmp_path):
    (tmp_path / "test_a.py").write_text("import no_such_package\n# pytest.mark.cuda\n")
    (tmp_path / "test_b.py").write_text("import json\nfrom madl import files\n# pytest.mark.cuda\n")
    (tmp_path / "test_c.py").write_text("import json\n")
    files, needs = gpu.cuda_tests(tmp_path)
    assert [path.name for path in files] == ["test_b.py"]
    assert needs == ["test_a.py not run here: no_such_package is not installed here"]


# ---- the benchmark, of which only what needs no GPU ---------------------------------------------


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setenv("MADL_HOST", "a machine")
    path = ROOT / "benchmarks" / "mxint8_cuda.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_cuda", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_writes_after_each_work_and_goes_on(bench, tmp_path):
    path, done = tmp_path / "mxint8_cuda.json", []

    def work(name):
        def run():
            done.append(name)
            if name == "two" and done.count("two") == 1:
                raise KeyboardInterrupt
            return [{"work": name}]

        return run

    todo = {name: work(name) for name in ("one", "two", "three")}
    with pytest.raises(KeyboardInterrupt):
        bench.run_works(todo, path, path, end=1e12)
    assert json.loads(path.read_text())["left"] == ["two", "three"]
    bench.run_works(todo, path, path, end=0.0)  # no time at all
    bench.run_works(todo, path, path, end=1e12)
    assert done == ["one", "two", "two", "three"]
    found = json.loads(path.read_text())
    assert [row["work"] for row in found["rows"]] == ["one", "two", "three"]
    assert found["left"] == []
    assert set(found["run"]["versions"]) >= {"torchao", "gemlite", "humming-kernels"}


def test_a_work_that_fails_does_not_keep_the_others_from_their_turn(bench, tmp_path, monkeypatch):
    path, done, usable = tmp_path / "mxint8_cuda.json", [], [True]
    monkeypatch.setattr(bench, "answers", lambda: usable[0])

    def work(name):
        def run():
            done.append(name)
            if name == "one":
                raise RuntimeError("out of memory\nmore")
            return [{"work": name}]

        return run

    todo = {name: work(name) for name in ("one", "two", "three")}
    bench.run_works(todo, path, path, end=1e12)
    found = json.loads(path.read_text())
    assert (found["left"], found["failed"]) == (["one"], {"one": "out of memory"})
    path.unlink()
    done.clear()
    usable[0] = False  # the device answers this process no more
    bench.run_works(todo, path, path, end=1e12)
    bench.run_works(todo, path, path, end=1e12)
    assert done == ["one", "two", "three", "one"]


def test_a_peer_that_does_not_work_here_is_named(bench):
    def absent():
        raise ModuleNotFoundError("No module named 'gemlite'")

    assert bench.working({"GemLite": absent}) == {}
    assert bench.NOT_RUN == {"GemLite": "ModuleNotFoundError: No module named 'gemlite'"}


def test_each_work_has_a_name_of_its_own_and_float32_and_bfloat16_are_both_there(bench):
    names = list(bench.works(bench.PARTS, 0.1))
    assert names[0] == "check"
    assert sum(name.startswith("linear bfloat16, ") for name in names) == 18
    assert sum(name.startswith("linear float32, ") for name in names) == 18
    assert sum(name.startswith("dequantize ") for name in names) == 8
