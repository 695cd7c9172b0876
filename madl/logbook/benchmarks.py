"""Runs of `benchmarks/` that are kept with the project and shown on its pages.

Benchmarks hold peers beside ours that the logbook itself does not need, so they are run by hand.
What is kept are samples; a page says what follows from them.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from madl.errors import MadlError
from madl.files import read_text, write_atomically
from madl.logbook.arms import TimedArm
from madl.logbook.records import Pending, Row
from madl.logbook.stats import per_cent
from madl.machine import device

OUTCOMES = ("supported", "undecided", "refuted", "beside other work")  # of a claim, run again
KEPT = 40  # samples of a variant, from all over its run, shared among its processes
ROOT = Path(os.environ.get("MADL_ROOT") or Path(__file__).resolve().parents[2])
FOLDER = ROOT / "docs" / "data" / "benchmarks"


def publish(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    machine: str,
    peers: Sequence[str],
    contention: float | None,
    folder: Path | None = None,
    **more: Any,
) -> Path:
    """Write the rows, and the machine, versions and day that they hold for, where pages look."""
    run = {
        "machine": machine,
        "versions": {peer: device.version(peer) for peer in peers},
        "date": datetime.now(UTC).date().isoformat(),
        "contention": contention,
    }
    path = (folder or FOLDER) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"run": run, **more, "rows": list(rows)}, indent=1) + "\n")
    return path


def timed(work: str, samples_s: Mapping[str, Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """A row for each variant: its samples by process, interleaved with the others', in
    microseconds a call.
    """
    made: list[dict[str, Any]] = []
    for variant, processes in samples_s.items():
        most = -(-KEPT // len(processes))
        kept = [taken[:: -(-len(taken) // most)] for taken in processes]
        samples = [[float(f"{1e6 * s:.4g}") for s in taken] for taken in kept]
        made.append({"work": work, "variant": variant, "samples_us": samples})
    return made


def arms(name: str) -> dict[str, dict[str, TimedArm]]:
    """Work → variant → its times.

    Raises:
        Pending: it was never published.
    """
    found: dict[str, dict[str, TimedArm]] = {}
    published = read(name)
    contention = published["run"]["contention"]
    for row in published["rows"]:
        found.setdefault(row["work"], {})[row["variant"]] = arm(row, contention=contention)
    return found


def arm(row: Mapping[str, Any], *, contention: float | None) -> TimedArm:
    """The times of one row that `timed` made."""
    taken = ([1e-6 * us for us in process] for process in row["samples_us"])
    runs = tuple({"samples_s": samples, "contention": contention} for samples in taken)
    return TimedArm(label=row["variant"], records=(), runs=runs)


def run_table(name: str) -> Sequence[Row]:
    """On which machine, with which peers, and how busy it was."""
    run = read(name)["run"]
    share = run["contention"]
    busy = "unknown" if share is None else f"{per_cent(share)} of the machine"
    return [
        {"": "Machine", " ": run["machine"]},
        {"": "Peers", " ": ", ".join(f"{peer} {v}" for peer, v in run["versions"].items())},
        {"": "Date", " ": run["date"]},
        {"": "Used by other processes", " ": busy},
    ]


def repeated(stem: str, *, machine: str, code: str) -> dict[str, dict[str, Any]]:
    """A page's claims that `repeats` has of that machine and code, by claim: outcomes, and the
    effects as log ratios, as only claims on times are run again.
    """
    try:
        found = read("repeats")
    except (Pending, MadlError):  # what is broken is said on the machine's page
        return {}
    if (found["run"]["machine"], found.get("code", {}).get(stem)) != (machine, code):
        return {}
    return {
        row["claim"].removeprefix(f"{stem}."): row
        | {"effects": list(map(math.log, row["effects"]))}
        for row in found["rows"]
        if row["claim"].startswith(f"{stem}.")
    }


def read(name: str, folder: Path | None = None) -> dict[str, Any]:
    """The last published run: its `rows`, the machine (`run`), and what was kept beside them.

    Raises:
        Pending: it was never published.
        MadlError: it cannot be read.
    """
    path = (folder or FOLDER) / f"{name}.json"
    if not path.exists():
        raise Pending(f"a published run of the benchmark {name}")
    to_do = "restore it, or publish the run again"
    try:
        found: Any = json.loads(read_text(path, to_do))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"run", "rows"} <= found.keys():
        raise MadlError(f"{path} is not a published run; {to_do}")
    return cast("dict[str, Any]", found)
