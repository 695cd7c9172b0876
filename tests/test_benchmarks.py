"""Benchmarks: what their command line refuses, and what a page reads from published runs."""

import pytest

from experiments.formats import page as formats
from madl.logbook import benchmarks
from madl.logbook.records import Records

TRAINING = "training step, batch 1"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)


def publish(samples_s: dict[str, list[list[float]]]) -> None:
    rows = benchmarks.timed(TRAINING, samples_s)
    benchmarks.publish("formats", rows, machine="one", peers=(), contention=0.0)


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
