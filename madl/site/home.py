"""The home page: every question as a card, and the finding whose picture is shared."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook.claims import Result
from madl.running.pages import Page
from madl.running.project import Project
from madl.site import notebooks, svg
from madl.site.markup import html, inline
from madl.site.page import PageCalls


def clearest(pages: Iterable[Page]) -> Page | None:
    """The page whose picture stands for the logbook where home is shared; None without verdicts.

    Pages with a refuted primary claim come first; then the one with the claim whose effect lies
    farthest from its nearest boundary (zero or a margin), in half widths of its interval.
    """
    decided = [page for page in pages if page.questions and page.view.own and _decided(page)]
    return min(decided, key=_rank, default=None)


def _decided(page: Page) -> list[Result]:
    """The page's primary claims that were supported or refuted."""
    results = page.view.results.values()
    return [result for result in results if result.verdict in ("supported", "refuted")]


def _rank(page: Page) -> tuple[bool, float]:
    """The key by which `clearest` sorts: pages with a refuted claim first, then by distance."""
    results = _decided(page)
    return all(r.verdict == "supported" for r in results), -max(map(_distance, results))


def _distance(result: Result) -> float:
    """The distance of an effect from its boundary, in half widths of the interval."""
    low, high = result.comparison.interval
    apart = abs(result.comparison.effect - result.boundary)
    return 2 * apart / (high - low) if high > low else math.inf


# ---- answers as cards ---------------------------------------------------------------------------


def cards(rows: Sequence[Mapping[str, Any]], calls: Mapping[str, PageCalls]) -> str:
    """Markdown of every question as a card: its answer, its page's chart in small, its title."""
    tiles: list[str] = []
    for row in rows:
        page, title = calls.get(row["stem"]), f"{row['id']} {row['title']}"
        text = answer(row, page) or inline(f"{title} is open.")
        tiles.append(_card(text, page, title, row["status"]))
    return "\n".join(['<div class="tiles" markdown>\n', *tiles, "</div>\n"])


def _card(answer: str, page: PageCalls | None, title: str, status: str) -> str:
    """Markdown of a card: an answer that links to its page, a small chart, and a title."""
    text = re.sub(r'<a class="n"[^>]*>(.*?)</a>', r"\1", answer)  # no links inside the link
    drawn = thumbnail(page, "tile") if page else ""
    dot = html('<span class="dot {}" role="img" aria-label="{}" title="{}"></span> ', *[status] * 3)
    parts = [
        '<section class="tile" markdown data-search-exclude>\n',
        f"[{text}]({page.page.path})\n{{ .says }}\n" if page else f"{text}\n{{ .says }}\n",
        f'<div class="thumb chart">{drawn}</div>\n' if drawn else "",
        f'<p class="asks">{dot}{inline(title)}</p>\n',
        "</section>\n",
    ]
    return "\n".join(filter(None, parts))


def answer(row: Mapping[str, Any], page: PageCalls | None) -> str:
    """A question's answer; if it has no results yet, how to get them."""
    return page.answer if page and page.page.view.own else inline(row["answer"] or "")


def run_of_asked(row: Mapping[str, Any]) -> list[str]:
    """How much of what a question asks for has run, a text a part: "9 of 9 sparsities × methods".

    If the question is answered in part and cases are left to run, the last text counts all cases.
    """
    parts = [f"{p['run']} of {p['asked']} {p['what']}" for p in row["coverage"]]
    return parts if row["status"] != "partly" or row["has_run"] else [*parts, row["progress"]]


def thumbnail(page: PageCalls, place: str, name: str | None = None) -> str:
    """A small SVG of a chart of the page, by default its first; "" without a chart or results.

    `place` tells apart the ids of one chart's thumbnails.
    """
    if not page.page.view.own or (name := name or page.first_chart()) is None:
        return ""

    def figure(name: str) -> str:
        id = f"{page.page.name}-{name}-{place}"
        chart = page.page.view.shown[name]
        return svg.thumbnail(chart, id=id, cache=page.cache)

    return page.or_pending("figure", figure)(name)


# ---- notebooks ----------------------------------------------------------------------------------


def notebook_links(project: Project) -> str:
    """A Markdown list of links to the notebooks, each by its title."""
    lines = [
        f"- [{inline(notebooks.title(project, name))}]({notebooks.FOLDER}/{name}.ipynb)\n"
        for name in notebooks.names(project)
    ]
    return "".join(lines)
