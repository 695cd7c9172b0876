"""An arm: one configuration over all its seeds, which is what gets compared, tabulated and drawn.

Test results of an arm are sealed: they can be printed, drawn and compared, but code cannot order
them to pick the best; choices ("the best fraction width") are made by validation loss. A timed arm
is one variant over its processes, with the share of the machine that other programs used meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.records import Case, Pending, Record, Records, Scalar
from madl.logbook.stats import Comparison
from madl.logbook.values import Estimate, Interval, Outcomes, Sealed, Unit

SEED = "seed"
DRAWN = (SEED, "draw")  # parameters that a seed sets; "draw" is of evidence older than folds
SITTING = "process"  # tells the repeats of a timed case apart


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arm(Sealed):
    """Models of one configuration, one a seed, judged on the test split.

    With several models a seed, `units` names them ("studies"). If all have one seed, the models
    count as drawn at random; if there are several seeds, the seeds do, and each one's models are
    averaged.

    Formats as its test accuracy: `f"{arm}"` is "82.2 %", `f"{arm:i}"` has the interval too, and
    `f"{a - b}"` is the difference in points.
    """

    label: str
    records: tuple[Record, ...]
    within: tuple[str | int, ...] = ()  # names that lead to the test results in a record's values
    units: str = ""

    def __post_init__(self) -> None:
        if not self.records:
            raise Pending(self.label)

    @property
    def groups(self) -> list[list[Outcomes]]:
        """A list of models' outcomes for each seed; with a single seed, a list for each model."""
        by_seed: dict[Any, list[Outcomes]] = {}
        for record, outcomes in zip(self.records, self.outcomes, strict=True):
            by_seed.setdefault(_seed(record), []).append(outcomes)
        groups = list(by_seed.values())
        return groups if len(groups) > 1 else [[outcomes] for outcomes in groups[0]]

    @property
    def unit_name(self) -> str:
        """Plural noun for these groups: of several seeds "models", or "seeds" where a seed has more
        than one; of one seed `units` ("studies").
        """
        seeds = len({_seed(record) for record in self.records})
        if seeds > 1:
            return stats.MODELS if seeds == len(self.records) else stats.SEEDS
        return self.units or stats.MODELS

    def _judged(self) -> list[Mapping[str, Any]]:
        """For each record, the part of its values that holds `outcomes`, `accuracy` and `loss`."""
        return [value_at(record, self.within) for record in self.records]

    @property
    def outcomes(self) -> list[Outcomes]:
        """The test outcomes (which sentences were right) of each record, for comparisons."""
        return [judged["outcomes"] for judged in self._judged()]

    @property
    def accuracy(self) -> Estimate:
        """Mean test accuracy of the models, with its interval."""
        return stats.accuracy(self.groups)

    @property
    def loss(self) -> Estimate:
        """Mean test loss of the models, without an interval."""
        return stats.mean_of(self.values("loss"))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(record.case for record in self.records)

    def param(self, name: str) -> Any:
        """The value of a case parameter, as the first record has it.

        Raises:
            MadlError: the cases have no such parameter.
        """
        params = self.records[0].case.params
        if name not in params:
            raise MadlError(f"{self.label} has no parameter {name!r}; known: {', '.join(params)}")
        return params[name]

    def values(self, name: str) -> list[Any]:
        """The value `name` of each record, read from where its test results stand."""
        return [judged[name] for judged in self._judged()]

    def value(self, name: str) -> Any:
        """The value `name`, which must be equal in all records.

        Raises:
            MadlError: the records differ in it.
        """
        values = self.values(name)
        if any(other != values[0] for other in values[1:]):
            raise MadlError(
                f"the models of {self.label} do not share one {name!r}: take values(…), mean(…), "
                "or the first model's (`first`), and say which"
            )
        return values[0]

    def mean(self, name: str) -> float:
        """Mean of the value `name` over the records."""
        return fmean(float(value) for value in self.values(name))

    @property
    def models(self) -> "list[Arm]":
        """An arm for each single record."""
        return [replace(self, records=(record,)) for record in self.records]

    @property
    def first(self) -> "Arm":
        """The arm of the first record alone, for a statement about one model."""
        return self.models[0]

    def __format__(self, spec: str) -> str:
        return format(self.accuracy, spec)

    def __str__(self) -> str:
        return format(self.accuracy)

    def __sub__(self, other: "Arm") -> Estimate:
        return versus(self, other).estimate(self.accuracy.n)


