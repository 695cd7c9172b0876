"""A number in a sentence: a value with the records behind it, and what it is printed as.

A page names its numbers, `page.numbers(fp32=fp32, ptq4=partial(ptq, width=4))`, and its template
prints them, `{{ ptq4 }}`; the sentence stands in the template, the value in the records.

Units: as `stats` has them, accuracies and differences as fractions; what is counted has its own.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from madl.errors import MadlError
from madl.logbook.arms import Arm, TimedArm, processes, value_at
from madl.logbook.claims import Contrast
from madl.logbook.records import Case, Pending, Record, Records, Scalar
from madl.logbook.stats import CONTENDED, MODELS, PROCESSES
from madl.logbook.values import Estimate, Unit, fixed, number

Selection = TypeVar("Selection", Record, Sequence[Record])
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactValue:
    """A count, or another exact value, with its unit as it is printed ("bits", "MB")."""

    value: int | float
    unit: str = ""
    cases: tuple[Case, ...] = ()


def exact(value: int | float, records: Iterable[Record] = (), unit: str = "") -> ExactValue:
    """An exact value with the records that it comes from: without any, all that the page reads."""
    return ExactValue(value=value, unit=unit, cases=tuple(record.case for record in records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """An estimate of models, with the cases that it comes from."""

    estimate: Estimate
    cases: tuple[Case, ...]


def sourced(estimate: Estimate, *arms: Arm) -> Sourced:
    """An estimate that comes from the records of these arms."""
    return Sourced(estimate=estimate, cases=tuple(case for arm in arms for case in arm.cases))


NumberFn = Callable[[Records], ExactValue]  # as `page.numbers` takes it


def percentage(share: float, records: Iterable[Record]) -> ExactValue:
    """A share (0…1), which comes from these records, in whole per cent."""
    return exact(round(100 * share), records, "%")


def of_all(
    make: Callable[Concatenate[Records, P], T], *args: P.args, **where: P.kwargs
) -> Callable[[Records], T]:
    """A function for `page.numbers`: what `make` makes of all records, further seeds', too."""
    return lambda r: make(r.and_further, *args, **where)


def value(*path: str | int, unit: str = "", factor: float = 1, **where: Scalar) -> NumberFn:
    """A function for `page.numbers` that reads a value of the one case with these parameters.

    `path` holds the nested names of the value, outermost first. A number is multiplied by `factor`;
    a list gives its length.
    """

    def read(r: Records) -> ExactValue:
        value = value_at(record := r.single(**where), path)
        return exact(len(value) if isinstance(value, list) else value * factor, [record], unit)

    return read


def computed(
    select: Callable[[Records], Selection],
    compute: Callable[[Selection], int | float],
    unit: str = "",
) -> NumberFn:
    """A function for `page.numbers` that computes a number from what it selects of the records."""

    def read(r: Records) -> ExactValue:
        selection = select(r)
        records = [selection] if isinstance(selection, Record) else selection
        return exact(compute(selection), records, unit)

    return read


def contended_processes(records: Iterable[Record]) -> ExactValue:
    """The number of processes that timed something while other programs used the machine."""
    timed = [record for record in records if "measurements" in record.values]
    crowded = 0
    for record in timed:
        runs = map(processes, record.values["measurements"].values())
        shares = ([run["contention"] for run in process] for process in zip(*runs))
        crowded += sum(any(s is not None and s > CONTENDED for s in process) for process in shares)
    return exact(crowded, timed)


