"""Results of `benchmarks/` that are kept with the project and shown on its pages.

Benchmarks time our code against other packages, which the logbook itself does not need, so they are
run by hand. Kept are the samples; pages compute ratios and intervals of them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from madl.errors import MadlError
from madl.files import LIBRARY, read_text, write_atomically
from madl.logbook.arms import TimedArm
from madl.logbook.records import Pending, Row
from madl.logbook.values import per_cent

KEPT = 40  # samples kept of a variant over all its processes, evenly spaced in time
ROOT = Path(os.environ.get("MADL_ROOT") or LIBRARY)
FOLDER = ROOT / "docs" / "data" / "benchmarks"


def publish(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    machine: str,
    peers: Mapping[str, str],
    contention: float | None,
) -> Path:
    """Write rows, with the machine, versions and today's date, as `docs/data/benchmarks/NAME.json`.

    `peers` are versions of what is compared, by name; `contention` is the share (0…1) of
    the machine that others used. Returns the path.
    """
    run = {
        "machine": machine,
        "versions": dict(peers),
        "date": datetime.now(UTC).date().isoformat(),
        "contention": contention,
    }
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"run": run, "rows": list(rows)}, indent=1) + "\n")
    return path


def timed_rows(
    work: str, samples_s: Mapping[str, Sequence[Sequence[float]]]
) -> list[dict[str, Any]]:
    """A row for each variant: its samples by process, thinned to about `KEPT`, in µs a call."""
    rows: list[dict[str, Any]] = []
    for variant, processes in samples_s.items():
        most = -(-KEPT // len(processes))
        kept = [taken[:: -(-len(taken) // most)] for taken in processes]
        samples = [[float(f"{1e6 * s:.4g}") for s in taken] for taken in kept]
        rows.append({"work": work, "variant": variant, "samples_us": samples})
    return rows


def arms(name: str) -> dict[str, dict[str, TimedArm]]:
    """The timings of a published benchmark: work → variant → timed arm.

    Raises:
        Pending: it was never published.
    """
    works: dict[str, dict[str, TimedArm]] = {}
    published = read(name)
    contention = published["run"]["contention"]
    for row in published["rows"]:
        works.setdefault(row["work"], {})[row["variant"]] = arm(row, contention=contention)
    return works


def arm(row: Mapping[str, Any], *, contention: float | None) -> TimedArm:
    """The timed arm of one row that `timed_rows` made."""
    taken = ([1e-6 * us for us in process] for process in row["samples_us"])
    runs = tuple({"samples_s": samples, "contention": contention} for samples in taken)
    return TimedArm(label=row["variant"], records=(), runs=runs)


def run_table(name: str) -> Sequence[Row]:
    """Rows of a table about a benchmark's run: machine, versions of peers, date, load by others."""
    run = read(name)["run"]
    share = run["contention"]
    busy = "unknown" if share is None else f"{per_cent(share)} of the machine"
    return [
        {"": "Machine", " ": run["machine"]},
        {"": "Peers", " ": ", ".join(f"{peer} {v}" for peer, v in run["versions"].items())},
        {"": "Date", " ": run["date"]},
        {"": "Used by other processes", " ": busy},
    ]


def read(name: str) -> dict[str, Any]:
    """The last published run of a benchmark: its `rows`, and the machine (`run`).

    Raises:
        Pending: it was never published.
        MadlError: it cannot be read.
    """
    path = FOLDER / f"{name}.json"
    if not path.exists():
        raise Pending(f"a published run of the benchmark {name}")
    to_do = "restore it, or publish the run again"
    try:
        published: Any = json.loads(read_text(path, to_do))
    except ValueError:
        published = None
    if not isinstance(published, dict) or not {"run", "rows"} <= published.keys():
        raise MadlError(f"{path} is not a published run; {to_do}")
    return cast("dict[str, Any]", published)
