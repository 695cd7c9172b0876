"""The home page: what goes most against expectation, by a rule, and every question as a tile."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from madl.files import read_text
from madl.logbook.charts import Chart
from madl.logbook.claims import Evidence, Finding
from madl.logbook.stats import Unit
from madl.site import evidence, svg
from madl.site.evidence import chip, inline, literal
from madl.site.page import PageCalls
from madl.site.views import Page

OF_TIME = (Unit.TIMES, Unit.SECONDS, Unit.MILLISECONDS)


def lab(question_id: str) -> str:
    """The lab of a question: what stands before the dot of its number."""
    return question_id.partition(".")[0]


def surprising(pages: Iterable[Page], most: int = 3) -> list[tuple[Page, Finding]]:
    """The claims to open the logbook with, at most one a lab.

    Of those worded before their data and decided by them: what the data refuted comes first, then
    headlines that they support; within each, what lies farthest from the line that it is held
    against, in half widths of its interval. What measures time is left out: another machine's
    clock may say otherwise.
    """
    found = [
        (page, one)
        for page in pages
        if page.questions and page.view.own
        for one in page.view.findings.values()
        if _can_open(one)
    ]
    found.sort(key=lambda pair: (pair[1].verdict != "refuted", -_distance(pair[1].evidence)))
    by_lab: dict[str, tuple[Page, Finding]] = {}
    for page, one in found:
        by_lab.setdefault(lab(page.questions[0].id), (page, one))
    return list(by_lab.values())[:most]


def _can_open(made: Finding) -> bool:
    of_time = made.evidence is None or made.evidence.unit in OF_TIME
    decided = made.verdict == "refuted" or (made.verdict == "supported" and made.headline)
    return decided and not made.worded_after and not of_time


def _distance(made: Evidence | None) -> float:
    """From the effect to the nearest line that decides, in half widths of the interval."""
    assert made is not None
    low, high = made.interval
    apart = min(abs(made.effect - line) for line in made.boundaries)
    return 2 * apart / (high - low) if high > low else math.inf


# ---- which figure -------------------------------------------------------------------------------


def figure_beside(calls: PageCalls, claim: str | None = None) -> str | None:
    """The chart that the page shows next after a claim; one in a single panel, if it has any."""
    template = read_text(calls.project.templates / f"{calls.page.name}.md.j2", "save it as text")
    shown = calls.page.view.shown
    before: list[str] = []
    after: list[str] = []
    found = before if claim else after
    for kind, name in re.findall(r"\{\{\s*(finding|figure)\(\"([^\"]+)\"\)", template):
        if kind == "finding" and name == claim:
            found = after
        elif kind == "figure" and isinstance(shown.get(name), Chart):
            found.append(name)
    ordered = after + before
    return next((n for n in ordered if shown[n].facet is None), next(iter(ordered), None))


def openings(pages: Sequence[Page], calls: Mapping[str, PageCalls]) -> str:
    """The surprising findings, each with its figure and the way to its page."""
    parts = ['<div class="openings" markdown>\n']
    for page, one in surprising(pages):
        called = calls[page.name]
        name = figure_beside(called, one.name)
        parts += [
            '<section class="opening" markdown data-search-exclude>\n',
            f"{literal(evidence.said(one))}\n",
            f"Hypothesis: {literal(inline(one.hypothesis))}\n{{ .facts }}\n",
        ]
        if name is not None:
            parts.append(_drawn(svg.small, called, name) + "\n")
        parts += [f"[{called.title()}]({page.path}#claim-{one.name})\n", "</section>\n"]
    return "\n".join([*parts, "</div>\n"]) if len(parts) > 1 else ""


def _drawn(draw: Callable[..., str], calls: PageCalls, name: str) -> str:
    """A chart of the page; "pending" where it cannot be drawn."""

    def figure(name: str) -> str:
        chart = calls.page.view.shown[name]
        return draw(chart, id=f"{calls.page.name}-{name}", cache=calls.cache)

    return calls.tried(figure)(name)


# ---- every question -----------------------------------------------------------------------------


def tiles(
    rows: Sequence[Mapping[str, Any]], pages: Sequence[Page], calls: Mapping[str, PageCalls]
) -> str:
    """Every question by lab: its answer in a line, its figure in small, verdict and coverage."""
    by_name = {page.name: page for page in pages}
    parts: list[str] = []
    for number in dict.fromkeys(lab(row["id"]) for row in rows):
        parts += [f"### Lab {number}\n", '<div class="tiles" markdown>\n']
        for row in rows:
            if lab(row["id"]) == number:
                parts.append(_tile(row, by_name.get(row["stem"]), calls))
        parts.append("</div>\n")
    return "\n".join(parts)


def _tile(row: Mapping[str, Any], page: Page | None, calls: Mapping[str, PageCalls]) -> str:
    title = literal(inline(f"{row['id']} {row['title']}"))
    parts = ['<section class="tile" markdown data-search-exclude>\n']
    if page is None or not page.view.own:
        parts.append(f"**[{title}]({page.path})**\n" if page else f"**{title}**\n")
        parts.append(f'<p class="facts">{chip("open")}</p>\n')
        return "\n".join([*parts, "</section>\n"])
    called = calls[page.name]
    if name := figure_beside(called):
        parts.append(f'<div class="thumb">{_drawn(svg.thumbnail, called, name)}</div>\n')
    parts.append(f"**[{title}]({page.path})**\n")
    parts += [f"{literal(evidence.said(one))}\n" for one in page.headlines[:1]]
    asked = " · ".join(inline(f"{p['run']} of {p['asked']} {p['what']}") for p in row["coverage"])
    parts.append(f'<p class="facts">{chip(row["status"])} {asked}</p>\n')
    return "\n".join([*parts, "</section>\n"])
