"""What the values of a case must be: checked where they are written and where they are read.

A known name (`accuracy`, `outcomes`, …) means the same wherever it stands among the values, and so
has one type and one range.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from madl.logbook.stats import Outcomes

DEPTH = 40  # of values inside values
LIMIT = 10**100  # of a number: no measurement reaches it, and squares of what is below are numbers


def check(values: Any) -> None:
    """That values are finite, JSON, and under known names what these mean.

    Raises:
        ValueError: which name is not, and what it is instead.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"values are {shown(values)}, not names with values")
    _check(values, ())
    check_texts(values)


def check_texts(value: Any) -> None:
    """Raises: ValueError: a text in it that no file can hold."""
    if r"\ud" in json.dumps(value):  # a surrogate, or half of one
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"{error.object[error.start]!a}"
            raise ValueError(f"a text has half a character, {half}") from error


def _check(value: Any, place: tuple[str, ...]) -> None:
    if len(place) > DEPTH:
        raise ValueError(f"{place[0]!r} is nested more than {DEPTH} deep")
    if isinstance(value, int | float) and not is_number(value) and not isinstance(value, bool):
        raise ValueError(f"{'.'.join(place)} is {shown(value)}, which is no number")
    if isinstance(value, list | tuple):
        for i, one in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            if not isinstance(one, str | bool):
                _check(one, (*place, str(i)))
    elif isinstance(value, Mapping):
        inside: Mapping[Any, Any] = value
        for name, one in inside.items():
            if not isinstance(name, str):
                raise ValueError(f"{'.'.join(place)} has the name {name!r}, which is no text")
            if not isinstance(one, str | bool):
                _check(one, (*place, name))
            if name in KNOWN and (wrong := KNOWN[name](one)):
                raise ValueError(f"{'.'.join((*place, name))} is {shown(one)}, {wrong}")
        _check_beside(inside, place)
    elif value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{'.'.join(place)} is {shown(value)}, which JSON does not have")


def _share(value: Any) -> str:
    return "" if is_number(value) and 0 <= value <= 1 else "not a share between 0 and 1"


def _number(value: Any) -> str:
    return "" if is_number(value) else "not a number"


def _numbers(value: Any) -> str:
    """A list of numbers; or such lists by what they are of."""
    if isinstance(value, Mapping):
        return next((why for one in value.values() if (why := _numbers(one))), "")  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return next((why for one in value if (why := _numbers(one) and _number(one))), "")  # pyright: ignore[reportUnknownVariableType]
    return "not a list of numbers"


def _outcomes(value: Any) -> str:
    try:
        Outcomes.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not the outcomes of examples ({error})"
    return ""


KNOWN: Mapping[str, Callable[[Any], str]] = {  # what is wrong with a value, or nothing
    "accuracy": _share,
    "validation_accuracy": _share,
    "loss": _number,
    "validation_loss": _number,
    "losses": _numbers,
    "outcomes": _outcomes,
}


def _check_beside(values: Mapping[str, Any], place: tuple[str, ...]) -> None:
    """That an accuracy is the share of the outcomes that stand beside it."""
    if "outcomes" in values and "accuracy" in values:
        share = float(Outcomes.from_json(values["outcomes"])._correct.mean())
        if abs(share - values["accuracy"]) > 1e-6:
            name = ".".join((*place, "accuracy"))
            raise ValueError(f"{name} is {values['accuracy']}, and its outcomes say {share:g}")


def is_number(value: Any) -> bool:
    """Finite, of a size that can be computed with, and not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LIMIT < value < LIMIT


def shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"
