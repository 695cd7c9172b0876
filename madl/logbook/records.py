"""Results on disk: one JSON file a case, written by rename; merging machines is copying files.

A record is a case, what it gave, and the run that gave it. The codec is versioned and refuses what
it does not know, what is of the wrong type or not a number (see `shapes`), and what is not the
record that the file's name promises; it refuses to write what it would not read. What an experiment
reads is `Records`: there, all that was judged on the test split is sealed (`stats.Estimate`), so
that nothing is chosen by it.

Units: `seconds` wall clock; `contention` the share (0…1) of the machine that others used meanwhile.
"""

import dataclasses
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, Protocol, overload

from filelock import FileLock

from madl.errors import MadlError
from madl.files import read_text, sync, sync_tree, tree_sha256, why, write_atomically
from madl.logbook import shapes
from madl.logbook.stats import Estimate, Outcomes, Unit

log = logging.getLogger(__name__)

SCHEMA = 1
RUNS_AGAIN = "delete it and its case will run again"
REMOVE_LINE = "restore the file, or remove the line and publish its results again"

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
    first_claims: Mapping[str, str] | None = None  # and when the case first had a result, if before
    kernels: str = ""  # the path that each C++ kernel took: sums differ between them
    lacked: str = ""  # a program that was missing: the case runs again where it is there

    @property
    def at_first(self) -> Mapping[str, str]:
        """The claims that were there before anybody had seen a result of the case."""
        return self.claims if self.first_claims is None else self.first_claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One case's result: values when it is ok, the error's one line when it is not."""

    case: Case
    status: Literal["ok", "failed", "skipped"]
    values: Mapping[str, Any]
    seconds: float
    run: Run
    error: str | None = None
    origin: str = field(default="", compare=False, repr=False)  # the file, and its line, or none

    def __post_init__(self) -> None:
        if self.status not in ("ok", "failed", "skipped"):
            raise ValueError(f"status is ok, failed or skipped, got {self.status!r}")

    @property
    def place(self) -> str:
        """The device that its parameters ask for: "CPU", or a GPU by its name."""
        return "CPU" if self.case.params.get("device", "cpu") == "cpu" else self.run.device


class Pending(Exception):
    """A record that a claim or figure needs is not there yet."""


class Unplanned(Pending):
    """No case has the parameters that a claim or figure asks for."""


class Failed(Pending):
    """What a record was to measure did not work where it ran, for the reason given."""


class Records(Sequence[Record]):
    """What claims, charts and plans read: results, and the planned cases that have none.

    `arm` (see `arms`) is the way to a model's test outcomes.
    """

    def __init__(
        self,
        records: Iterable[Record] = (),
        missing: Iterable[Case] = (),
        *,
        tuning: "Records | None" = None,
    ) -> None:
        self._records = tuple(records)
        self.missing = tuple(missing)
        self._tuning = tuning

    @property
    def tuning(self) -> "Records":
        """Those of the page's tuning seed, which stand apart from what was confirmed."""
        return self._tuning or Records()

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

        return self._those(lambda case: params.items() <= case.params.items())

    def of(self, experiment: str) -> "Records":
        """Those of one experiment."""
        return self._those(lambda case: case.experiment == experiment)

    def without(self, param: str) -> "Records":
        """Those that have no such parameter."""
        return self._those(lambda case: param not in case.params)

    def _those(self, fits: Callable[[Case], bool]) -> "Records":
        return Records((r for r in self if fits(r.case)), filter(fits, self.missing))

    def all(self, **params: Scalar) -> "Records":
        """All of them, one or more.

        Raises:
            Pending: one is not there yet; Unplanned: there is none to come.
        """
        found = self.where(**params)
        asked = ", ".join(f"{k}={v}" for k, v in params.items())
        if found.missing:
            raise Pending(asked or "no record")
        if not found:
            raise Unplanned(f"no case has {asked}" if asked else "no case")
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
    return replace(record, values=_sealed(record.values, record))


