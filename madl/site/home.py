"""The home page: a promise, three findings with their pictures, every question as a card."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from madl.logbook.claims import Result
from madl.running.project import Project
from madl.site import notebooks, svg
from madl.site.markup import html, inline
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


def refuted_first(pages: Iterable[Page]) -> bool:
    """Whether one of those pages is there because a hypothesis was refuted."""
    return any(one.verdict == "refuted" for page in surprising(pages) for one in _decided(page))


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


# ---- answers as cards ---------------------------------------------------------------------------


def openings(pages: Sequence[Page], calls: Mapping[str, PageCalls]) -> str:
    """The answers of the surprising pages, each with its picture."""
    found = surprising(pages)
    cards = [
        _card("opening", _as_text(calls[page.name].answer(page.folder)), calls[page.name])
        for page in found
    ]
    return _grid("openings", cards) if cards else ""


def cards(
    rows: Sequence[Mapping[str, Any]], pages: Sequence[Page], calls: Mapping[str, PageCalls]
) -> str:
    """Every question as a card: its answer, its figure in small, then what it asks."""
    by_name = {page.name: page for page in pages}
    made: list[str] = []
    for row in rows:
        page, title = by_name.get(row["stem"]), f"{row['id']} {row['title']}"
        said = _as_text(answer(row, page, calls)) or inline(f"{title} is open.")
        of = calls[page.name] if page else None
        made.append(_card("tile", said, of, title=title, status=row["status"]))
    return _grid("tiles", made)


def _grid(look: str, cards: Sequence[str]) -> str:
    return "\n".join([f'<div class="{look}" markdown>\n', *cards, "</div>\n"])


def _card(
    look: str, said: str, calls: PageCalls | None, *, title: str = "", status: str = ""
) -> str:
    """What is said leads to the page; so does the whole card, for a pointer."""
    drawn = thumbnail(calls, look) if calls else ""
    asks = inline(title or (calls.title() if calls else ""))
    dot = html('<span class="dot {}" role="img" aria-label="{}" title="{}"></span> ', *[status] * 3)
    parts = [
        f'<section class="{look}" markdown data-search-exclude>\n',
        f"[{said}]({calls.page.path})\n{{ .says }}\n" if calls else f"{said}\n{{ .says }}\n",
        f'<div class="thumb chart">{drawn}</div>\n' if drawn else "",
        f'<p class="asks">{dot if status else ""}{asks}</p>\n',
        "</section>\n",
    ]
    return "\n".join(part for part in parts if part)


def _as_text(said: str) -> str:
    """Without links of its own, as the whole of it is one."""
    return re.sub(r'<a class="n"[^>]*>(.*?)</a>', r"\1", said)


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


def thumbnail(calls: PageCalls, place: str, name: str | None = None) -> str:
    """A chart of the page, its first without a name, small; nothing where it shows none."""
    if not calls.page.view.own or (name := name or calls.first_chart()) is None:
        return ""

    def figure(name: str) -> str:
        chart = calls.page.view.shown[name]
        id = f"{calls.page.name}-{name}-{place}"
        return svg.thumbnail(chart, id=id, cache=calls.cache, large=place == "opening")

    return calls.tried(figure)(name)


# ---- notebooks ----------------------------------------------------------------------------------


def of_notebooks(project: Project) -> str:
    """Every notebook in a line: its own title."""
    lines = [
        f"- [{inline(notebooks.title(project, one))}]({notebooks.FOLDER}/{one}.ipynb)\n"
        for one in notebooks.names(project)
    ]
    return "".join(lines)
