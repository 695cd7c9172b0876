"""The home page: a promise, three findings with their pictures, every question as a card."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook.claims import Result
from madl.site import svg
from madl.site.markup import chip, inline
from madl.site.page import PageCalls
from madl.site.views import Page

FINDINGS = 3  # that the logbook opens with, at most


def lab(question_id: str) -> str:
    """The lab of a question: what stands before the dot of its number."""
    return question_id.partition(".")[0]


def surprising(pages: Iterable[Page]) -> list[Page]:
    """The pages to open the logbook with, at most one a lab.

    Those with a hypothesis that the data refuted first; then those whose effect lies farthest from
    the line that it is held against, in half widths of its interval.
    """
    found = [page for page in pages if page.questions and page.view.own and _decided(page)]
    by_lab: dict[str, Page] = {}
    for page in sorted(found, key=_rank):
        by_lab.setdefault(lab(page.questions[0].id), page)
    return list(by_lab.values())[:FINDINGS]


def _decided(page: Page) -> list[Result]:
    results = page.view.results.values()
    return [one for one in results if one.verdict in ("supported", "refuted")]


def _rank(page: Page) -> tuple[bool, float]:
    decided = _decided(page)
    return all(one.verdict == "supported" for one in decided), -max(map(_distance, decided))


def _distance(made: Result) -> float:
    """From the effect to the nearest line that decides, in half widths of the interval."""
    low, high = made.comparison.interval
    apart = min(abs(made.comparison.effect - line) for line in made.boundaries)
    return 2 * apart / (high - low) if high > low else math.inf


# ---- what it opens with -------------------------------------------------------------------------


def openings(pages: Sequence[Page], calls: Mapping[str, PageCalls]) -> str:
    """The answers of the surprising pages, each with its picture."""
    found = surprising(pages)
    if not found:
        return ""
    parts = ['<div class="openings" markdown>\n']
    for page in found:
        drawn = _thumbnail(calls[page.name], "opening")
        parts += [
            '<section class="opening" markdown data-search-exclude>\n',
            f"**{calls[page.name].answer(page.folder)}**\n",
            *([f'<div class="thumb">{drawn}</div>\n'] if drawn else []),
            f"[{calls[page.name].title()}]({page.path})\n",
            "</section>\n",
        ]
    return "\n".join([*parts, "</div>\n"])


# ---- every question -----------------------------------------------------------------------------


def tiles(
    rows: Sequence[Mapping[str, Any]], pages: Sequence[Page], calls: Mapping[str, PageCalls]
) -> str:
    """Every question by lab as a card: its answer, its title, its status, its figure in small."""
    by_name = {page.name: page for page in pages}
    parts: list[str] = []
    for number in dict.fromkeys(lab(row["id"]) for row in rows):
        parts += [f"### Lab {number}\n", '<div class="tiles" markdown>\n']
        parts += [
            _tile(row, by_name.get(row["stem"]), calls) for row in rows if lab(row["id"]) == number
        ]
        parts.append("</div>\n")
    return "\n".join(parts)


def _tile(row: Mapping[str, Any], page: Page | None, calls: Mapping[str, PageCalls]) -> str:
    title = inline(f"{row['id']} {row['title']}")
    link = f"[{title}]({page.path})" if page else title
    parts = ['<section class="tile" markdown data-search-exclude>\n']
    if page and page.view.own and (drawn := _thumbnail(calls[page.name])):
        parts.append(f'<div class="thumb">{drawn}</div>\n')
    parts.append(f"{answer(row, page, calls)}\n")
    parts.append(f"{link} {chip(row['status'])}\n{{ .facts }}\n")
    return "\n".join([*parts, "</section>\n"])


def answer(row: Mapping[str, Any], page: Page | None, calls: Mapping[str, PageCalls]) -> str:
    """A question's answer; where there is none, what it waits for."""
    if page and page.view.own:
        return calls[page.name].answer(page.folder)
    return inline(row["answer"] or "")


def run_of_asked(row: Mapping[str, Any]) -> list[str]:
    """How much of what a question asks for has run; of all cases, too, where not all is there."""
    parts = [f"{p['run']} of {p['asked']} {p['what']}" for p in row["coverage"]]
    run, _, planned = (row["progress"] or "").partition(" of ")
    is_whole = not planned or run == planned.split()[0]
    return parts if row["status"] != "partly" or is_whole else [*parts, row["progress"]]


def _thumbnail(calls: PageCalls, place: str = "card") -> str:
    """The first chart that the page shows, small; nothing where it shows none."""
    shown, name = calls.page.view.shown, calls.first_chart()
    if name is None:
        return ""

    def figure(name: str) -> str:
        id = f"{calls.page.name}-{name}-{place}"
        return svg.thumbnail(shown[name], id=id, cache=calls.cache)

    return calls.tried(figure)(name)
