"""Results on disk: one JSON file a case, written by rename; merging machines is copying files.

A record is a case, its values, and the run that gave them. The codec is versioned. It refuses
fields that it does not know, values of the wrong type or range (see `shapes`), and a record other
than the file's name promises; it refuses to write what it would not read. Experiments read
`Records`: there, all that was judged on the test split is sealed (`values.Estimate`), so that
nothing is chosen by it.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, TypeVar, cast

from filelock import FileLock

from madl.errors import MadlError
from madl.files import read_text, sync, sync_tree, tree_sha256, why, write_atomically
from madl.logbook import shapes
from madl.logbook.values import Estimate, Outcomes, Unit

log = logging.getLogger(__name__)

SCHEMA = 1
RUNS_AGAIN = "delete it and its case will run again"
REMOVE_LINE = "restore the file, or remove the line and publish its results again"

T = TypeVar("T")
Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]
Values = Mapping[str, Any]  # what a case gave, as JSON
Row = Mapping[str, Any]  # of a table or chart: column title → scalar, Estimate or Arm


@dataclass(frozen=True, kw_only=True)
class Case:
    """One unit of work, of some seconds to some minutes, named by its parameters and done once."""

    experiment: str
    params: Params
    version: int = 1

    @functools.cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits of everything that defines the result."""
        identity = {"experiment": self.experiment, "params": self.params, "version": self.version}
        return digest_of(identity)


def distinct(cases: Iterable[Case]) -> list[Case]:
    """The cases in order, each once."""
    return list({case.key: case for case in cases}.values())


def digest_of(values: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits of a JSON object; the order of its names does not count."""
    text = json.dumps(values, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The code, machine and command that made a record; never part of its key."""

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
    first_claims: Mapping[str, str] | None = None  # … and at the case's first result, if earlier
    kernels: str = ""  # the path that each C++ kernel took: sums differ between them
    lacked: str = ""  # a program that was missing: the case runs again where it is there

    @property
    def preregistered_claims(self) -> Mapping[str, str]:
        """The digests of the claims that stood before anybody had seen a result of the case."""
        return self.claims if self.first_claims is None else self.first_claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A case with its values when it is ok, else with the one line of its error."""

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
        """The name of the device that its case asks for: "CPU", or the GPU's."""
        return "CPU" if self.case.params.get("device", "cpu") == "cpu" else self.run.device


class Pending(Exception):
    """A record that a claim or figure needs is not there yet."""


class Unplanned(Pending):
    """No case has the parameters that a claim or figure asks for."""


class Failed(Pending):
    """A measurement did not work where its case ran, for the reason given."""


def none_if_pending(make: Callable[..., T], *args: Any, **where: Scalar) -> T | None:
    """The result of `make`, or None where records that it needs are missing."""
    try:
        return make(*args, **where)
    except Pending:
        return None


PLACES = {"cpu": "CPU", "cuda": "CUDA GPU"}


class Records(tuple[Record, ...]):
    """The results that claims, charts and plans read, and the planned cases that have none.

    A model's test outcomes are read through `arms.arm`.
    """

    missing: tuple[Case, ...]
    _tuning: "Records | None"
    _further: tuple[Record, ...]

    def __new__(
        cls,
        records: Iterable[Record] = (),
        missing: Iterable[Case] = (),
        *,
        tuning: "Records | None" = None,
        further: Iterable[Record] = (),
    ) -> "Records":
        made = super().__new__(cls, records)
        made.missing, made._tuning, made._further = tuple(missing), tuning, tuple(further)
        return made

    @property
    def tuning(self) -> "Records":
        """The page's records on the tuning seed; `self` holds those on the confirming seeds."""
        return self._tuning or Records()

    @property
    def and_further(self) -> "Records":
        """These, and those of further seeds and sittings, on which primary claims are judged, too;
        none in what claims read."""
        return Records((*self, *self._further), self.missing, tuning=self._tuning)

    def where(self, **params: Scalar) -> "Records":
        """The records whose parameters have these values."""
        return self._filtered(lambda case: params.items() <= case.params.items())

    def of_experiment(self, experiment: str) -> "Records":
        """The records of one experiment."""
        return self._filtered(lambda case: case.experiment == experiment)

    def without(self, param: str) -> "Records":
        """The records whose cases have no such parameter."""
        return self._filtered(lambda case: param not in case.params)

    def _filtered(self, fits: Callable[[Case], bool]) -> "Records":
        return Records((r for r in self if fits(r.case)), filter(fits, self.missing))

    def all(self, **params: Scalar) -> "Records":
        """The records whose parameters have these values, one or more.

        Raises:
            Pending: a planned case with these parameters has no result yet.
            Unplanned: no case has these parameters.
        """
        matching = self.where(**params)
        wanted = ", ".join(f"{k}={v}" for k, v in params.items())
        if matching.missing:
            raise Pending(wanted or "no record")
        if not matching:
            raise Unplanned(f"no case has {wanted}" if wanted else "no case")
        return matching

    def place(self, device: str) -> str:
        """The name of the device on which cases with this `device` ran: "CPU", or the GPU's."""
        return next((record.place for record in self.where(device=device)), PLACES[device])

    def single(self, **params: Scalar) -> Record:
        """The only record with these parameters.

        Raises:
            Pending: it is not there yet.
            MadlError: several records have them.
        """
        matching = self.all(**params)
        if len(matching) > 1:
            wanted = ", ".join(f"{name}={value}" for name, value in params.items())
            raise MadlError(f"{len(matching)} cases have {wanted or 'no parameters'}; give more")
        return matching[0]

    def param_values(self, param: str) -> list[Any]:
        """The distinct values of a parameter among the planned cases, sorted."""
        cases = [*(r.case for r in self), *self.missing]
        values = {case.params[param] for case in cases if param in case.params}
        return sorted(values, key=sort_key)


def sort_key(value: Scalar) -> tuple[str, Any]:
    """A key that sorts numbers by size, and values of other types behind them."""
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, str(value))


