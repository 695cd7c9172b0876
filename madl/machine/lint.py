"""The measurement linter: the classic mistakes of timing, looked for in a measurement's record.

Pure functions over the JSON of a `timing.Measurement`. A fact that the record does not state
counts against it: a reader could not know it either.

Source of the list: what goes wrong in published timings of torch.compile and of attention, first of
all the compilation averaged in, launches timed instead of work, and gradients recorded for nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

Json = Mapping[str, Any]

CONTENDED = 0.2  # share of the machine in others' use from which a timing decides nothing
OUTLIER = 3.0  # a first sample this many times the others' median, and above all, is a first call
MIN_SAMPLES = 5
TAKEN_TURNS = 0.25  # of two variants in shuffled rounds, half of the neighbours are apart
STEADY_CLOCKS = ("perf_counter", "cuda events")  # the wall clock can be set while it is read
NO_EFFECT = 0.02  # two variants closer than this are not told apart by their spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found; `why` is a short phrase for the page, either way."""

    check: str
    passed: bool
    why: str


def lint(record: Json, *, against: Json | None = None) -> list[Finding]:
    """Every check on one record; `against` is the other variant of a comparison.

    Raises:
        ValueError: the record has no samples, so it is no measurement.
    """
    if not _samples(record):
        raise ValueError(f"not a measurement: no samples in {sorted(record)}")
    findings = [
        Finding(check=check, passed=passed, why=why)
        for check, look in CHECKS.items()
        for passed, why in (look(record),)
    ]
    findings += [
        Finding(check=check, passed=passed, why=why)
        for check, look in AGAINST.items()
        for passed, why in (look(record, against),)
    ]
    return findings


def mistakes(record: Json, *, against: Json | None = None) -> list[str]:
    """The names of the checks that failed."""
    return [finding.check for finding in lint(record, against=against) if not finding.passed]


def failures(pairs: Iterable[tuple[Sequence[Json], Sequence[Json]]]) -> tuple[Counter[str], int]:
    """How often each check failed, and of how many timings.

    A pair is the runs of a variant and those of the one that it is held against, by process.
    """
    found = [
        mistakes(one, against=other)
        for runs, rival in pairs
        for one, other in zip(runs, rival, strict=True)
    ]
    return Counter(chain.from_iterable(found)), len(found)


def spread(record: Json) -> float:
    """Interquartile range over the median: how much samples differ, extremes left out."""
    low, middle, high = np.quantile(_samples(record), [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle > 0 else float("inf")


def _samples(record: Json) -> Sequence[float]:
    return record.get("samples_s") or []


# ---- the checks ---------------------------------------------------------------------------------

Outcome = tuple[bool, str]


def _synchronized(record: Json) -> Outcome:
    left = record.get("unfinished")
    if left is not None:
        count = f"{left} of {len(_samples(record))} samples"
        return left == 0, f"{count} were read while the device still worked"
    place = record.get("result_on")
    if place is None:
        return False, "not stated"
    if place == "cpu":
        return True, "the result lies on the CPU, whose calls return when they are done"
    return False, f"the result lies on {place}, which was not waited for"


def _steady_clock(record: Json) -> Outcome:
    clock = record.get("clock")
    return (clock in STEADY_CLOCKS, str(clock)) if clock else (False, "not stated")


def _warmed_up(record: Json) -> Outcome:
    samples = _samples(record)
    others = samples[1:] or [float("inf")]
    if samples[0] > max(OUTLIER * float(np.median(others)), 1.5 * max(others)):
        times = samples[0] / float(np.median(others))
        return False, f"the first sample takes {times:.0f} times the others"
    warmup = record.get("warmup_s")
    if warmup is None:
        return False, "not stated"
    return bool(warmup), f"{len(warmup)} calls before the samples"


def _compiled_apart(record: Json) -> Outcome:
    count = record.get("compilations")
    if count is None:
        return False, "not stated"
    if count:
        return False, f"graphs compiled while sampling: {count}"
    if record.get("first_call_s") is None:
        return False, "the first call is among the samples"
    return True, "the first call is kept apart"


def _evaluation_mode(record: Json) -> Outcome:
    subject = record.get("subject")
    if subject is None:
        return False, "not stated"
    if subject.get("is_training_step"):
        return True, "a training step"
    if subject.get("training") is None:
        return True, "no module"
    return (False, "training mode") if subject["training"] else (True, "evaluation mode")


def _no_gradient(record: Json) -> Outcome:
    subject = record.get("subject")
    if subject is None or subject.get("records_gradient") is None:
        return False, "not stated"
    if subject.get("is_training_step"):
        return True, "the backward pass is timed too"
    return (False, "records a graph") if subject["records_gradient"] else (True, "no graph")


def _stated(record: Json) -> Outcome:
    subject: Json = record.get("subject") or {}
    dtype, shape = subject.get("dtype"), subject.get("shape")
    return (True, f"{dtype}, {shape}") if dtype and shape else (False, "not stated")


def _interleaved(record: Json) -> Outcome:
    turns, between = record.get("turns"), len(_samples(record)) - 1
    if turns is None:
        return False, "not stated"
    return turns > TAKEN_TURNS * between, f"another variant between {turns} of {between} pairs"


def _enough(record: Json) -> Outcome:
    count = len(_samples(record))
    return count >= MIN_SAMPLES, f"{count} samples"


def _quiet(record: Json) -> Outcome:
    share = record.get("contention")
    if share is None:
        return False, "not stated"
    return share <= CONTENDED, f"{share:.0%} contended"


CHECKS: Mapping[str, Callable[[Json], Outcome]] = {
    "synchronized": _synchronized,
    "steady clock": _steady_clock,
    "warm-up excluded": _warmed_up,
    "compile time apart": _compiled_apart,
    "evaluation mode": _evaluation_mode,
    "no gradient recorded": _no_gradient,
    "dtype and shape stated": _stated,
    "interleaved": _interleaved,
    "enough samples": _enough,
    "quiet machine": _quiet,
}
EFFECT = "effect over spread"
ALIKE = "as many calls a sample"


def _as_many_calls(record: Json, against: Json | None) -> Outcome:
    """Calls in a row find their inputs in the cache, so more of them flatter a variant."""
    if against is None:
        return True, "nothing to compare with"
    counts = [one.get("calls_per_sample") for one in (record, against)]
    if None in counts:
        return False, "not stated"
    return counts[0] == counts[1], f"{counts[0]} and {counts[1]} calls in a row"


def _effect_over_spread(record: Json, against: Json | None) -> Outcome:
    """A difference counts when it exceeds what the medians' own error lets them differ.

    Source: McGill, Tukey, Larsen 1978: two medians differ where their notches do not overlap.
    """
    if against is None or not _samples(against):
        return False, "nothing to compare with"
    one, other = _notch(record), _notch(against)
    effect = abs(other[0] / one[0] - 1) if one[0] > 0 else 0.0
    clear = abs(one[0] - other[0]) > one[1] + other[1]
    if clear or effect < NO_EFFECT:
        return True, f"effect {effect:.0%}, spread {spread(record):.0%}"
    return False, f"effect {effect:.0%} is inside the spread of {spread(record):.0%}"


def _notch(record: Json) -> tuple[float, float]:
    """The median and half the length of its notch."""
    samples = _samples(record)
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float(middle), float(1.57 * (high - low) / np.sqrt(len(samples)))


AGAINST: Mapping[str, Callable[[Json, Json | None], Outcome]] = {
    ALIKE: _as_many_calls,
    EFFECT: _effect_over_spread,
}
