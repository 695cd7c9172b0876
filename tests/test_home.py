"""The home page: what the data refuted comes first, and no hand chooses it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from madl.logbook.claims import Contrast, Result
from madl.logbook.stats import mean
from madl.logbook.values import Unit
from madl.site import home


def a_result(name="it", verdict="supported", *, far=2.0, **more) -> Result:
    """An effect that lies `far` half widths of its interval beyond the line."""
    made = mean([-0.01, 0.0, 0.01], unit=Unit.POINTS, unit_name="models")
    width = made.interval.high
    made = mean(
        [far * width + each for each in (-0.01, 0.0, 0.01)], unit=Unit.POINTS, unit_name="m"
    )
    contrast = Contrast(comparison=made, cases=())
    given = {"primary": True, "contrast": contrast, **more}
    return Result(name=name, hypothesis="It is so.", verdict=verdict, **given)


def a_page(question, *results, has_run=True):
    view = SimpleNamespace(own=[1] * has_run, results={one.name: one for one in results})
    return SimpleNamespace(
        view=view, questions=[SimpleNamespace(id=question)] * bool(question), name=question
    )


def chosen(*pages) -> list[str]:
    return [page.name for page in [home.clearest(pages)] if page]


def test_what_was_refuted_stands_for_the_logbook_then_what_is_clearest_and_some_never_do():
    pages = [
        a_page("0.1", a_result(far=30)),
        a_page("2.1", a_result(far=9)),
        a_page("3.1", a_result("one"), a_result("other", "refuted", far=-3)),
    ]
    assert chosen(*pages) == ["3.1"]
    assert chosen(*pages[:2]) == ["0.1"]
    undecided = a_result(verdict="undecided"), a_result(verdict="not measured", contrast=None)
    pages = [a_page("1.1", one) for one in (*undecided, a_result(verdict=None, primary=False))]
    pages += [a_page("1.1", a_result(), has_run=False), a_page("1.1"), a_page("", a_result())]
    assert chosen(*pages) == []


def test_the_distance_is_from_the_line_that_decides():
    above = a_result(far=2)
    assert home._distance(above) == pytest.approx(2)
    barely = replace(above, contrast=above.contrast.more_than(above.comparison.effect * 0.99))
    assert home._distance(barely) < 0.1
