"""A number in a sentence: a value with the records behind it, and what it is printed as.

A page names its numbers, `page.numbers(fp32=fp32, ptq4=partial(ptq, width=4))`, and its template
prints them, `{{ ptq4 }}`; the sentence stands in the template, the value in the records.

Units: as `stats` has them, accuracies and differences as fractions; what is counted has its own.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from madl.errors import MadlError
from madl.logbook.arms import Arm, TimedArm, inside
from madl.logbook.claims import Contrast
from madl.logbook.records import Case, Pending, Record, Records, Scalar
from madl.logbook.stats import CONTENDED, MODELS, PROCESSES, Estimate, Unit, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A count, or another exact value, with its unit as it is printed ("bits", "MB")."""

    value: int | float
    unit: str = ""
    cases: tuple[Case, ...] = ()


def counted(value: int | float, unit: str = "", *, of: Iterable[Record] = ()) -> Counted:
    """A value of these records; of all that the page reads where none are given."""
    return Counted(value=value, unit=unit, cases=tuple(record.case for record in of))


def value(
    *path: str | int, unit: str = "", factor: float = 1, **where: Scalar
) -> Callable[[Records], Counted]:
    """What the one case with these parameters gave under these names, each within the one before,
    times the factor; of a list, its length."""

    def read(r: Records) -> Counted:
        found = inside(record := r.one(**where), path)
        return counted(len(found) if isinstance(found, list) else found * factor, unit, of=[record])

    return read


def contended(records: Iterable[Record]) -> Counted:
    """Processes in which something was timed beside other work."""
    found = [record for record in records if "measurements" in record.values]
    crowded = 0
    for one in found:  # of one process, or of several
        runs = [m if isinstance(m, list) else [m] for m in one.values["measurements"].values()]
        shares = ([run["contention"] for run in process] for process in zip(*runs))
        crowded += sum(any(s is not None and s > CONTENDED for s in process) for process in shares)
    return counted(crowded, of=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """What a template prints: `text` in two or three digits, `precise` with one more."""

    name: str
    text: str
    precise: str
    interval: str  # as a reader sees it: "[76.1, 81.9]"; "" where nothing was drawn
    n: str  # of how many: "5 models"
    cases: tuple[Case, ...]


def number_of(name: str, made: Any, records: Records) -> Number:
    """The number that a page's function gave.

    Raises:
        MadlError: it gave something else, or a value that no record has.
    """
    if not records:
        raise Pending(name)
    every = tuple(record.case for record in records)
    match made:
        case Arm():
            return _estimated(name, made.accuracy, made.cases, len(made.records), MODELS)
        case TimedArm():
            return _estimated(name, made.time, made.cases, made.processes, PROCESSES)
        case Contrast(comparison=one):
            estimate = Estimate(one.effect, one.interval, one.unit, one.examples or one.units)
            return _estimated(name, estimate, made.cases, one.units, one.population)
        case Estimate():
            n = made.seeds if made.unit is not Unit.TIMES else 0
            return _estimated(name, made, every, n, MODELS)
        case Counted():
            return _exact(name, made.value, made.unit, made.cases or every)
        case int() | float() if not isinstance(made, bool):
            return _exact(name, made, "", every)
        case _:
            pass
    raise MadlError(
        f"the number {name!r} is {type(made).__name__}; give an arm, an estimate, a comparison, "
        "or counted(value, unit)"
    )


def _exact(name: str, value: int | float, unit: str, cases: tuple[Case, ...]) -> Number:
    if not cases:
        raise MadlError(f"the number {name!r} has no record behind it; give counted(…, of=records)")
    if not math.isfinite(value):
        raise MadlError(f"the number {name!r} is {value}, which no sentence can say")
    text = f"{number(value)}\u00a0{unit}".rstrip()
    return Number(name=name, text=text, precise=text, interval="", n="", cases=cases)


def _estimated(name: str, made: Estimate, cases: tuple[Case, ...], n: int, units: str) -> Number:
    value = float(format(made, ".17g"))
    interval = made.interval and f"[{', '.join(_shown(v, made.unit, 1) for v in made.interval)}]"
    return Number(
        name=name,
        text=magnitude(value, made.unit),
        precise=magnitude(value, made.unit, more=1),
        interval=interval or "",
        n=counted_units(n, units) if n else "",
        cases=cases,
    )


def counted_units(n: int, units: str) -> str:
    """How many of them: "5 models", "1 process", "3 studies"."""
    one = {"processes": "process", "studies": "study"}.get(units, units.removesuffix("s"))
    return f"{n:,} {one if n == 1 else units}"


def magnitude(value: float, unit: Unit, *, more: int = 0) -> str:
    """A value and its unit in two or three digits: "79 %", "6.4 points", "2.6 ×"."""
    text = _shown(value, unit, more)
    name = unit.removesuffix("s") if text.lstrip("−") == "1" and len(unit) > 2 else str(unit)
    return f"{text}\u00a0{name}"


def _shown(value: float, unit: Unit, more: int) -> str:
    shown = unit.shown(value)
    if unit not in (Unit.PERCENT, Unit.POINTS):
        digits = 2 + more if abs(shown) < 10 else 3
        return number(float(f"{shown:.{digits}g}"))
    places = int(unit is Unit.POINTS and abs(shown) < 10)
    return f"{shown:.{places + more}f}".replace("-", "−")
