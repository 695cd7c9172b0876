"""The clock, the device and the meters; nothing here asserts how fast anything is."""

import multiprocessing
import os
import random
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from madl.machine import contention, device, sources, timing
from madl.machine.contention import ContentionMeter, GpuMeter
from tests.in_fresh import spin


def test_variants_take_turns_in_changing_order():
    calls: list[str] = []
    fns = {name: (lambda n=name: (calls.append(n), time.sleep(0.002))) for name in "abc"}
    measured = timing.compare(fns, budget_s=0.0, min_samples=20)
    timed = calls[-60:]
    rounds = [tuple(timed[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 1
    assert {len(m.samples_s) for m in measured.values()} == {20}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/stat")
def test_the_meter_sees_other_processes_and_not_our_own_work():
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    other = spawn.Process(target=spin, args=(60.0, started))
    other.start()
    assert started.wait(60)
    meter = ContentionMeter.start()
    time.sleep(0.5)
    beside_another = meter.share()
    other.kill()
    other.join()
    assert beside_another is not None
    assert beside_another >= 0.5 / device.num_cores()


def test_what_we_used_ourselves_is_no_contention(monkeypatch):
    monkeypatch.setattr(contention, "_busy_seconds", iter((50.0, 57.0)).__next__)
    monkeypatch.setattr(contention, "_own_seconds", iter((5.0, 9.0)).__next__)
    monkeypatch.setattr(contention, "_waited_seconds", iter((1.0, 1.5)).__next__)
    monkeypatch.setattr(
        contention, "time", SimpleNamespace(perf_counter=iter((0.0, 10.0)).__next__)
    )
    monkeypatch.setattr(contention, "os", SimpleNamespace(cpu_count=lambda: 4))
    monkeypatch.setattr(contention, "num_cores", lambda: 4)
    assert ContentionMeter.start().share() == (7.0 - 4.0) / 10 / 4


def test_seeding_repeats_every_generator():
    def draw(seed):
        device.seed_everything(seed)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert draw(3) == draw(3)
    assert all(a != b for a, b in zip(draw(3), draw(4)))


def test_the_code_digest_follows_what_can_change_a_result(tmp_path):
    """What is imported at any distance counts, and the kernels it names; no claim or plan."""

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    judged = (
        "@page.claim\ndef claim(r):\n    from madl.formats import other\n    return other.said\n"
        "for reader in (1, 2):\n    page.table(reader)\n"
        "@page.cases\ndef cases(plan):\n    from madl.formats import other\n    return other.said\n"
    )
    text = "@page.run\ndef run():\n    from madl.formats import f\n    return f.go() + LIMIT\n"
    text += "\nLIMIT = 1\n"
    f = "from kernels import k\nfrom madl.logbook import l\n\ndef go():\n    return k.SOURCE, l.x\n"
    k = "SOURCE = 'k.cpp'\nfresh.call('madl.far.away:measure', {})\n"
    write("experiments/a/page.py", text)
    write("madl/formats/__init__.py", "")
    write("madl/formats/f.py", f)
    write("madl/formats/other.py", "said = 1")
    write("madl/logbook/l.py", "from madl.formats import other\nx = other.said")
    write("kernels/k.py", k)
    write("kernels/k.cpp", '#include "k.h"\n#include <vector>')
    write("kernels/k.h", "1")
    away = "def measure():\n    call(f'{__name__}:{which}')\n\ndef helper():\n    return 1\n"
    write("madl/far/away.py", away)
    first = sources.digest(tmp_path, "a")
    unrelated = {
        "madl/formats/other.py": "said = 2",
        "madl/logbook/l.py": "x = 2",
        "experiments/a/page.py": '"""Worded anew."""\n' + judged + text,
    }
    for name, changed in unrelated.items():
        write(name, changed)
        assert sources.digest(tmp_path, "a") == first, name
    related = {
        "experiments/a/page.py": text.replace("LIMIT = 1", "LIMIT = 2"),
        "madl/formats/f.py": f.replace("l.x", "l.x, 1"),
        "kernels/k.h": "2",
        "kernels/k.cpp": '#include "k.h"',
        "kernels/k.py": k + "\nprint(1)\n",
        "madl/far/away.py": away.replace("return 1", "return 2"),
    }
    for name, changed in related.items():
        write(name, changed)
        now = sources.digest(tmp_path, "a")
        assert now != first, name
        first = now


ME, PARENT = os.getpid(), os.getppid()


class FakeNvml:
    """NVML as far as the meter asks it; `idle` is what the GPU does while we wait."""

    NVMLError = LookupError

    def __init__(self, busy, holders=(ME,), idle=None):
        self.busy = [SimpleNamespace(pid=pid, smUtil=share) for pid, share in busy]
        self.holders = [SimpleNamespace(pid=pid) for pid in holders]
        self.idle = idle

    def nvmlDeviceGetProcessUtilization(self, handle, since_us):
        if not self.busy:
            raise self.NVMLError("not found")
        return self.busy

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self.holders

    def nvmlDeviceGetUtilizationRates(self, handle):
        if self.idle is None:
            raise self.NVMLError("not supported")
        return SimpleNamespace(gpu=self.idle)


@pytest.mark.parametrize(
    ("nvml", "share"),
    [
        (FakeNvml([(ME, 90), (7, 10), (7, 30), (8, 5)]), 0.35),
        (FakeNvml([(ME, 90)]), 0.0),
        (FakeNvml([(ME, 90), (PARENT, 40)]), 0.0),
        (FakeNvml([]), 0.0),
        (FakeNvml([], holders=(ME, PARENT)), 0.0),  # which started us, and waits
        (FakeNvml([(7, 40)], holders=(7,)), 0.0),  # us, under another number
        (FakeNvml([], holders=(ME, 7), idle=0), 0.0),  # too short for a sample
        (FakeNvml([(7, 40)], holders=(7, 8), idle=25), 0.25),  # it does not see us as we do
        (FakeNvml([], holders=(), idle=0), 0.0),
        (FakeNvml([], holders=()), None),
        (None, None),
    ],
)
def test_a_gpu_shared_with_others_says_so_and_an_unknown_one_is_unknown(nvml, share, monkeypatch):
    monkeypatch.setattr("madl.machine.contention.SAMPLED_S", 0.0)
    assert GpuMeter(nvml, None, 0).share() == share