def sealed(record: Record) -> Record:
    """The record as an experiment reads it: nothing can be chosen by results on the test split.

    Wherever `outcomes` stand among the values, they become `Outcomes`, and the accuracy and loss
    beside them become estimates, which can be printed and drawn and not compared.
    """
    return replace(record, values=_sealed(record.values, record))


class Unusable(MadlError):
    """Error of a record that can be read, but whose values or place are wrong."""

    __str__ = Exception.__str__

    def __init__(self, record: Record, why: str) -> None:
        self.where = record.origin or f"the record {record.case.experiment}/{record.case.key}"
        self.mend = RUNS_AGAIN if self.where.endswith(".json") else REMOVE_LINE
        super().__init__(f"{self.where} cannot be used: {why}; {self.mend}")
        self.record = record


class NoSuchValue(Unusable, KeyError):
    """Error of a record without a value that somebody reads."""

    def __init__(self, record: Record, name: str) -> None:
        super().__init__(record, f"there is no value {name}")
        self.name = name


class _SealedValues(dict[str, Any]):
    """The values of a record, in which a name that is missing raises `NoSuchValue`."""

    record: Record

    def __missing__(self, name: str) -> NoReturn:
        raise NoSuchValue(self.record, name)


def _sealed(values: Any, record: Record) -> Any:
    if isinstance(values, list):
        return [_sealed(value, record) for value in cast("list[Any]", values)]
    if not isinstance(values, Mapping):
        return values
    named = cast("Mapping[str, Any]", values)
    result = _SealedValues({name: _sealed(value, record) for name, value in named.items()})
    result.record = record
    if isinstance(judged := named.get("outcomes"), Mapping) and "bits" in judged:
        outcomes = Outcomes.from_json(cast("Mapping[str, Any]", judged))
        result |= {"outcomes": outcomes, "accuracy": outcomes.accuracy}
        if isinstance(loss := named.get("loss"), float):
            result["loss"] = Estimate(loss, None, Unit.NATS, outcomes.n)
    return result


def encode(record: Record) -> str:
    """Canonical JSON of a record, on one line and without its origin.

    Raises:
        ValueError: values that `decode` would refuse.
    """
    _check(record)
    case, run, data = map(_fields, (record.case, record.run, record))
    del data["origin"]
    if record.run.first_claims is None:
        del run["first_claims"]
    if not record.run.lacked:
        del run["lacked"]
    data |= {"schema": SCHEMA, "case": case, "run": run}
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _fields(part: Case | Run | Record) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


