"""Whether code that has changed still gives the values that stand in the evidence.

Cases that the evidence has by earlier code are run three times on this machine, from empty stores
and with as many threads: twice by that code, in a copy of its commit, and once by today's. Equal to
the digit in everything that is no time, and with every changed line of Python executed, the two are
equivalent. The cases are drawn by a hash of both codes, at least one of each kind. Timed cases are
not drawn: to measure them again is cheap.

Not handled: changed C++, CUDA and Verilog is held by the values alone; GPUs.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from madl.errors import MadlError
from madl.files import read_text
from madl.logbook import equivalences
from madl.logbook.equivalences import Equivalence, differences
from madl.logbook.records import Case, Record, decode, published_by_machine
from madl.machine import device as machine
from madl.machine import sources, syntax
from madl.running.project import Project

log = logging.getLogger(__name__)

COVERAGE = """\
[run]
source = {root}
data_file = {data}
parallel = true
patch = subprocess
"""


@dataclass(frozen=True)
class Earlier:
    """The good records of an experiment by one earlier state of the code."""

    experiment: str
    code: str
    records: Sequence[Record]

    @property
    def commits(self) -> list[str]:
        """Those that hold the code, as far as the records know."""
        return list(dict.fromkeys(r.run.commit for r in self.records if not r.run.dirty))


def earlier_states(project: Project, names: Sequence[str]) -> list[Earlier]:
    """The states of the code that the evidence of these experiments comes from, and of their cases
    on the tuning seed, most records first.

    Published and own records count; those of timed cases, and of other devices than the CPU, are
    left out.
    """
    for name in names:
        project.load(name)
    asked = {*names, *(f"{name}{sources.TUNING}" for name in names)}
    known = asked.intersection(project.names())
    by_state: dict[tuple[str, str], list[Record]] = {}
    for record in _evidence(project):
        name = record.case.experiment
        if name in known and _is_comparable(project, record):
            by_state.setdefault((name, record.run.code), []).append(record)
    states = [Earlier(*state, records) for state, records in by_state.items()]
    states = [state for state in states if state.code != project.code(state.experiment)]
    return sorted(states, key=lambda state: (state.experiment, -len(state.records)))


def _evidence(project: Project) -> Iterator[Record]:
    machines, _ = published_by_machine(project.docs / "data")
    for published in machines.values():
        yield from published.values()
    for path in sorted((project.state / "records").glob("*/*.json")):
        with contextlib.suppress(MadlError):  # told where the record is read
            yield decode(read_text(path, ""), str(path))


def _is_comparable(project: Project, record: Record) -> bool:
    is_on_cpu = record.case.params.get("device", "cpu") == "cpu"
    return record.status == "ok" and is_on_cpu and not project.runs_alone(record.case)


def draw(state: Earlier, after: str, num_cases: int) -> list[Case]:
    """At least one case of each kind, and as many as are asked for.

    Cases are of one kind that differ in numbers alone.
    """
    cases = {record.case.key: record.case for record in state.records}

    def rank(key: str) -> str:
        return hashlib.sha256(f"{state.code} {after} {key}".encode()).hexdigest()

    ranked = [cases[key] for key in sorted(cases, key=rank)]
    first_of_kind = {_kind(case): case for case in reversed(ranked)}
    others = [case for case in ranked if case not in first_of_kind.values()]
    return [*first_of_kind.values(), *others[: max(num_cases - len(first_of_kind), 0)]]


def _kind(case: Case) -> tuple[tuple[str, object], ...]:
    named = {k: v for k, v in case.params.items() if not isinstance(v, int | float)}
    return tuple(sorted(named.items(), key=lambda item: item[0]))


def verify(project: Project, state: Earlier, *, num_cases: int) -> Equivalence:
    """Compare one earlier state of the code with today's, and keep what comes out.

    Raises:
        MadlError: the earlier code is not to be had, or a case fails.
    """
    if importlib.util.find_spec("coverage") is None:
        raise MadlError("verify needs coverage; run `pip install -r requirements-dev.txt`")
    name, today = state.experiment, project.code(state.experiment)
    cases = draw(state, today, num_cases)
    with tempfile.TemporaryDirectory(prefix="madl-verify-", ignore_cleanup_errors=True) as folder:
        copy = _copy(project.root, state, Path(folder) / "earlier")
        runs = [
            _executed(root, cases, Path(folder) / label)
            for label, root in (
                *(("by earlier code", copy), ("by earlier code again", copy)),
                ("by today's code", project.root),
            )
        ]
        first, again, after = runs
        if len({(r.run.threads, r.run.kernels) for run in runs for r in run.records}) > 1:
            raise MadlError(f"{name}: the two codes took other kernels; nothing can be compared")
        changes = _changes(copy, project.root, name)
        missed = [
            f"{path}:{line}"
            for path, old, new in changes
            for lines, run in ((old, first), (new, after))
            for line in sorted(lines - run.lines.get(path, set()))
        ]
        native = _natives(copy, name) ^ _natives(project.root, name)
    run = after.records[0].run
    equivalence = Equivalence(
        experiment=name,
        before=state.code,
        after=today,
        keys=[case.key for case in cases],
        drawn_from=len({record.case.key for record in state.records}),
        unstable=_differences(first.records, again.records),
        different=_differences(first.records, after.records),
        not_executed=missed,
        changed_lines=sum(len(old) + len(new) for _, old, new in changes),
        native=sorted({path for path, _ in native}),
        cpu=run.cpu,
        threads=run.threads,
        kernels=run.kernels,
        python=run.python,
        torch=run.torch,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    equivalences.append(project.docs / "data", equivalence)
    return equivalence


def _copy(root: Path, state: Earlier, folder: Path) -> Path:
    """A commit's files, whose digest is that of the records.

    Raises:
        MadlError: no commit has that code.
    """
    if not state.commits:
        raise MadlError(
            "not to be verified: it ran from files that were not committed; run it again"
        )
    for commit in state.commits:
        archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True)
        if archive.returncode != 0:
            continue
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
            files.extractall(copy := folder / commit)
        code = "import sys; from pathlib import Path; from madl.machine import sources; "
        code += "print(sources.digest(Path.cwd(), sys.argv[1]))"
        printed = _python(copy, "-c", code, state.experiment).stdout
        if printed.strip() == state.code and (copy / "madl/running/cases.py").is_file():
            return copy
    commits = ", ".join(commit or "unknown" for commit in state.commits)
    raise MadlError(
        f"not to be verified: no commit of its records ({commits}) is here and holds that code; "
        "run it again, or fetch the whole history"
    )


@dataclass(frozen=True)
class _Run:
    """The records of the drawn cases by one state of the code, and which lines were executed."""

    records: Sequence[Record]
    lines: Mapping[Path, set[int]]  # by the path below the root


def _executed(root: Path, cases: Sequence[Case], folder: Path) -> _Run:
    """Raises: MadlError: the cases cannot be executed; one that fails gives a record."""
    import coverage

    folder.mkdir()
    settings, records = folder / "coverage.ini", folder / "records.jsonl"
    settings.write_text(COVERAGE.format(root=root, data=folder / "lines"), "utf-8")
    (folder / "cases.json").write_text(json.dumps([*map(dataclasses.asdict, cases)]), "utf-8")
    started = time.perf_counter()
    arguments = (folder / "cases.json", folder / "store", records, machine.num_cores())
    done = _python(
        *(root, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "madl.running.cases"),
        *map(str, arguments),
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise MadlError(f"the cases cannot be executed in {root}: {lines[-1]}")
    results = [decode(line, str(records)) for line in records.read_text("utf-8").splitlines()]
    seconds = time.perf_counter() - started
    log.info("%s: %d cases %s, %.0f s", cases[0].experiment, len(cases), folder.name, seconds)
    collected = coverage.Coverage(data_file=folder / "lines", config_file=str(settings))
    collected.combine([str(folder)])
    data, root = collected.get_data(), root.resolve()  # coverage names files without links
    measured = {Path(file): set(data.lines(file) or ()) for file in data.measured_files()}
    return _Run(results, {file.relative_to(root): lines for file, lines in measured.items()})


def _python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = filter(None, (str(root), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True
    )


def _changes(old: Path, new: Path, name: str) -> list[tuple[Path, set[int], set[int]]]:
    """The changed lines of every file of Python that the experiment reaches before or after."""
    paths = {p.relative_to(root) for root in (old, new) for p in sources.reached(root, name)}
    paths |= {Path("experiments", name.removesuffix(sources.TUNING), "page.py")}
    changes: list[tuple[Path, set[int], set[int]]] = []
    for path in sorted(path for path in paths if path.suffix == ".py"):
        texts = [sources.measuring_text(root / path) for root in (old, new)]
        before, after = syntax.changed_lines(*texts)
        if before or after:
            changes.append((path, before, after))
    return changes


def _natives(root: Path, name: str) -> set[tuple[str, str]]:
    """The files that are no Python, with what of them counts."""
    files = (path for path in sources.reached(root, name) if path.suffix != ".py")
    return {(str(path.relative_to(root)), syntax.native(path.read_text("utf-8"))) for path in files}


def _differences(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """The values that differ, times left out, as `key: path`; of a failed case its error."""
    return [
        f"{old.case.key}: {path}"
        for old, new in zip(before, after, strict=True)
        for path in ([new.error] if new.error else differences(old.values, new.values))
    ]