class Unusable(MadlError):
    """A record that was read, and whose values are not what they must be."""

    __str__ = Exception.__str__

    def __init__(self, record: Record, why: str) -> None:
        self.where = record.origin or f"the record {record.case.experiment}/{record.case.key}"
        self.mend = RUNS_AGAIN if self.where.endswith(".json") else REMOVE_LINE
        super().__init__(f"{self.where} cannot be used: {why}; {self.mend}")
        self.record = record


class NoSuchValue(Unusable, KeyError):
    """A record lacks a value that somebody reads."""

    def __init__(self, record: Record, name: str) -> None:
        super().__init__(record, f"there is no value {name}")
        self.name = name


class _SealedValues(dict[str, Any]):
    """Values that say whose they are when one is missing."""

    record: Record

    def __missing__(self, name: str) -> NoReturn:
        raise NoSuchValue(self.record, name)


def _sealed(values: Any, record: Record) -> Any:
    if isinstance(values, list):
        return [_sealed(value, record) for value in values]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(values, Mapping):
        return values
    found = _SealedValues({str(key): _sealed(value, record) for key, value in values.items()})  # pyright: ignore[reportUnknownVariableType]
    found.record = record
    if isinstance(judged := found.get("outcomes"), Mapping) and "bits" in judged:
        outcomes = Outcomes.from_json(judged)  # pyright: ignore[reportUnknownArgumentType]
        found |= {"outcomes": outcomes, "accuracy": outcomes.accuracy}
        if isinstance(loss := found.get("loss"), float):
            found["loss"] = Estimate(loss, None, Unit.NATS, outcomes.n)
    return found


def encode(record: Record) -> str:
    """Canonical JSON on one line.

    Raises:
        ValueError: values that `decode` would refuse.
    """
    _check_fields(record)
    shapes.check(record.values)
    data: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(record)}
    del data["origin"]
    if record.run.first_claims is None:
        del data["run"]["first_claims"]
    if not record.run.lacked:
        del data["run"]["lacked"]
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))


def decode(text: str, origin: str, mend: str = RUNS_AGAIN) -> Record:
    """The record that `encode` wrote; `origin` names it in errors, `mend` says what to do.

    Raises:
        MadlError: truncated, of another schema, with fields this version does not know, or with
            values that are not what they must be.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        schema = data.pop("schema")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise MadlError(f"{origin} is not a whole record ({error}); {mend}") from error
    if schema != SCHEMA:
        raise MadlError(
            f"{origin} has schema {schema}, this version reads {SCHEMA}; "
            f"use the version that wrote it, or {mend}"
        )
    try:
        case, run = Case(**data.pop("case")), Run(**data.pop("run"))
        data["origin"] = origin
        record = Record(case=case, run=run, **data)
    except (TypeError, ValueError, KeyError) as error:
        raise MadlError(
            f"{origin} has a field this version does not know ({error}); {mend}"
        ) from error
    try:
        _check_fields(record)
        shapes.check(record.values)
    except ValueError as error:
        raise MadlError(f"{origin} cannot be used: {error}; {mend}") from error
    return record


_TYPES: Mapping[type, Mapping[str, tuple[type, ...]]] = {
    Case: {"experiment": (str,), "params": (dict,), "version": (int,)},
    Run: {
        **dict.fromkeys(("started", "commit", "code", "command", "host", "device"), (str,)),
        **dict.fromkeys(("cpu", "python", "torch", "kernels", "lacked"), (str,)),
        **{"dirty": (bool,), "threads": (int,), "cuda": (str, NoneType), "claims": (dict,)},
        "first_claims": (dict, NoneType),
        "contention": (int, float, NoneType),
    },
    Record: {"values": (dict,), "seconds": (int, float), "error": (str, NoneType)},
}


def _check_fields(record: Record) -> None:
    """Raises: ValueError: which field is not of its type."""
    for part in (record.case, record.run, record):
        for name, types in _TYPES[type(part)].items():
            value: object = getattr(part, name)
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise ValueError(f"{name} is {shapes.shown(value)}")
    if not re.fullmatch(r"\w+", record.case.experiment):
        raise ValueError(f"experiment is {shapes.shown(record.case.experiment)}")
    shapes.check_texts([dataclasses.asdict(record.case), dataclasses.asdict(record.run)])
    shapes.check_texts(record.error)
    params: Mapping[str, object] = record.case.params
    for name, value in params.items():
        is_wrong = isinstance(value, float) and not shapes.is_number(value)
        if is_wrong or isinstance(value, dict | list):
            raise ValueError(f"the parameter {name} is {shapes.shown(value)}")
    for name in ("seconds", "contention"):
        value = record.seconds if name == "seconds" else record.run.contention
        if value is not None and not (shapes.is_number(value) and value >= 0):
            raise ValueError(f"{name} is {value}")
    digests: list[object] = [*record.run.claims.values(), *record.run.at_first.values()]
    if not all(isinstance(digest, str) for digest in digests):
        raise ValueError("claims are not texts")


class Source(Protocol):
    """Something that has records: this machine's store, or published evidence."""

    def get(self, case: Case) -> Record | None: ...


