"""What hand-written answers report, each beside what was measured of it.

Rows stand in `experiments/reported.toml`, a table of `[[against]]` each. Its `measured` is text of
a template in which the numbers of the page that answers stand by name: no digit of it is typed.
"""

from collections.abc import Mapping

from madl.errors import MadlError
from madl.running.project import Against, Project
from madl.site import home
from madl.site.markup import inline, words
from madl.site.page import PageCalls, prose_numbers
from madl.site.views import Problems


def rows(project: Project, calls: Mapping[str, PageCalls], problems: Problems) -> str:
    """Every row whose page is there; one that cannot be made is told, and left out."""
    made: list[str] = []
    try:
        told = project.against
    except MadlError as error:
        problems.note(error)
        return ""
    for row in told:
        if row.stem not in calls or not calls[row.stem].page.view.own:
            continue
        try:
            made.append(_row(row, calls[row.stem]))
        except MadlError as error:
            problems.note(error)
    return "\n".join(['<div class="against" markdown>\n', *made, "</div>\n"]) if made else ""


def _row(row: Against, calls: PageCalls) -> str:
    found = measured(row, calls)
    if row.figure and row.figure not in calls.charts():
        known = ", ".join(calls.charts()) or "none"
        raise MadlError(f"{_where(row)}: no chart {row.figure!r} on its page; known: {known}")
    drawn = home.thumbnail(calls, f"against-{row.place}", row.figure or None)
    parts = (
        '<section class="versus" markdown data-search-exclude>\n',
        f'<p class="told"><small>Reported by {words(row.by)}</small> {inline(row.reported)}</p>\n',
        f'<div class="found" markdown>\n<small>Measured</small> {found}\n</div>\n',
        f'<div class="thumb chart">{drawn}</div>\n' if drawn else "",
        f"[{inline(calls.title())}]({calls.page.path})\n{{ .asks }}\n",
        "</section>\n",
    )
    return "\n".join(part for part in parts if part)


def measured(row: Against, calls: PageCalls) -> str:
    """The row's sentence with the page's numbers in it.

    Raises:
        MadlError: a digit is typed, or a number is none of the page's.
    """
    if typed := prose_numbers(row.measured):
        raise MadlError(
            f"{_where(row)}: {typed[0]!r} is typed in what was measured; name a number of "
            f"experiments/{row.stem}/page.py"
        )
    return calls.said(row.measured, _where(row), up=calls.page.folder)


def _where(row: Against) -> str:
    return f"experiments/reported.toml, against {row.stem} ({row.reported[:30]}…)"
