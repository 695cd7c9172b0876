"""An arm: one configuration over all its seeds, which is what gets compared, tabulated and drawn.

Its test outcomes are sealed: they can be printed, drawn and compared, and nothing can be chosen by
them: what is chosen ("the best fraction width") is chosen on validation. A timed arm is the same
for times: one variant over its processes, with what others used of the machine meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.records import Case, Pending, Record, Records, Scalar
from madl.logbook.stats import Comparison, Estimate, Interval, Outcomes, Sealed, Unit

SEED = "seed"
DRAWN = (SEED, "draw")  # parameters that a seed sets: training, and the sentences it trains on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arm(Sealed):
    """Models of one configuration, one a seed, judged on the test split.

    An arm may have several models a seed, `units` then says what they are ("studies"). Of one seed
    they are what was drawn again; of several, the seeds are, and each takes the mean of its models.

    Formats as its test accuracy: `f"{arm}"` is "82.2 %", `f"{arm:i}"` has the interval too, and
    `f"{a - b}"` is the difference in points.
    """

    label: str
    records: tuple[Record, ...]
    within: tuple[str | int, ...] = ()  # where among a record's values its judgement stands
    units: str = ""

    def __post_init__(self) -> None:
        if not self.records:
            raise Pending(self.label)

    @property
    def groups(self) -> list[list[Outcomes]]:
        """The outcomes of each unit of replication, of an arm with several models a seed."""
        by_seed: dict[Any, list[Outcomes]] = {}
        for record, outcomes in zip(self.records, self.outcomes, strict=True):
            by_seed.setdefault(_seed(record), []).append(outcomes)
        found = list(by_seed.values())
        return found if len(found) > 1 else [[one] for one in found[0]]

    @property
    def drawn(self) -> str:
        """What those units are."""
        several = len({_seed(record) for record in self.records}) > 1
        return stats.MODELS if several else self.units

    def _judged(self) -> list[Mapping[str, Any]]:
        return [inside(record, self.within) for record in self.records]

    @property
    def outcomes(self) -> list[Outcomes]:
        """Of each seed, for comparisons."""
        return [judged["outcomes"] for judged in self._judged()]

    @property
    def accuracy(self) -> Estimate:
        """On the test split, with its interval."""
        if self.units and len(self.records) > 1:
            return stats.group_accuracy(self.groups, of=self.drawn)
        return stats.accuracy(self.outcomes)

    @property
    def loss(self) -> Estimate:
        """On the test split, the mean over the seeds."""
        return stats.mean_of(self.each("loss"))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(record.case for record in self.records)

    def param(self, name: str) -> Any:
        """A parameter of the configuration.

        Raises:
            MadlError: it has no such parameter.
        """
        params = self.records[0].case.params
        if name not in params:
            raise MadlError(f"{self.label} has no parameter {name!r}; known: {', '.join(params)}")
        return params[name]

    def each(self, name: str) -> list[Any]:
        """What each seed's case gave under this name, beside the judgement."""
        return [judged[name] for judged in self._judged()]

    def value(self, name: str) -> Any:
        """What every seed's case gave under this name.

        Raises:
            MadlError: they gave several.
        """
        found = self.each(name)
        if any(one != found[0] for one in found[1:]):
            raise MadlError(
                f"the models of {self.label} do not share one {name!r}: take each(…), mean(…), or "
                "the first model's (`first`), and say which"
            )
        return found[0]

    def mean(self, name: str) -> float:
        """Over the seeds."""
        return fmean(float(one) for one in self.each(name))

    @property
    def models(self) -> "list[Arm]":
        """Each record's model by itself."""
        return [replace(self, records=(record,)) for record in self.records]

    @property
    def first(self) -> "Arm":
        """Of the first seed alone, for what is told of one model."""
        return self.models[0]

    def __format__(self, spec: str) -> str:
        return format(self.accuracy, spec)

    def __str__(self) -> str:
        return format(self.accuracy)

    def __sub__(self, other: "Arm") -> Estimate:
        return versus(self, other).estimate(self.accuracy.n)


def inside(record: Record, within: Sequence[str | int]) -> Any:
    """What a case gave under these names, each within the one before."""
    found: Any = record.values
    for name in within:
        found = found[name]
    return found


def versus(a: Arm, b: Arm) -> Comparison:
    """A minus B on test, paired by seed and example.

    Raises:
        MadlError: the two arms have other seeds, or were judged on other examples.
    """
    seeds = [[_seed(record) for record in one.records] for one in (a, b)]
    if seeds[0] != seeds[1]:
        said = " and ".join(", ".join(map(str, one)) for one in seeds)
        raise MadlError(
            f"{a.label} and {b.label} cannot be compared: they have other seeds, {said}"
        )
    try:
        if a.units and len(a.records) > 1:
            return stats.compare_groups(a.groups, b.groups, of=a.drawn)
        return stats.compare(a.outcomes, b.outcomes)
    except ValueError as error:
        raise MadlError(f"{a.label} and {b.label} cannot be compared: {error}") from error