def select(source: Source, cases: Iterable[Case]) -> Records:
    """The good results among these cases, in their order, sealed; the others are missing."""
    found = [(case, source.get(case)) for case in cases]
    good = {case.key: record for case, record in found if record and record.status == "ok"}
    return Records(map(sealed, good.values()), (case for case, _ in found if case.key not in good))


def registered(record: Record, earlier: Iterable[Record]) -> Record:
    """A result with the claims that were there when the first run of its case gave one.

    Whoever runs a case again has not registered its claims anew.
    """
    known = [one.run for one in earlier if one.status == "ok"]
    if record.status != "ok" or not known:
        return record
    first = min(known, key=lambda run: run.started).at_first
    return replace(record, run=replace(record.run, first_claims=first))


@dataclass(frozen=True)
class Published:
    """Committed evidence of one machine."""

    by_key: Mapping[str, Record]

    def get(self, case: Case) -> Record | None:
        return self.by_key.get(case.key)


@dataclass(frozen=True)
class Store:
    """The records and artifacts under one `.madl` folder.

    An artifact or folder made before `made_since` (nanoseconds, as files have them) is made again.
    """

    root: Path
    made_since: int = 0

    def _path(self, case: Case) -> Path:
        return self.root / "records" / case.experiment / f"{case.key}.json"

    def get(self, case: Case) -> Record | None:
        """The case's record, whatever its status.

        Raises:
            MadlError: the file is not a record of this version, or not this case's.
        """
        path = self._path(case)
        if not os.path.lexists(path):
            return None
        record = decode(read_text(path, RUNS_AGAIN), str(path))
        if record.case.key != case.key:
            other = f"{record.case.experiment} {shapes.shown(record.case.params)}"
            raise Unusable(record, f"it is the record of another case, {other}")
        return record

    def put(self, record: Record) -> None:
        write_atomically(self._path(record.case), encode(record) + "\n")

    def artifact(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder that `build` filled, once, under that name; whole or not there at all."""
        folder = self.root / "artifacts" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            for left in folder.parent.glob(f".{name}-????????"):  # by a killed builder
                shutil.rmtree(left, ignore_errors=True)
            self._drop_older(folder)
            if folder.is_dir() and not _is_as_written(folder):
                log.warning("the artifact %s is damaged; it is made again", folder)
                shutil.rmtree(folder)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(
                    dir=folder.parent, prefix=f".{name}-", ignore_cleanup_errors=True
                ) as work:
                    build(made := Path(work) / "artifact")
                    sync_tree(made)
                    write_atomically(_digest_of(folder), tree_sha256(made) + "\n")
                    os.replace(made, folder)
                sync(folder.parent)
        return folder

    def sweep(self) -> None:
        """Remove what killed writers left among the records; nobody else may be writing."""
        for left in (self.root / "records").glob("*/.*.json-????????"):  # see `write_atomically`
            if left.is_file():
                left.unlink()

    def folder(self, name: str) -> Path:
        """A folder that outlives a killed case, for work that the next try goes on with.

        Whoever writes there sees to it that what a killed writer left can be read.
        """
        folder = self.root / "folders" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            self._drop_older(folder)
            folder.mkdir(exist_ok=True)
        return folder

    def from_now_on(self) -> "Store":
        """This store for a run that makes everything anew, artifacts and folders too."""
        mark = self.root / "forced"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return replace(self, made_since=mark.stat().st_mtime_ns)

    def _drop_older(self, folder: Path) -> None:
        if folder.is_dir() and folder.stat().st_mtime_ns < self.made_since:
            shutil.rmtree(folder)


def _digest_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.sha256")


_verified: dict[Path, object] = {}  # by this process, with the state that its files were in


def _is_as_written(folder: Path) -> bool:
    """Whether an artifact still is what was put there; one of before digests were kept gets one."""
    stats = sorted((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    state = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    if _verified.get(folder) == state:
        return True
    digest = _digest_of(folder)
    if not digest.is_file():
        write_atomically(digest, tree_sha256(folder) + "\n")
    if digest.read_text("utf-8", errors="replace").strip() != tree_sha256(folder):
        return False
    _verified[folder] = state
    return True


def read_published(
    path: Path, unusable: Callable[[MadlError], object] | None = None
) -> list[Record]:
    """Committed evidence: one record a line.

    Raises:
        MadlError: a line that is no record of the experiment; `unusable`, where given, gets it.
    """
    found: list[Record] = []
    try:
        lines = path.read_bytes().splitlines() if os.path.lexists(path) else []
    except OSError as error:
        problem = MadlError(f"{path} cannot be read ({why(error)}); restore it, or remove it")
        if unusable is None:
            raise problem from error
        unusable(problem)
        return []
    for place, line in enumerate(lines, 1):
        try:
            found.append(_published_record(line, path, place))
        except MadlError as error:
            if unusable is None:
                raise
            unusable(error)
    return found


def published_by_machine(folder: Path) -> tuple[Mapping[str, Published], Sequence[MadlError]]:
    """A folder's committed evidence by machine, most first, and what of it cannot be read.

    Read once for as long as the files are the same.
    """
    return _read_by_machine(tuple(map(_stamped, sorted(folder.glob("*.jsonl")))))


def _stamped(path: Path) -> tuple[Path, int, int]:
    """A file with when it was written and its size; a link that leads nowhere has neither."""
    try:
        stat = path.stat()
    except OSError:
        return path, 0, 0
    return path, stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=4)
def _read_by_machine(
    stamp: tuple[tuple[Path, int, int], ...],
) -> tuple[Mapping[str, Published], Sequence[MadlError]]:
    by_host: dict[str, dict[str, Record]] = {}
    unusable: list[MadlError] = []
    for path, _, _ in stamp:
        for record in read_published(path, unusable.append):
            by_host.setdefault(record.run.host, {})[record.case.key] = record
    most_first = sorted(by_host.items(), key=lambda item: -len(item[1]))
    return {host: Published(by_key) for host, by_key in most_first}, unusable


def _published_record(line: bytes, path: Path, place: int) -> Record:
    """Raises: MadlError: what is wrong with it."""
    origin = f"{path}:{place}"
    try:
        record = decode(line.decode(), origin, REMOVE_LINE)
    except UnicodeDecodeError as error:
        raise MadlError(f"{origin} is not a whole record ({why(error)}); {REMOVE_LINE}") from error
    if record.case.experiment != path.stem:
        raise Unusable(record, f"it is of the experiment {record.case.experiment}")
    return record


TIMES = ("samples_s", "warmup_s")  # lists of a measurement, which make most of its record


def _with_short_times(line: str) -> str:
    def shortened(found: dict[str, Any]) -> dict[str, Any]:
        short = {n: [float(f"{s:.4g}") for s in found[n]] for n in TIMES if n in found}
        return {**found, **short}

    made = json.loads(line, object_hook=shortened)
    return json.dumps(made, sort_keys=True, separators=(",", ":"))


def publish(records: Sequence[Record], path: Path) -> int:
    """Merge records into committed evidence; a machine's newer result replaces its older one.

    A good result is replaced by a good one only. Times are shortened to four significant digits,
    which is finer than any of them repeats.
    """
    every = [*read_published(path), *records]
    in_order = sorted(every, key=lambda r: (r.status == "ok", r.run.started))
    merged = {(r.run.host, r.case.key): r for r in in_order}
    lines = [_with_short_times(encode(merged[key])) for key in sorted(merged)]
    write_atomically(path, "".join(line + "\n" for line in lines))
    return len(records)
