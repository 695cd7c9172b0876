"""What tests run in processes of their own, each of which would pay for a heavy import here."""

import os
import time
from pathlib import Path


def look_around(argument):
    """Its cache folder, and what is in it; it leaves something there."""
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    inside = [path.name for path in folder.glob("*")]
    folder.mkdir(exist_ok=True)
    (folder / "kernel").write_text("made here")
    return {**argument, "cache": str(folder), "inside": inside}


def count_kernels(argument):
    """How many files it finds in its cache folder."""
    inside = look_around({})["inside"]
    return {"measurements": {"kernels": {"found": len(inside)}}}


def fail(argument):
    raise RuntimeError(f"cannot do {argument['what']}")


def fail_in_the_second(argument):
    if argument["process"]:
        return {"failed": f"process {argument['process']}"}
    return {"measurements": {}}


def measure_ones(argument):
    """An addition, timed."""
    import torch

    from madl.machine import timing

    ones = torch.ones(argument["size"])
    subjects = {"ones": timing.observe(lambda: ones, [ones])}
    measured = timing.compare({"ones": lambda: ones + 1}, budget_s=0.0, subjects=subjects)
    return {"measurements": {"ones": measured["ones"].to_json()}, "process": argument["process"]}


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
