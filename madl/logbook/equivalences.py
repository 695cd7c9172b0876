"""Outcomes of `cli.py verify`, kept as data: whether two states of the code give equal values.

Each is a JSON line in the file of its experiment below `docs/data/equivalences`; failed ones are
kept, too. Values that are times are not compared.
"""

import dataclasses
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madl.errors import MadlError
from madl.files import read_text, write_atomically

FOLDER = "equivalences"
TIMES = ("_s", "seconds", "_ms", "_us", "_mhz")  # how names of times and clocks end
MEND = "restore the file, or remove it and verify again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Code `before` compared with code `after`, on cases that have records by `before`."""

    experiment: str
    before: str  # digest of the earlier code
    after: str
    keys: Sequence[str]  # of the cases that were run three times: before, before again, after
    drawn_from: int  # number of cases from which those in `keys` were drawn
    unstable: Sequence[str]  # values in which `before` differs from itself, so nothing is proved
    different: Sequence[str]  # values in which `after` differs from `before`
    not_executed: Sequence[str]  # changed lines, `file:line`, that none of the cases executed
    changed_lines: int
    native: Sequence[str]  # changed files of C++, CUDA and Verilog, whose lines nobody counts
    cpu: str
    threads: int
    kernels: str
    python: str
    torch: str
    started: str

    @property
    def holds(self) -> bool:
        """Whether equality is proved: no value differs, and all changed lines were executed."""
        return not (self.unstable or self.different or self.not_executed)

    @property
    def told(self) -> str:
        """The outcome in a few words."""
        drawn = f"{len(self.keys)} of {self.drawn_from} cases drawn"
        if self.unstable:
            return f"nothing proved: the earlier code differs from itself in {self.unstable[0]}"
        if self.different:
            more = f" and {len(self.different) - 1} more" * (len(self.different) > 1)
            return f"not equal: today's code differs in {self.different[0]}{more}"
        if self.not_executed:
            lines = ", ".join(self.not_executed[:3]) + ", …" * (len(self.not_executed) > 3)
            return f"nothing proved: {drawn} did not execute {lines}"
        return f"{drawn} gave equal values with today's"


def read(data: Path, experiment: str) -> list[Equivalence]:
    """All comparisons of an experiment, oldest first.

    Raises:
        MadlError: a file or line that cannot be read.
    """
    path = _path(data, experiment)
    return list(_lines(path)) if path.is_file() else []


def known(data: Path, experiment: str, before: str, after: str) -> Equivalence | None:
    """The latest comparison of code `before` with code `after`; None if there was none."""
    every = (e for e in read(data, experiment) if (e.before, e.after) == (before, after))
    return max(every, key=lambda equivalence: equivalence.started, default=None)


def age(data: Path, experiment: str, codes: Iterable[str], today: str) -> str:
    """Words for records by these codes, such as "by earlier code; 5 of 40 cases drawn gave …";
    empty if all are by today's code."""
    earlier = sorted({*codes} - {today})
    if not earlier:
        return ""
    found = [c for code in earlier if (c := known(data, experiment, code, today))]
    is_sure = len(found) == len(earlier) or not all(c.holds for c in found)
    told = dict.fromkeys(c.told for c in found) if is_sure else ()
    return "; ".join(["by earlier code", *told])


def append(data: Path, equivalence: Equivalence) -> None:
    """Add a comparison to the file of its experiment."""
    path = _path(data, equivalence.experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = read_text(path, MEND) if path.is_file() else ""
    write_atomically(path, before + json.dumps(dataclasses.asdict(equivalence)) + "\n")


def _path(data: Path, experiment: str) -> Path:
    return data / FOLDER / f"{experiment}.jsonl"


def _lines(path: Path) -> Iterator[Equivalence]:
    for place, line in enumerate(read_text(path, MEND).splitlines(), 1):
        try:
            fields: dict[str, Any] = json.loads(line)
            yield Equivalence(**fields)
        except (ValueError, TypeError) as error:
            raise MadlError(f"{path}:{place} cannot be read ({error}); {MEND}") from error


def differences(
    before: Any, after: Any, path: str = "", *, equal: Callable[[Any, Any], bool] = operator.eq
) -> Iterator[str]:
    """The paths, `name/name`, of values that are not equal or on one side alone, but for times."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}, key=str):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            if not str(name).endswith(TIMES):  # pyright: ignore[reportUnknownArgumentType]
                pair = before.get(name, ...), after.get(name, ...)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                yield from differences(*pair, f"{path}/{name}", equal=equal)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):  # pyright: ignore[reportUnknownArgumentType]
        for place, pair in enumerate(zip(before, after)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from differences(*pair, f"{path}/{place}", equal=equal)
    elif not equal(before, after):
        yield path.removeprefix("/") or "the values"