def decode(text: str, origin: str, mend: str = RUNS_AGAIN) -> Record:
    """The record that `encode` wrote; errors name its `origin`, and say how to `mend` it.

    Raises:
        MadlError: it is truncated, of another schema, has fields that this version does not know,
            or values that are not what they must be.
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
        problem = f"{origin} has other fields than this version ({error}); {mend}"
        raise MadlError(problem) from error
    try:
        _check(record)
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


def _check(record: Record) -> None:
    """Raises: ValueError: a field or value has the wrong type or range; the message names it."""
    for part in (record.case, record.run, record):
        for name, types in _TYPES[type(part)].items():
            value: object = getattr(part, name)
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise ValueError(f"{name} is {shapes.shown(value)}")
    if not re.fullmatch(r"\w+", record.case.experiment):
        raise ValueError(f"experiment is {shapes.shown(record.case.experiment)}")
    texts = record.case.params, _fields(record.run), record.error
    shapes.check_text(json.dumps(texts, ensure_ascii=False))
    params: Mapping[str, object] = record.case.params
    for name, value in params.items():
        is_wrong = isinstance(value, float) and not shapes.is_number(value)
        if is_wrong or isinstance(value, dict | list):
            raise ValueError(f"the parameter {name} is {shapes.shown(value)}")
    for name, number in (("seconds", record.seconds), ("contention", record.run.contention)):
        if number is not None and not (shapes.is_number(number) and number >= 0):
            raise ValueError(f"{name} is {number}")
    digests = *record.run.claims.values(), *record.run.preregistered_claims.values()
    if not all(isinstance(digest, str) for digest in cast("tuple[object, ...]", digests)):
        raise ValueError("claims are not texts")
    shapes.check(record.values)


Source = Callable[[Case], Record | None]  # gives a case's record, where it has one


def select(source: Source, cases: Iterable[Case]) -> Records:
    """The good records of these cases, sealed and in order; the other cases are `missing`."""
    cases = tuple(cases)
    records = {case.key: source(case) for case in cases}
    good = {
        key: sealed(record) for key, record in records.items() if record and record.status == "ok"
    }
    return Records(good.values(), (case for case in cases if case.key not in good))


def register(record: Record, earlier: Iterable[Record]) -> Record:
    """The record with the claims that stood at its case's first good record, if one is `earlier`.

    So a case that is run again does not register its claims anew.
    """
    runs = [other.run for other in earlier if other.status == "ok"]
    if record.status != "ok" or not runs:
        return record
    first = min(runs, key=lambda run: run.started).preregistered_claims
    return replace(record, run=replace(record.run, first_claims=first))


@dataclass(frozen=True)
class Store:
    """The records and artifacts under one `.madl` folder.

    An artifact or folder is made again if other code made it, or if it is older than `made_since`
    (nanoseconds since 1970, as files have them). A stamp file beside it holds the digest of that
    code, and the digest of an artifact's files.
    """

    root: Path
    made_since: int = 0

    def _path(self, case: Case) -> Path:
        return self.root / "records" / case.experiment / f"{case.key}.json"

    def get(self, case: Case) -> Record | None:
        """The case's record, whatever its status; None where there is none.

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

    def artifact(self, name: str, build: Callable[[Path], None], code: str = "") -> Path:
        """The folder `artifacts/name`, which `build` fills once; it is whole or not there at all.

        `build` fills it again if it is damaged, or if other `code` (a digest) made it.
        """
        folder = self.root / "artifacts" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            for remnant in folder.parent.glob(f".{name}-????????"):  # of a killed builder
                shutil.rmtree(remnant, ignore_errors=True)
            self._drop_stale(folder, code)
            if folder.is_dir() and not _is_as_written(folder):
                log.warning("the artifact %s is damaged; it is made again", folder)
                shutil.rmtree(folder)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(
                    dir=folder.parent, prefix=f".{name}-", ignore_cleanup_errors=True
                ) as work:
                    artifact, stamp = Path(work) / "artifact", Path(work) / "stamp"
                    build(artifact)
                    sync_tree(artifact)
                    write_atomically(stamp, f"{code}\n{tree_sha256(artifact)}\n")
                    os.replace(stamp, _stamp_of(folder))
                    os.replace(artifact, folder)
                sync(folder.parent)
        return folder

    def sweep(self) -> None:
        """Remove the temporary files of killed writers; nobody else may be writing."""
        for place in ("records/*/.*.json", "folders/.*.stamp"):  # as `write_atomically` names them
            for path in self.root.glob(f"{place}-????????"):
                if path.is_file():
                    path.unlink()

    def folder(self, name: str, code: str = "") -> Path:
        """The folder `folders/name`, which outlives a killed case, so the next try goes on in it.

        The case must write its files so that they can be read after it was killed.
        """
        folder = self.root / "folders" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            self._drop_stale(folder, code)
            if not folder.is_dir():
                write_atomically(_stamp_of(folder), f"{code}\n")
                folder.mkdir()
        return folder

    def from_now_on(self) -> "Store":
        """This store for a run that makes all again: what was made earlier is out of date."""
        mark = self.root / "forced"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return replace(self, made_since=mark.stat().st_mtime_ns)

    def _drop_stale(self, folder: Path, code: str) -> None:
        """Remove a folder that other code made, or that is older than `made_since`."""
        if folder.is_dir() and (
            folder.stat().st_mtime_ns < self.made_since or _stamp(folder)[:1] != [code]
        ):
            shutil.rmtree(folder)