def value_at(record: Record, within: Sequence[str | int]) -> Any:
    """The value that a record holds under these nested names, outermost first."""
    value: Any = record.values
    for name in within:
        value = value[name]
    return value


def beside(models: Arm, several: Arm) -> Arm:
    """Models, of which a seed has one, each repeated for every model of its seed in `several`."""
    by_seed = {_seed(record): record for record in models.records}
    repeated = tuple(by_seed[_seed(record)] for record in several.records)
    return replace(models, records=repeated, units=several.units)


def versus(a: Arm, b: Arm) -> Comparison:
    """Test accuracy of A minus that of B, paired by seed and sentence.

    Raises:
        MadlError: the arms have different seeds, or were judged on different sentences.
    """
    seeds = [[_seed(record) for record in side.records] for side in (a, b)]
    if seeds[0] != seeds[1]:
        listed = " and ".join(", ".join(map(str, side)) for side in seeds)
        raise MadlError(
            f"{a.label} and {b.label} cannot be compared: they have other seeds, {listed}"
        )
    try:
        return stats.compare(a.groups, b.groups, unit_name=a.unit_name)
    except ValueError as error:
        raise MadlError(f"{a.label} and {b.label} cannot be compared: {error}") from error


def answers_apart(models: Arm, *within: str) -> float:
    """The share of answers, 0…1, in which two models of an arm differ: the mean over all pairs.

    They have to be judged on the same sentences; `within` leads to those answers.
    """
    answers = replace(models, within=within or models.within).outcomes
    return fmean(a.differing(b) / a.n for a, b in combinations(answers, 2))


def changed(models: Arm, reference: Arm) -> list[list[Outcomes]]:
    """A group for each model: the answers that are not those of its seed's reference."""
    pairs = zip(models.outcomes, reference.outcomes, strict=True)
    return [[outcomes.apart(of_reference)] for outcomes, of_reference in pairs]


def of_models(cell: Any) -> Any:
    """An arm of several models; of one, its accuracy without an interval, where others' intervals
    are of models. Anything else as it is.
    """
    is_single = isinstance(cell, Arm) and len(cell.records) == 1
    return replace(cell.accuracy, interval=None) if is_single else cell


def answers_changed(models: Arm, reference: Arm) -> Estimate:
    """The mean share of answers, 0…1, that are not the reference's, with its interval."""
    return stats.accuracy(changed(models, reference))


def arm(records: Records, label: str = "", /, *within: str | int, **where: Scalar) -> Arm:
    """The arm of all records with these parameters; by default, its label lists the parameters.

    `within` holds the nested names of the test results where a case judged several models. If
    another parameter was chosen for each seed separately, the arm stands for the way to choose.

    Raises:
        Pending: a planned case with these parameters has no result yet.
        MadlError: the parameters fit more than one configuration.
    """
    matching = records.all(**where)
    name = label or ", ".join(f"{key} {value}" for key, value in where.items())
    if len({_seed(record) for record in matching}) < len(matching):
        params = [record.case.params for record in matching]
        differ = sorted(
            key
            for key in {key for named in params for key in named}.difference(DRAWN)
            if len({repr(named.get(key)) for named in params}) > 1
        )
        advice = f"also give {', '.join(differ)}, or choose on the tuning seed"
        if not differ:
            advice = "they are of several experiments; begin with r.of_experiment(…)"
        raise MadlError(f"several configurations fit {name!r}; {advice}")
    return Arm(label=name, records=tuple(sorted(matching, key=_seed)), within=within)


def _seed(record: Record) -> Any:
    """The seed that the record's case was drawn with; 0 for a case without one."""
    return record.case.params.get(SEED, 0)


