"""The measurement linter: the classic mistakes of timing, looked for in a measurement's record.

Pure functions over the JSON of a `timing.Measurement`. A fact that the record does not state
counts against it: a reader could not know it either.

Source of the list: what goes wrong in published timings of torch.compile and of attention, first of
all the compilation averaged in, launches timed instead of work, and gradients recorded for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Json = Mapping[str, Any]

CONTENDED = 0.2  # share of the machine in others' use from which a timing decides nothing
OUTLIER = 3.0  # a first sample this many times the others' median, and above all, is a first call
MIN_SAMPLES = 5
TAKEN_TURNS = 0.25  # of two variants in shuffled rounds, half of the neighbours are apart
STEADY_CLOCKS = ("perf_counter", "cuda events")  # the wall clock can be set while it is read
NO_EFFECT = 0.02  # two variants closer than this are not told apart by their spread


def mistakes(record: Json, *, against: Json | None = None) -> list[str]:
    """The names of the checks that fail; `against` is the other variant of a comparison.

    Raises:
        ValueError: the record has no samples, so it is no measurement.
    """
    if not _samples(record):
        raise ValueError(f"not a measurement: no samples in {sorted(record)}")
    found = [name for name, passes in CHECKS.items() if not passes(record)]
    return found + [name for name, passes in AGAINST.items() if not passes(record, against)]


def _samples(record: Json) -> Sequence[float]:
    return record.get("samples_s") or []


# ---- the checks: whether a record passes --------------------------------------------------------


def _is_synchronized(record: Json) -> bool:
    """No sample was read while the device worked on; calls on a CPU return when they are done."""
    left = record.get("unfinished")
    return record.get("result_on") == "cpu" if left is None else left == 0


def _is_warmed_up(record: Json) -> bool:
    first, *others = _samples(record)
    others = others or [float("inf")]
    is_first_call = first > max(OUTLIER * float(np.median(others)), 1.5 * max(others))
    return not is_first_call and bool(record.get("warmup_s"))


def _is_compiled_apart(record: Json) -> bool:
    """No graph was compiled while sampling, and the first call is kept apart."""
    return record.get("compilations") == 0 and record.get("first_call_s") is not None


def _is_in_evaluation_mode(record: Json) -> bool:
    """Or a training step, or no module."""
    subject = record.get("subject")
    if subject is None:
        return False
    return bool(subject.get("is_training_step")) or not subject.get("training")


def _records_no_gradient(record: Json) -> bool:
    """Or times the backward pass, too."""
    subject: Json = record.get("subject") or {}
    recorded = subject.get("records_gradient")
    return recorded is not None and (bool(subject.get("is_training_step")) or not recorded)


def _is_stated(record: Json) -> bool:
    subject: Json = record.get("subject") or {}
    return bool(subject.get("dtype") and subject.get("shape"))


def _is_interleaved(record: Json) -> bool:
    turns = record.get("turns")
    return turns is not None and turns > TAKEN_TURNS * (len(_samples(record)) - 1)


def _is_quiet(record: Json) -> bool:
    share = record.get("contention")
    return share is not None and share <= CONTENDED


CHECKS: Mapping[str, Callable[[Json], bool]] = {
    "synchronized": _is_synchronized,
    "steady clock": lambda record: record.get("clock") in STEADY_CLOCKS,
    "warm-up excluded": _is_warmed_up,
    "compile time apart": _is_compiled_apart,
    "evaluation mode": _is_in_evaluation_mode,
    "no gradient recorded": _records_no_gradient,
    "dtype and shape stated": _is_stated,
    "interleaved": _is_interleaved,
    "enough samples": lambda record: len(_samples(record)) >= MIN_SAMPLES,
    "quiet machine": _is_quiet,
}
EFFECT = "effect over spread"
ALIKE = "as many calls a sample"


def _has_as_many_calls(record: Json, against: Json | None) -> bool:
    """Calls in a row find their inputs in the cache, so more of them flatter a variant."""
    if against is None:
        return True
    ours, theirs = (one.get("calls_per_sample") for one in (record, against))
    return ours is not None and ours == theirs


def _exceeds_its_spread(record: Json, against: Json | None) -> bool:
    """A difference counts when it exceeds what the medians' own error lets them differ.

    Source: McGill, Tukey, Larsen 1978: two medians differ where their notches do not overlap.
    """
    if against is None or not _samples(against):
        return False
    (one, half), (other, other_half) = _notch(record), _notch(against)
    effect = abs(other / one - 1) if one > 0 else 0.0
    return abs(one - other) > half + other_half or effect < NO_EFFECT


def _notch(record: Json) -> tuple[float, float]:
    """The median and half the length of its notch."""
    samples = _samples(record)
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float(middle), float(1.57 * (high - low) / np.sqrt(len(samples)))


AGAINST: Mapping[str, Callable[[Json, Json | None], bool]] = {
    ALIKE: _has_as_many_calls,
    EFFECT: _exceeds_its_spread,
}
