"""The home page: what the data refuted, by a rule, and every question as a tile."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from madl.files import read_text
from madl.logbook.charts import Chart
from madl.logbook.claims import Evidence, Finding
from madl.logbook.stats import Unit
from madl.site import evidence, svg
from madl.site.evidence import chip, inline, literal
from madl.site.page import PageCalls
from madl.site.views import Page

BASELINE = "baseline"  # the experiment that says what all labs are measured on
ROWS = 80  # of a thumbnail, at most
FINDINGS = 3  # that the logbook opens with, at most
LEAST_WORDS = 8  # of an answer in a line
OF_TIME = (Unit.TIMES, Unit.SECONDS, Unit.MILLISECONDS)


def lab(question_id: str) -> str:
    """The lab of a question: what stands before the dot of its number."""
    return question_id.partition(".")[0]


def surprising(pages: Iterable[Page]) -> list[tuple[Page, Finding]]:
    """The claims to open the logbook with, at most one a lab.

    What the data refuted first; then headlines that they support, but for those of time: another
    machine's clock may say otherwise. Of either, those registered in the records that they are
    judged on come first; then what lies farthest from the line that it is held against, in half
    widths of its interval.
    """
    found = [
        (page, one)
        for page in pages
        if page.questions and page.view.own
        for one in page.view.findings.values()
        if one.evidence is not None
    ]
    chosen = [pair for pair in found if pair[1].verdict == "refuted" or _is_clear(pair[1])]
    chosen.sort(key=lambda pair: _rank(pair[1]))
    by_lab: dict[str, tuple[Page, Finding]] = {}
    for page, one in chosen:
        by_lab.setdefault(lab(page.questions[0].id), (page, one))
    return list(by_lab.values())[:FINDINGS]


def _is_clear(made: Finding) -> bool:
    of_time = made.evidence is not None and made.evidence.unit in OF_TIME
    return made.verdict == "supported" and made.headline and not of_time


def _rank(made: Finding) -> tuple[bool, bool, float]:
    return made.verdict != "refuted", made.worded_after, -_distance(made.evidence)


def _distance(made: Evidence | None) -> float:
    """From the effect to the nearest line that decides, in half widths of the interval."""
    assert made is not None
    low, high = made.interval
    apart = min(abs(made.effect - line) for line in made.boundaries)
    return 2 * apart / (high - low) if high > low else math.inf


def of_other_machine(page: Page, pages: Iterable[Page]) -> list[str]:
    """The page's machine, where that is not the one of most pages with results."""
    most = Counter(one.view.machine for one in pages if one.questions and one.view.own)
    is_other = page.view.own and page.view.machine != most.most_common(1)[0][0]
    return [literal(inline(page.view.machine))] if is_other else []


# ---- what it opens with -------------------------------------------------------------------------


def openings(pages: Sequence[Page], calls: Mapping[str, PageCalls]) -> str:
    """The surprising findings under their title, each with its effect and the way to its page."""
    found = surprising(pages)
    if not found:
        return ""
    refuted = sum(one.verdict == "refuted" for _, one in found)
    titles = ["What goes against expectation"] if refuted else []
    titles += ["what is clearest"] if refuted < len(found) else []
    title = ", and ".join(titles)
    parts = [f"## {title[0].upper()}{title[1:]}\n"]
    parts.append('<div class="openings" markdown>\n')
    for page, one in found:
        assert one.evidence is not None
        link = f"[{calls[page.name].title()}]({page.path}#claim-{one.name})"
        drawn = evidence.effect_figure(one.evidence, page.view.sides(one.name))
        parts += [
            '<section class="opening" markdown data-search-exclude>\n',
            f"{literal(evidence.said(one))}\n",
            f"Hypothesis: {literal(inline(one.hypothesis))}\n{{ .facts }}\n",
            f"{literal(drawn)}\n",
            f"{' · '.join([link, *of_other_machine(page, pages)])}\n",
            "</section>\n",
        ]
    return "\n".join([*parts, "</div>\n"])