def hours_of(records: Iterable[Record]) -> ExactValue:
    """The hours between the first and the last of these records: what their scatter speaks of."""
    timed = [*records]
    started = sorted(datetime.fromisoformat(record.run.started) for record in timed)
    hours = (started[-1] - started[0]).total_seconds() / 3600 if started else 0.0
    return exact(round(hours, 1), timed, "hours")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number as a template prints it: `text` in two or three digits, `precise` with one more."""

    name: str
    value: float  # as a reader sees it: per cent, points, ratios
    text: str
    precise: str
    interval: str  # as a reader sees it: "[76.1, 81.9]"; "" where it has none
    n: str  # number of models or processes behind it: "5 models"
    cases: tuple[Case, ...]
    estimate: Estimate | None = None  # where it has an interval, or units
    label: str = ""  # of its arm, or of its comparison's two: "PTQ over FP32"


def number_of(name: str, value: Any, records: Records) -> Number:
    """The value that a page's function gave under this name, as a template prints it.

    Raises:
        Pending: there are no records.
        MadlError: the value is not of a known type, not finite, or has no record.
    """
    if not records:
        raise Pending(name)
    every = tuple(record.case for record in records)
    match value:
        case Arm(label=label):
            return _estimated(name, label, value.accuracy, value.cases, len(value.records), MODELS)
        case TimedArm(label=label):
            return _estimated(name, label, value.time, value.cases, value.processes, PROCESSES)
        case Contrast(comparison=c, a=a, b=b):
            label = f"{a.label} over {b.label}" if a and b else ""
            return _estimated(name, label, c.estimate(c.units), value.cases, c.units, c.population)
        case Estimate():
            n = value.seeds if value.unit is not Unit.TIMES else 0
            return _estimated(name, "", value, every, n, MODELS)
        case Sourced(estimate=estimate):
            return _estimated(name, "", estimate, value.cases, estimate.seeds, MODELS)
        case ExactValue():
            return _exact(name, value.value, value.unit, value.cases or every)
        case int() | float() if not isinstance(value, bool):
            return _exact(name, value, "", every)
        case _:
            pass
    raise MadlError(
        f"the number {name!r} is {type(value).__name__}; give an arm, a comparison, "
        "sourced(estimate, arms…), or exact(value, records)"
    )


def _exact(name: str, value: int | float, unit: str, cases: tuple[Case, ...]) -> Number:
    if not cases:
        raise MadlError(f"the number {name!r} has no record behind it; give exact(…, records)")
    if not math.isfinite(value):
        raise MadlError(f"the number {name!r} is {value}, which no sentence can say")
    text = f"{number(value)}\u00a0{unit}".rstrip()
    return Number(name=name, value=value, text=text, precise=text, interval="", n="", cases=cases)


def _estimated(
    name: str, label: str, estimate: Estimate, cases: tuple[Case, ...], n: int, units: str
) -> Number:
    value = estimate.bare
    return Number(
        name=name,
        value=estimate.unit.shown(value),
        text=magnitude(value, estimate.unit),
        precise=magnitude(value, estimate.unit, more=1),
        interval=bracketed(estimate.interval, estimate.unit) if estimate.interval else "",
        n=count_of_units(n, units) if n else "",
        cases=cases,
        estimate=estimate,
        label=label,
    )


def count_of_units(n: int, units: str) -> str:
    """A count in words: "5 models", "1 process", "3 studies"."""
    return f"{n:,} {singular(units) if n == 1 else units}"


def singular(units: str) -> str:
    """One of them: "model", "process", "study", "part of a process"."""
    noun, link, rest = units.partition(" of ")
    noun = {"processes": "process", "studies": "study"}.get(noun, noun.removesuffix("s"))
    return f"{noun}{link}{rest}"


def bracketed(interval: tuple[float, float], unit: Unit) -> str:
    """The ends of an interval without their unit, to a digit more than a value: "[1.2, 3.4]"."""
    low, high = (_shown(end, unit, 1) for end in interval)
    return f"[{low}, {high}]"


def magnitude(value: float, unit: Unit, *, more: int = 0) -> str:
    """A value and its unit in two or three digits, and `more`: "79 %", "6.4 points", "2.6 ×".

    Ratios from a half to two have three: "1.07 ×".
    """
    text = _shown(value, unit, more)
    name = unit.removesuffix("s") if text.lstrip("−") == "1" and len(unit) > 2 else str(unit)
    return f"{text}\u00a0{name}"


def _shown(value: float, unit: Unit, more: int) -> str:
    """The value as `magnitude` prints it, without its unit."""
    shown = unit.shown(value)
    if unit not in (Unit.PERCENT, Unit.POINTS):
        is_small = unit is Unit.TIMES and 0.5 < shown < 2  # where two digits may leave its interval
        digits = 2 + more if abs(shown) < 10 and not is_small else 3
        return number(float(f"{shown:.{digits}g}"))
    places = int(unit is Unit.POINTS and abs(shown) < 10)
    return fixed(shown, places + more)
