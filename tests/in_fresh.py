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


def spin(seconds: float, started=None) -> None:
    if started is not None:
        started.set()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
