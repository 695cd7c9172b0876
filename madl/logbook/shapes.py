"""Checks of a case's values, where they are written and where they are read.

A known name (`accuracy`, `outcomes`, …) means the same wherever it stands among the values, and so
has one type and one range.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from madl.logbook.values import Outcomes

DEPTH = 40  # of values inside values
LIMIT = 1e100  # of a number: no measurement reaches it, and squares of what is below are numbers


def check(values: Any) -> None:
    """Check that values are finite, are JSON, and have the type and range of known names.

    Raises:
        ValueError: a value is not; the message names it.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"values are {shown(values)}, not names with values")
    _check(values, ())


def check_text(text: str) -> None:
    """Raises: ValueError: the text has half of a surrogate pair, so no file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!a}"
        raise ValueError(f"a text has half a character, {half}") from error


def _check(value: Any, place: tuple[str, ...]) -> None:
    """Check a value and all inside it; `place` holds the names that lead to it."""
    if len(place) > DEPTH:
        raise ValueError(f"{place[0]!r} is nested more than {DEPTH} deep")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, list | tuple):
        parts: Sequence[Any] = value
        if not _are_numbers(parts):
            for i, part in enumerate(parts):
                _check(part, (*place, str(i)))
    elif isinstance(value, Mapping):
        inside: Mapping[Any, Any] = value
        for name, part in inside.items():
            if not isinstance(name, str):
                raise ValueError(f"{'.'.join(place)} has the name {name!r}, which is no text")
            check_text(name)
            _check(part, (*place, name))
            if name in KNOWN and (wrong := KNOWN[name](part)):
                raise ValueError(f"{'.'.join((*place, name))} is {shown(part)}, {wrong}")
        _check_beside(inside, place)
    elif value is not None and not isinstance(value, bool) and not is_number(value):
        why = "is no number" if isinstance(value, int | float) else "JSON does not have"
        raise ValueError(f"{'.'.join(place)} is {shown(value)}, which {why}")


def _share(value: Any) -> str:
    """The complaint about anything but a number from 0 to 1; else ""."""
    return "" if is_number(value) and 0 <= value <= 1 else "not a share between 0 and 1"


def _number(value: Any) -> str:
    """The complaint about anything but a number; else ""."""
    return "" if is_number(value) else "not a number"


def _numbers(value: Any) -> str:
    """The complaint about anything but numbers in nested lists or mappings; else ""."""
    if not isinstance(value, Mapping | list | tuple):
        return "not a list of numbers"
    parts: Sequence[Any] = [*value.values()] if isinstance(value, Mapping) else value
    if _are_numbers(parts):
        return ""
    return next((why for part in parts if (why := _numbers(part) and _number(part))), "")


def _outcomes(value: Any) -> str:
    """The complaint about anything but the JSON of `Outcomes`; else ""."""
    try:
        Outcomes.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not the outcomes of examples ({error})"
    return ""


KNOWN: Mapping[str, Callable[[Any], str]] = {  # name → a complaint about its value, or ""
    "accuracy": _share,
    "validation_accuracy": _share,
    "loss": _number,
    "validation_loss": _number,
    "losses": _numbers,
    "outcomes": _outcomes,
}


def _check_beside(values: Mapping[str, Any], place: tuple[str, ...]) -> None:
    """Check that an accuracy is the share of right answers in the outcomes beside it."""
    if "outcomes" in values and "accuracy" in values:
        share = float(Outcomes.from_json(values["outcomes"])._correct.mean())
        if abs(share - values["accuracy"]) > 1e-6:
            name = ".".join((*place, "accuracy"))
            raise ValueError(f"{name} is {values['accuracy']}, and its outcomes say {share:g}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number below 1e100 in size; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LIMIT < value < LIMIT


def _are_numbers(values: Sequence[Any]) -> bool:
    return {*map(type, values)} <= {float, int} and all(-LIMIT < v < LIMIT for v in values)


def shown(value: Any) -> str:
    """A value for a message: its repr on one line, cut to 40 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"
