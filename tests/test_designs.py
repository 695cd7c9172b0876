"""Designs of all pages: what was tried around what was chosen."""

import importlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import ROOT

NEAR = 2.0  # times: rates lie closer around the chosen one, so that none between is much better


def chosen_rates() -> Iterator[tuple[str, float, list[float]]]:
    """(name, chosen rate, rates tried) of each training that a page tunes."""
    for path in sorted((ROOT / "experiments").glob("*/design.py")):
        stem = path.parent.name
        design: Any = importlib.import_module(f"experiments.{stem}.design")
        for tried, chosen in (("RATES_TRIED", "RATES"), ("TRIAL_RATES_TRIED", "TRIAL_RATE")):
            rates: Any = getattr(design, tried, {})
            taken: Any = getattr(design, chosen, getattr(design, chosen.rstrip("S"), None))
            by_name = rates if isinstance(rates, Mapping) else {"": rates}
            for name, some in by_name.items():
                of_name = taken.get(name, taken) if isinstance(taken, Mapping) else taken
                for rate in of_name.values() if isinstance(of_name, Mapping) else [of_name]:
                    yield f"{stem} {name}".strip(), rate, sorted(some)


@pytest.mark.parametrize(("name", "chosen", "tried"), [*chosen_rates()])
def test_rates_were_tried_close_around_the_chosen_one(name, chosen, tried):
    assert chosen in tried
    beside = [(a, b) for a, b in pairwise(tried) if chosen in (a, b)]
    assert len(beside) == 2, f"{name}: {chosen} is at the edge of {tried}"
    assert all(b / a <= NEAR + 1e-9 for a, b in beside), f"{name}: {chosen} of {tried}"
