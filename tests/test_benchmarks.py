"""Benchmarks: what their command line refuses, and what a page reads from published runs."""

import contextlib
import json
import math
import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

from benchmarks import mxint8_cuda as on_gpu
from experiments.formats import page as formats
from experiments.lab4_mxint8 import page as lab4_mxint8
from kernels import mxint8, mxint8_cuda
from madl.logbook import benchmarks
from madl.logbook.records import Records
from madl.machine.device import no_device

TRAINING = "training step, batch 1"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)


def publish(samples_s: dict[str, list[list[float]]]) -> None:
    rows = benchmarks.timed_rows(TRAINING, samples_s)
    benchmarks.publish("formats", rows, machine="one", peers={}, contention=0.0)


def test_times_are_ratios_of_as_many_samples_whatever_the_number_of_processes():
    publish(
        {
            "float32": [[0.1, 0.2, 0.3], [0.4, 0.4, 0.4], [0.1, 0.1, 0.1]],
            "fixed(8,4)": [[0.3, 0.2, 0.1], [0.4, 0.4, 0.4], [0.1, 0.1, 0.1]],
            "mxint8": [[0.2, 0.2, 0.2], [1.6, 1.6, 1.6], [0.2, 0.2, 0.2]],  # 1, 4 and 2 times
        }
    )
    same, other = (row["training step"] for row in formats.times(Records()))
    assert same == "1.00 × [1.00, 1.00]"
    assert other == "2.0 × [0.4, 11.2]"
    publish({"float32": [[1e-3] * 1000] * 5, "fixed(8,4)": [[1e-3] * 30] * 2})
    kept = [
        [len(taken) for taken in row["samples_us"]] for row in benchmarks.read("formats")["rows"]
    ]
    assert kept == [[8] * 5, [15] * 2]
    arm = benchmarks.arms("formats")[TRAINING]["float32"]
    assert [len(taken) for taken in arm.samples_s] == [8] * 5
    assert arm.median_s == pytest.approx(1e-3)


# ---- on a GPU -----------------------------------------------------------------------------------


def work(name: str = "one") -> on_gpu.Work:
    return on_gpu.Work(name=name, fields={"kernel": "linear", "rows": 1}, make=lambda: None)


def rows_of(one: on_gpu.Work) -> list[dict[str, object]]:
    rows = benchmarks.timed_rows(one.name, {"cuBLAS": [[2e-5] * 10], "ours, nvcc": [[1e-5] * 10]})
    return [{**row, **one.fields, "bytes": 1e7} for row in rows]


def test_the_works_of_a_gpu_come_most_worth_first():
    works = list(on_gpu.works())
    names = [one.name for one in works]
    assert len(set(names)) == len(names)
    assert names[0] == "dequantize 256 Mi elements, groups of 32"
    shape = {"kernel": "linear", "in": 4096, "out": 4096, "dtype": "bfloat16"}
    assert [one.fields for one in works[1:7]] == [
        {**shape, "rows": n} for n in (1, 4, 8, 16, 32, 64)
    ]
    kinds = [(one.fields["kernel"], one.fields.get("dtype")) for one in works]
    in_turn = [("dequantize", None), ("linear", "bfloat16"), ("linear", "float32")]
    assert list(dict.fromkeys(kinds)) == [*in_turn, ("splits", "bfloat16")]
    assert [kinds.count(kind) for kind in in_turn] == [8, 18, 18]
    assert [kind for kind, _ in kinds[-12:]] == ["splits"] * 12
    assert [one.fields["rows"] for one in works[-12:]] == [8, 16, 32, 64] * 3