def _stamp_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.stamp")


def _stamp(folder: Path) -> list[str]:
    """The lines of a folder's stamp, or none."""
    path = _stamp_of(folder)
    return path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []


_verified: dict[Path, object] = {}  # folder that this process has verified → its files' state then


def _is_as_written(folder: Path) -> bool:
    """Whether an artifact's files are those that its stamp promises."""
    stats = sorted((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    state = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    if _verified.get(folder) == state:
        return True
    if _stamp(folder)[1:] != [tree_sha256(folder)]:
        return False
    _verified[folder] = state
    return True


def read_published(path: Path) -> list[Record]:
    """The records of a file of committed evidence, one a line.

    Raises:
        MadlError: the file cannot be read, or a line is no record of the experiment.
    """
    records, problems = _published(path)
    if problems:
        raise problems[0]
    return records


def _published(path: Path) -> tuple[list[Record], list[MadlError]]:
    """The records of a file, and what is wrong with it or with lines of it."""
    records: list[Record] = []
    problems: list[MadlError] = []
    try:
        lines = path.read_bytes().splitlines() if os.path.lexists(path) else []
    except OSError as error:
        problem = f"{path} cannot be read ({why(error)}); restore it, or remove it"
        return [], [MadlError(problem)]
    for place, line in enumerate(lines, 1):
        try:
            records.append(_published_record(line, path, place))
        except MadlError as error:
            problems.append(error)
    return records, problems


def published_by_machine(
    folder: Path,
) -> tuple[Mapping[str, Mapping[str, Record]], Sequence[MadlError]]:
    """A folder's committed records: machine → key → record; and the errors of files and lines.

    The machine with most records is first. Files are read again only once one has changed.
    """
    return _read_by_machine(tuple(map(_stamped, sorted(folder.glob("*.jsonl")))))


def _stamped(path: Path) -> tuple[Path, int, int]:
    """A file with its modification time and size, which are 0 for a link that leads nowhere."""
    try:
        stat = path.stat()
    except OSError:
        return path, 0, 0
    return path, stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=4)
def _read_by_machine(
    stamp: tuple[tuple[Path, int, int], ...],
) -> tuple[Mapping[str, Mapping[str, Record]], Sequence[MadlError]]:
    by_host: dict[str, dict[str, Record]] = {}
    problems: list[MadlError] = []
    for path, _, _ in stamp:
        records, wrong = _published(path)
        problems += wrong
        for record in records:
            by_host.setdefault(record.run.host, {})[record.case.key] = record
    return dict(sorted(by_host.items(), key=lambda item: -len(item[1]))), problems


def _published_record(line: bytes, path: Path, place: int) -> Record:
    """The record on this line. Raises: MadlError: it is none, or of another experiment."""
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
    """A record's JSON with its samples of times at four significant digits."""

    def shorten(fields: dict[str, Any]) -> dict[str, Any]:
        short = {n: [float(f"{s:.4g}") for s in fields[n]] for n in TIMES if n in fields}
        return {**fields, **short}

    return json.dumps(json.loads(line, object_hook=shorten), sort_keys=True, separators=(",", ":"))


def publish(records: Sequence[Record], path: Path) -> int:
    """Merge records into a file of committed evidence; returns how many records were given.

    A machine's newer result replaces its older one, a good one only if it is good, too. Times are
    shortened to four significant digits, which is finer than any of them repeats.
    """
    by_age = sorted(
        [*read_published(path), *records], key=lambda r: (r.status == "ok", r.run.started)
    )
    merged = {(r.run.host, r.case.key): r for r in by_age}
    lines = [_with_short_times(encode(merged[key])) for key in sorted(merged)]
    write_atomically(path, "".join(line + "\n" for line in lines))
    return len(records)
