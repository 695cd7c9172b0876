"""Results on disk: one JSON file a case, written by rename; merging machines is copying files.

A record is a case, what it gave, and the run that gave it. The codec is versioned and refuses what
it does not know. NaN never enters a file. What an experiment reads is `Records`: there, all that
was judged on the test split is sealed (`stats.Estimate`), so that nothing is chosen by it.

Units: `seconds` wall clock; `contention` the share (0…1) of the machine that others used meanwhile.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, overload

from filelock import FileLock

from madl.errors import MadlError
from madl.logbook.stats import Estimate, Outcomes, Unit

SCHEMA = 1

Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]
Values = Mapping[str, Any]  # what a case gave, as JSON
Row = Mapping[str, Any]  # of a table or chart: column title → scalar, Estimate or Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One unit of work: some seconds to some minutes, done once, never repeated.

    `key` is made of everything that defines the result.
    """

    experiment: str
    params: Params
    version: int = 1

    @property
    def key(self) -> str:
        identity = {"experiment": self.experiment, "params": self.params, "version": self.version}
        text = json.dumps(identity, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where a record comes from; never part of its key."""

    started: str  # UTC, ISO 8601
    commit: str
    dirty: bool
    code: str  # digest of the sources that could change a result
    command: str
    host: str
    device: str
    cpu: str
    threads: int
    python: str
    torch: str
    cuda: str | None
    contention: float | None
    claims: Mapping[str, str] = field(default_factory=dict)  # claim → digest, as it was worded then


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One case's result: values when it is ok, the error's one line when it is not."""

    case: Case
    status: Literal["ok", "failed", "skipped"]
    values: Mapping[str, Any]
    seconds: float
    run: Run
    error: str | None = None

    def __post_init__(self) -> None:
        if self.status not in ("ok", "failed", "skipped"):
            raise ValueError(f"status is ok, failed or skipped, got {self.status!r}")

    @property
    def place(self) -> str:
        """The device that its parameters ask for: "CPU", or a GPU by its name."""
        return "CPU" if self.case.params.get("device", "cpu") == "cpu" else self.run.device


class Pending(Exception):
    """A record that a claim or figure needs is not there yet."""


class Records(Sequence[Record]):
    """What claims, charts and plans read: results, and the planned cases that have none.

    `arm` and `best` (see `arms`) are the ways to a model's test outcomes.
    """

    def __init__(self, records: Iterable[Record] = (), missing: Iterable[Case] = ()) -> None:
        self._records = tuple(records)
        self.missing = tuple(missing)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def where(self, **params: Scalar) -> "Records":
        """Those whose parameters have these values."""

        def fits(case: Case) -> bool:
            return all(k in case.params and case.params[k] == v for k, v in params.items())

        return Records(
            (r for r in self if fits(r.case)), (case for case in self.missing if fits(case))
        )

    def of(self, experiment: str) -> "Records":
        """Those of one experiment."""
        return Records(
            (r for r in self if r.case.experiment == experiment),
            (case for case in self.missing if case.experiment == experiment),
        )

    def without(self, param: str) -> "Records":
        """Those that have no such parameter."""
        return Records(
            (r for r in self if param not in r.case.params),
            (case for case in self.missing if param not in case.params),
        )

    def all(self, **params: Scalar) -> "Records":
        """All of them, one or more.

        Raises:
            Pending: one is not there yet, or none is planned.
        """
        found = self.where(**params)
        if not found or found.missing:
            raise Pending(", ".join(f"{k}={v}" for k, v in params.items()) or "no record")
        return found

    def one(self, **params: Scalar) -> Record:
        """The only one of them.

        Raises:
            Pending: it is not there yet.
        """
        found = self.all(**params)
        assert len(found) == 1, (params, [r.case.params for r in found])
        return found[0]

    def each(self, param: str) -> list[Any]:
        """The distinct values of a parameter among what is planned, sorted."""
        cases = [*(r.case for r in self), *self.missing]
        return sorted({case.params[param] for case in cases if param in case.params})


def sealed(record: Record) -> Record:
    """The record as an experiment reads it: nothing can be chosen by what the test split gave.

    Wherever `outcomes` stand among the values, they become `Outcomes`, and the accuracy and loss
    beside them estimates that can be printed and drawn and not compared.
    """
    return replace(record, values=_sealed(record.values))


def _sealed(values: Any) -> Any:
    if isinstance(values, list):
        return [_sealed(value) for value in values]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(values, Mapping):
        return values
    found: dict[str, Any] = {str(key): _sealed(value) for key, value in values.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(judged := found.get("outcomes"), Mapping) and "bits" in judged:
        outcomes = Outcomes.from_json(judged)  # pyright: ignore[reportUnknownArgumentType]
        found |= {"outcomes": outcomes, "accuracy": outcomes.accuracy}
        if isinstance(loss := found.get("loss"), float):
            found["loss"] = Estimate(loss, None, Unit.NATS, outcomes.n)
    return found


def encode(record: Record) -> str:
    """Canonical JSON on one line."""
    data = {"schema": SCHEMA, **dataclasses.asdict(record)}
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))