def arm(records: Records, label: str = "", /, *within: str | int, **where: Scalar) -> Arm:
    """The configuration with these parameters, all of its seeds.

    One record a seed is one arm, too, where something was chosen for each seed: what is judged is
    the way to choose. `within` leads to the judgement where a case judged several models.

    Raises:
        Pending: a seed is not there yet.
        MadlError: the parameters fit more than one configuration.
    """
    found = records.all(**where)
    name = label or ", ".join(f"{key} {value}" for key, value in where.items())
    if len({_seed(record) for record in found}) < len(found):
        params = [record.case.params for record in found]
        differ = sorted(
            key
            for key in {key for of in params for key in of}.difference(DRAWN)
            if len({repr(of.get(key)) for of in params}) > 1
        )
        raise MadlError(
            f"several configurations fit {name!r}; also give {', '.join(differ)}, "
            "or choose on the tuning seed"
        )
    return Arm(label=name, records=tuple(sorted(found, key=_seed)), within=within)


def _seed(record: Record) -> Any:
    return record.case.params.get(SEED, 0)


# ---- times --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedArm:
    """One variant, timed: its interleaved samples by process, and what disturbed them.

    `runs` are the JSON of `machine.timing.Measurement`, one a process. Formats as the median time
    of a call: `f"{arm}"` is "27.3 ms".
    """

    label: str
    records: tuple[Record, ...]
    runs: tuple[Mapping[str, Any], ...] = field(repr=False)
    within: tuple[str, ...] = ()  # where among a record's values its runs stand

    def __post_init__(self) -> None:
        if not self.runs:
            raise Pending(self.label)

    @property
    def samples_s(self) -> list[list[float]]:
        """By process, in the order in which they were taken."""
        return [list(run["samples_s"]) for run in self.runs]

    @property
    def contention(self) -> list[float | None]:
        """What others used of the machine during each process; None where that is unknown."""
        return [run.get("contention") for run in self.runs]

    @property
    def _logs(self) -> list[float]:
        """Of its units, without the processes that `stats.ratio` would drop."""
        samples = self.samples_s
        return stats.log_medians([samples[i] for i in self._quiet])

    @property
    def _quiet(self) -> list[int]:
        return stats.quiet(self.contention)[0]

    @property
    def processes(self) -> int:
        """How many are counted."""
        return len(self._quiet)

    @property
    def median_s(self) -> float:
        """Of a call: the geometric mean of the medians of its units, as ratios take it."""
        return math.exp(fmean(self._logs))

    @property
    def time(self) -> Estimate:
        """In milliseconds, with an interval from between its units."""
        logs = self._logs
        interval = None
        if len(logs) > 1:
            made = stats.mean(logs, unit=Unit.TIMES, drawn="units")
            interval = Interval(*(1e3 * math.exp(value) for value in made.interval))
        return Estimate(1e3 * self.median_s, interval, Unit.MILLISECONDS, len(logs))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(record.case for record in self.records)

    def __format__(self, spec: str) -> str:
        return format(self.time, spec)

    def __str__(self) -> str:
        return format(self.time)

    def __truediv__(self, other: "TimedArm") -> Estimate:
        """How many times this one's time is the other's: `eager / compiled` is a speed-up."""
        return speed_up(other, over=self).estimate(len(self.runs))


def timed(records: Records, variant: str, label: str = "", /, **where: Scalar) -> TimedArm:
    """A variant in the records with these parameters: one record a process, or several in one.

    Raises:
        Pending: a record is not there yet, or its case could not time this.
    """
    found = records.all(**where)
    measured = [record.values.get("measurements", {}).get(variant, ()) for record in found]
    runs = [run for one in measured for run in (one if isinstance(one, list) else [one]) if run]
    within = ("measurements", variant)
    return TimedArm(label=label or variant, records=tuple(found), runs=tuple(runs), within=within)


def speed_up(candidate: TimedArm, *, over: TimedArm) -> Comparison:
    """How many times as fast the candidate is as what it is held against.

    Raises:
        MadlError: the two were not timed together.
    """
    pairs = zip(candidate.contention, over.contention)
    crowded = [
        None if None in pair else max(float(share or 0.0) for share in pair) for pair in pairs
    ]
    try:
        return stats.ratio(over.samples_s, candidate.samples_s, contention=crowded)
    except ValueError as error:
        raise MadlError(
            f"{candidate.label} and {over.label} cannot be compared: {error}"
        ) from error