def test_a_work_that_fails_says_why_and_the_others_are_kept_one_by_one(capsys):
    kept: list[list[str]] = []

    def take(one: on_gpu.Work) -> list[dict[str, object]]:
        if one.name == "two":
            raise torch.OutOfMemoryError("no memory\nand more lines")
        return rows_of(one)

    works = map(work, ("one", "two", "three"))
    failed = on_gpu.run(works, take, lambda rows: kept.append([row["work"] for row in rows]))
    assert failed == ["two"]
    assert kept == [["one"] * 2, ["one"] * 2 + ["three"] * 2]
    said = capsys.readouterr().out
    assert "two: failed, OutOfMemoryError: no memory\n" in said
    assert "one: cuBLAS takes 0.02 ms" in said
    assert "500 GB/s" in said
    assert "2.00 × [2.00, 2.00] as fast, 1,000 GB/s" in said


def test_a_wrong_result_ends_the_run_and_keeps_what_was_before():
    kept: list[int] = []

    def take(one: on_gpu.Work) -> list[dict[str, object]]:
        if one.name == "two":
            raise on_gpu.Wrong("2 splits")
        return rows_of(one)

    with pytest.raises(on_gpu.Wrong, match="2 splits"):
        on_gpu.run(map(work, ("one", "two", "three")), take, lambda rows: kept.append(len(rows)))
    assert kept == [2]