# ---- times --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedArm:
    """Timings of one variant: samples by process, and the load that other programs caused.

    `runs` are the JSON of `machine.timing.Measurement`, one a process. Formats as the median time
    of a call: `f"{arm}"` is "27.3 ms".
    """

    label: str
    records: tuple[Record, ...]
    runs: tuple[Mapping[str, Any], ...] = field(repr=False)
    within: tuple[str, ...] = ()  # names that lead to the runs in a record's values

    def __post_init__(self) -> None:
        if not self.runs:
            raise Pending(self.label)

    @property
    def samples_s(self) -> list[list[float]]:
        """Seconds a call: a list for each process, in the order in which the samples were taken."""
        return [list(run["samples_s"]) for run in self.runs]

    @property
    def contention(self) -> list[float | None]:
        """Share (0…1) of the machine that others used during each process; None if unknown."""
        return [run.get("contention") for run in self.runs]

    @property
    def _logs(self) -> list[float]:
        """Log of the median seconds of each uncontended process; of a single one, of its parts."""
        samples = self.samples_s
        return stats.log_medians([samples[i] for i in self.uncontended])

    @property
    def uncontended(self) -> list[int]:
        """Indices of the processes beside which little else ran; of all, if they are too few."""
        return stats.uncontended(self.contention)[0]

    @property
    def processes(self) -> int:
        """The number of processes that `median_s` and `time` are computed from."""
        return len(self.uncontended)

    @property
    def median_s(self) -> float:
        """Seconds a call: the geometric mean of the medians of the uncontended processes."""
        return math.exp(fmean(self._logs))

    @property
    def time(self) -> Estimate:
        """Milliseconds a call; the interval comes from the scatter between processes."""
        logs = self._logs
        if len(logs) == 1:
            return Estimate(1e3 * self.median_s, None, Unit.MILLISECONDS, 1)
        mean = stats.mean(logs, unit=Unit.TIMES, unit_name="units")
        interval = Interval(*(1e3 * math.exp(value) for value in mean.interval))
        each = tuple(1e3 * math.exp(value) for value in logs)
        return Estimate(1e3 * self.median_s, interval, Unit.MILLISECONDS, len(logs), each=each)

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(record.case for record in self.records)

    def __format__(self, spec: str) -> str:
        return format(self.time, spec)

    def __str__(self) -> str:
        return format(self.time)

    def __truediv__(self, other: "TimedArm") -> Estimate:
        """This arm's time over the other's: `eager / compiled` is the speed-up of `compiled`."""
        return speed_up(other, over=self).estimate(len(self.runs))


def timed_arm(records: Records, variant: str, label: str = "", /, **where: Scalar) -> TimedArm:
    """The timings of a variant in all records with these parameters, of one or more processes each.

    Raises:
        Pending: a planned case has no record yet, or a record has no timing of this variant.
        MadlError: they are of several processors, which may share a name.
    """
    matching, name = records.all(**where), label or variant
    runs = [record.run for record in matching]
    used = dict.fromkeys(run.cpu if run.device == "cpu" else run.device for run in runs)
    if len(used) > 1:
        raise MadlError(
            f"{name} was timed on {' and on '.join(used)}: time it on one of them, with "
            f"`python cli.py run {matching[0].case.experiment} --force`"
        )
    measured = [record.values.get("measurements", {}).get(variant) for record in matching]
    if not all(measured):
        raise Pending(f"{name} in each of its processes")
    runs = [run for m in measured for run in processes(m)]
    within = ("measurements", variant)
    return TimedArm(label=name, records=tuple(matching), runs=tuple(runs), within=within)


def processes(measured: Any) -> list[Any]:
    """A variant's timing in a record as a list: of one process it is stored alone."""
    return measured if isinstance(measured, list) else [measured]


def speed_up(candidate: TimedArm, *, over: TimedArm) -> Comparison:
    """Log of (time of `over` / time of `candidate`), by process: above 0, the candidate is faster.

    Raises:
        MadlError: the two were not timed together: their processes or samples do not pair.
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