def decode(text: str, origin: str) -> Record:
    """The record that `encode` wrote; `origin` names it in errors.

    Raises:
        MadlError: truncated, of another schema, or with fields this version does not know.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        schema = data.pop("schema")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise MadlError(
            f"{origin} is not a whole record ({error}); delete it and its case will run again"
        ) from error
    if schema != SCHEMA:
        raise MadlError(
            f"{origin} has schema {schema}, this version reads {SCHEMA}; "
            "use the version that wrote it, or delete it and its case will run again"
        )
    try:
        case, run = Case(**data.pop("case")), Run(**data.pop("run"))
        return Record(case=case, run=run, **data)
    except (TypeError, ValueError, KeyError) as error:
        raise MadlError(
            f"{origin} has a field this version does not know ({error}); "
            "delete it and its case will run again"
        ) from error


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step: a reader or a killed writer never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Source(Protocol):
    """Something that has records: this machine's store, or published evidence."""

    def get(self, case: Case) -> Record | None: ...


def select(source: Source, cases: Iterable[Case]) -> Records:
    """The good results among these cases, in their order, sealed; the others are missing."""
    found = [(case, source.get(case)) for case in cases]
    good = {case.key: record for case, record in found if record and record.status == "ok"}
    return Records(map(sealed, good.values()), (case for case, _ in found if case.key not in good))


@dataclass(frozen=True)
class Published:
    """Committed evidence of one machine."""

    by_key: Mapping[str, Record]

    def get(self, case: Case) -> Record | None:
        return self.by_key.get(case.key)


@dataclass(frozen=True)
class Store:
    """The records and artifacts under one `.madl` folder."""

    root: Path

    def _path(self, case: Case) -> Path:
        return self.root / "records" / case.experiment / f"{case.key}.json"

    def get(self, case: Case) -> Record | None:
        """The case's record, whatever its status.

        Raises:
            MadlError: the file is not a record of this version.
        """
        path = self._path(case)
        return decode(path.read_text("utf-8"), str(path)) if path.exists() else None

    def put(self, record: Record) -> None:
        write_atomically(self._path(record.case), encode(record) + "\n")

    def artifact(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder that `build` filled, once, under that name; whole or not there at all."""
        folder = self.root / "artifacts" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                for left in folder.parent.glob(f".{name}-*"):  # by a killed builder
                    shutil.rmtree(left)
                with tempfile.TemporaryDirectory(
                    dir=folder.parent, prefix=f".{name}-", ignore_cleanup_errors=True
                ) as work:
                    build(Path(work) / "artifact")
                    os.replace(Path(work) / "artifact", folder)
        return folder

    def folder(self, name: str) -> Path:
        """A folder that outlives a killed case, for work that the next try goes on with.

        Whoever writes there sees to it that what a killed writer left can be read.
        """
        folder = self.root / "folders" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def read_published(path: Path) -> list[Record]:
    """Committed evidence: one record a line."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines()
    return [decode(line, f"{path}:{i}") for i, line in enumerate(lines, 1)]


def publish(records: Sequence[Record], path: Path) -> int:
    """Merge records into committed evidence; a machine's newer result replaces its older one."""
    merged = {(r.run.host, r.case.key): r for r in [*read_published(path), *records]}
    lines = [encode(merged[key]) for key in sorted(merged)]
    write_atomically(path, "".join(line + "\n" for line in lines))
    return len(records)