def workload(pages: Iterable[Page]) -> str:
    """What all labs are measured on, as the starting point's records say; "" without them."""
    made = (page.view.facts.get("workload") for page in pages if page.name == BASELINE)
    fact = next((one for one in made if one), None)
    return literal(inline(evidence.sentence(fact))) if fact else ""


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
                parts.append(_tile(row, by_name.get(row["stem"]), pages, calls))
        parts.append("</div>\n")
    return "\n".join(parts)


def _tile(
    row: Mapping[str, Any],
    page: Page | None,
    pages: Sequence[Page],
    calls: Mapping[str, PageCalls],
) -> str:
    title = literal(inline(f"{row['id']} {row['title']}"))
    parts = ['<section class="tile" markdown data-search-exclude>\n']
    if page and page.view.own and (name := thumbnail_of(calls[page.name])):
        parts.append(f'<div class="thumb">{_drawn(calls[page.name], name)}</div>\n')
    parts.append(f"**[{title}]({page.path})**\n" if page else f"**{title}**\n")
    parts.append(f"{literal(inline(row['question']))}\n{{ .facts }}\n")
    if said := answer(row, page, calls, is_short=True):
        parts.append(f"{said}\n")
    facts = [*map(inline, run_of_asked(row)), *(of_other_machine(page, pages) if page else [])]
    line = f"{chip(row['status'])} {' · '.join(facts)}".strip()
    parts.append(f'<p class="facts">{line}</p>\n')
    return "\n".join([*parts, "</section>\n"])


def answer(
    row: Mapping[str, Any],
    page: Page | None,
    calls: Mapping[str, PageCalls],
    *,
    is_short: bool = False,
) -> str:
    """A question's answer with its chips; where there is none, what it waits for."""
    if page and page.view.own and page.view.experiment.speaks:
        return calls[page.name].answer(page.folder)
    if page and (made := page.answer):
        if is_short:
            is_open = isinstance(made, Finding) and made.verdict == "undecided"
            made = replace(made, text=first_clause(made.text, ends="." if is_open else ".:;"))
        return literal(evidence.said(made))
    return literal(inline(row["answer"] or ""))


def first_clause(text: str, *, ends: str = ".:;") -> str:
    """A finding up to the colon, semicolon or full stop after which its details begin.

    One that is not decided says so at the end of its sentence.
    """
    depth = 0
    for i, (sign, after) in enumerate(pairwise(text)):
        depth += (sign in "([") - (sign in ")]")
        if not depth and sign in ends and after == " " and len(text[:i].split()) >= LEAST_WORDS:
            return text[:i]
    return text


def run_of_asked(row: Mapping[str, Any]) -> list[str]:
    """How much of what a question asks for has run; of all cases, too, where not all is there."""
    parts = [f"{p['run']} of {p['asked']} {p['what']}" for p in row["coverage"]]
    run, _, planned = (row["progress"] or "").partition(" of ")
    is_whole = not planned or run == planned.split()[0]
    return parts if row["status"] != "partly" or is_whole else [*parts, row["progress"]]


def thumbnail_of(calls: PageCalls) -> str | None:
    """The first chart that the page shows; one in a single panel, if it has any."""
    template = read_text(
        calls.project.experiments / calls.page.name / "page.md.j2", "save it as text"
    )
    shown = calls.page.view.shown
    names = re.findall(r"\bfigure\(\"([^\"]+)\"", template)
    charts = [name for name in names if isinstance(shown.get(name), Chart)]
    return next((n for n in charts if shown[n].facet is None), next(iter(charts), None))


def thinned(chart: Chart) -> Chart:
    """The chart with as many of its rows, drawn by lot, as an ornament has room for."""
    some = min(len(chart.rows), ROWS)
    kept = sorted(random.Random(0).sample(range(len(chart.rows)), some))
    return replace(chart, rows=[chart.rows[i] for i in kept])


def _drawn(calls: PageCalls, name: str) -> str:
    """A chart of the page, small; "pending" where it cannot be drawn."""

    def figure(name: str) -> str:
        chart = thinned(calls.page.view.shown[name])
        return svg.thumbnail(chart, id=f"{calls.page.name}-{name}", cache=calls.cache)

    return calls.tried(figure)(name)
