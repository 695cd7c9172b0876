"""A linter for measurements: it looks for the classic mistakes of timing in a record.

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
TAKEN_TURNS = 0.25  # of the gaps between samples have another variant; of shuffled pairs, half
STEADY_CLOCKS = ("perf_counter", "cuda events")  # the wall clock can be set while it is read
NO_EFFECT = 0.02  # two variants closer than this are not told apart by their spread


def mistakes(record: Json, *, against: Json | None = None) -> list[str]:
    """The names of the checks that the JSON of a measurement fails.

    `against` is the variant it is compared with; without one, `EFFECT` fails.

    Raises:
        ValueError: the record has no samples, so it is no measurement.
    """
    if not _samples(record):
        raise ValueError(f"not a measurement: no samples in {sorted(record)}")
    failed = [name for name, passes in CHECKS.items() if not passes(record)]
    return failed + [name for name, passes in AGAINST.items() if not passes(record, against)]


def _samples(record: Json) -> Sequence[float]:
    return record.get("samples_s") or []


# ---- the checks: whether a record passes --------------------------------------------------------


def _is_synchronized(record: Json) -> bool:
    """Whether no sample was read while the device still worked; calls on a CPU always pass."""
    left = record.get("unfinished")
    return record.get("result_on") == "cpu" if left is None else left == 0


def _is_warmed_up(record: Json) -> bool:
    """Whether there were warm-up calls, and the first sample is not slow like a first call."""
    first, *others = _samples(record)
    others = others or [float("inf")]
    is_first_call = first > max(OUTLIER * float(np.median(others)), 1.5 * max(others))
    return not is_first_call and bool(record.get("warmup_s"))


def _is_compiled_apart(record: Json) -> bool:
    """Whether no graph was compiled while sampling, and the first call's time is kept apart."""
    return record.get("compilations") == 0 and record.get("first_call_s") is not None


def _subject(record: Json) -> Json:
    """The record's description of the timed work (`timing.Subject`); empty if it has none."""
    return record.get("subject") or {}


def _is_in_evaluation_mode(record: Json) -> bool:
    """Whether the module was in evaluation mode; training steps and work without a module pass."""
    subject = _subject(record)
    is_right = subject.get("is_training_step") or not subject.get("training")
    return bool(subject) and bool(is_right)


def _records_no_gradient(record: Json) -> bool:
    """Whether no gradient was recorded; a training step passes, as its backward is timed too."""
    recorded = _subject(record).get("records_gradient")
    return recorded is not None and bool(_subject(record).get("is_training_step") or not recorded)


def _is_stated(record: Json) -> bool:
    """Whether the record states the dtype and shape of the timed work."""
    return bool(_subject(record).get("dtype") and _subject(record).get("shape"))


def _is_interleaved(record: Json) -> bool:
    """Whether another variant was timed between enough of the samples."""
    turns = record.get("turns")
    return turns is not None and turns > TAKEN_TURNS * (len(_samples(record)) - 1)


def _is_quiet(record: Json) -> bool:
    """Whether the share of the machine that others used is known and small."""
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
QUIET = "quiet machine"
EFFECT = "effect over spread"
OF_THE_MACHINE = (QUIET, EFFECT)  # of a day, not of how something is timed
ALIKE = "as many calls a sample"


def _has_as_many_calls(record: Json, against: Json | None) -> bool:
    """Whether both variants have the same number of calls per sample; one variant alone passes.

    Calls in a row find their inputs in the cache, so more of them flatter a variant.
    """
    if against is None:
        return True
    calls = record.get("calls_per_sample")
    return calls is not None and calls == against.get("calls_per_sample")


def _exceeds_its_spread(record: Json, against: Json | None) -> bool:
    """Whether the two medians differ by more than their notches, or by less than `NO_EFFECT`.

    Source: McGill, Tukey, Larsen 1978: two medians differ where their notches do not overlap.
    """
    if against is None or not _samples(against):
        return False
    (median, half), (other, other_half) = _notch(record), _notch(against)
    effect = abs(other / median - 1) if median > 0 else 0.0
    return abs(median - other) > half + other_half or effect < NO_EFFECT


def _notch(record: Json) -> tuple[float, float]:
    """(median, half the length of its notch) of the samples, in seconds."""
    samples = _samples(record)
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float(middle), float(1.57 * (high - low) / np.sqrt(len(samples)))


AGAINST: Mapping[str, Callable[[Json, Json | None], bool]] = {
    ALIKE: _has_as_many_calls,
    EFFECT: _exceeds_its_spread,
}