def test_after_the_deadline_no_work_begins(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(on_gpu, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    begun: list[str] = []

    def take(one: on_gpu.Work) -> list[dict[str, object]]:
        begun.append(one.name)
        clock[0] += 4
        return rows_of(one)

    works = [work(name) for name in ("one", "two", "three", "four")]
    assert on_gpu.run(works, take, lambda rows: None, end_s=5.0) == []
    assert begun == ["one", "two"]
    assert "2 works are left out, from three on" in capsys.readouterr().out


@pytest.fixture
def one_gpu(monkeypatch):
    """A GPU as far as the command can see, on which the second of three works fails."""

    def measure(one: on_gpu.Work, budget_s: float) -> list[dict[str, object]]:
        if one.name == "two":
            raise RuntimeError("no such kernel")
        return rows_of(one)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(on_gpu, "check", lambda: None)
    monkeypatch.setattr(on_gpu, "works", lambda: map(work, ("one", "two", "three")))
    monkeypatch.setattr(on_gpu, "measure", measure)
    monkeypatch.setattr(on_gpu.GpuMeter, "share", lambda self: 0.02)


@pytest.mark.usefixtures("one_gpu")
def test_a_run_is_published_whole_after_every_work_whatever_failed(tmp_path, monkeypatch):
    written: list[int] = []
    write = benchmarks.write_atomically
    monkeypatch.setattr(
        benchmarks,
        "write_atomically",
        lambda path, text: (written.append(len(json.loads(text)["rows"])), write(path, text)),
    )
    done = CliRunner().invoke(on_gpu.main, ["--publish"])
    assert done.exit_code == 1
    assert "1 failed: two" in done.output
    assert written == [2, 4]
    found = benchmarks.read("mxint8_cuda")
    assert (found["run"]["machine"], found["run"]["contention"]) == ("a GPU", 0.02)
    assert found["run"]["versions"].keys() >= {"torch", "CUDA"}
    assert [row["work"] for row in found["rows"]] == ["one", "one", "three", "three"]
    assert found["rows"][0].keys() >= {"kernel", "rows", "bytes", "samples_us", "variant"}


@pytest.mark.usefixtures("one_gpu")
def test_a_run_leaves_what_is_published_alone_unless_it_is_asked_to(tmp_path):
    assert CliRunner().invoke(on_gpu.main, []).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_each_result_of_a_graph_has_memory_of_its_own_and_a_sample_has_eight_replays(monkeypatch):
    results: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    replays: list[int] = []

    def call(i: int) -> torch.Tensor:
        y = torch.full((8,), float(i))
        results.append(weakref.ref(y))
        return y

    @contextlib.contextmanager
    def graph(_):
        results.clear()
        yield
        alive.append(sum(y() is not None for y in results))

    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    made = SimpleNamespace(replay=lambda: replays.append(1))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: made)
    on_gpu.captured(call, 5)()
    assert alive == [5]
    assert len(replays) == 8


def test_without_a_gpu_the_benchmark_ends_in_one_line():
    if no_device({"device": "cuda"}) is None:
        pytest.skip("there is a CUDA GPU")
    done = CliRunner().invoke(on_gpu.main, ["--within", "9", "--publish"])
    assert done.exit_code == 1
    assert done.output == "no CUDA GPU is visible to torch here; run this where one is\n"
    assert "--within" in CliRunner().invoke(on_gpu.main, ["--within", "0"]).output


def test_bytes_are_those_that_a_call_cannot_avoid():
    assert on_gpu.linear_bytes(2, 8, 4, 2, 2) == 2 * (4 + 8) * 2 + 4 * 8 * 2
    weight = on_gpu.linear_bytes(0, 4096, 4096, 2, 1 + 1 / 32)
    assert weight == 4096 * 4096 + 4096 * 128
    assert on_gpu.linear_bytes(0, 4096, 4096, 2, 2) / weight == pytest.approx(1.94, abs=0.005)


def test_the_sweep_takes_each_number_of_splits_once():
    gpu = mxint8_cuda.Gpu(132, clusters=True, bandwidth=3e12, l2_bytes=50 << 20)
    for rows in on_gpu.SWEPT_ROWS:
        for num_out, num_in in on_gpu.SHAPES:
            splits = [plan.grid[1] for plan in on_gpu.plans(rows, num_out, num_in, gpu)]
            assert splits == sorted(set(splits))
            assert (splits[0], splits[-1]) == (1, 8)
            own = mxint8_cuda.linear_plan(rows, num_in, num_out, is_float=False, gpu=gpu).grid[1]
            assert own in splits or own > 8
    eight_steps = on_gpu.plans(8, 4096, 4096, gpu)
    assert [plan.grid[1] for plan in eight_steps] == [1, 2, 3, 4, 8]


@pytest.mark.parametrize("dtype", on_gpu.DTYPES)
def test_the_check_takes_rounding_for_right_and_a_missing_split_for_wrong(dtype):
    mantissas, scales = on_gpu.weight(40, 4096, 32, device="cpu")
    x = torch.randn(3, 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    dense = mxint8.values(mantissas, scales, 32)
    right = F.linear(x.float(), dense).to(dtype)
    assert on_gpu.error_of(right, x, mantissas, scales, 32) < 1e-5
    part = F.linear(x.float()[:, 512:], dense[:, 512:]).to(dtype)
    assert on_gpu.error_of(part, x, mantissas, scales, 32) > 1e-4
    assert math.isnan(on_gpu.error_of(right * math.nan, x, mantissas, scales, 32))
    assert on_gpu.wrong_codes(mxint8.dequantize(*on_gpu.every_code(), 256)) == 0
    assert on_gpu.wrong_codes(mxint8.dequantize(*on_gpu.every_code(), 256) * 2) > 60000


def test_a_page_shows_what_a_gpu_has_done_so_far():
    (row,) = lab4_mxint8.on_gpu(Records())
    command = "`python cli.py bench mxint8_cuda --publish`"
    assert row == {"CUDA GPU": f"not run here; {command} runs it on one"}

    done = list(on_gpu.works())[:2] + list(on_gpu.works())[-1:]
    rows = [row for one in done for row in rows_of(one)]
    peers = {"CUDA": "13.0"}
    benchmarks.publish("mxint8_cuda", rows, machine="a GPU", peers=peers, contention=0.0)
    dequantized, multiplied = lab4_mxint8.on_gpu(Records())
    for row, name in ((dequantized, "dequantize 256 Mi, groups of 32"), (multiplied, LINEAR)):
        title, *over = row
        assert title.startswith("a GPU, CUDA 13.0, 20")
        assert row[title] == name
        assert over == ["over a copy", "over cuBLAS BF16", "over cuBLAS FP32"]
    assert f"{dequantized['over a copy']}" == "2 ×"
    assert f"{multiplied['over cuBLAS BF16']}" == "2 ×"
    assert multiplied["over cuBLAS FP32"] == "–"  # it was cut off


LINEAR = "Linear 4,096 → 4,096, 1 row"
