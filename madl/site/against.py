"""Claims of hand-written answers, each beside what a page of the logbook measured about it.

Rows stand in `experiments/reported.toml`, each a table `[[against]]`. Its `measured` is a template
in which numbers of the answering page stand by name: no digit of it is typed.
"""

from collections.abc import Mapping

from madl.errors import MadlError
from madl.running.project import Against, Project
from madl.site import home
from madl.site.markup import inline, words
from madl.site.page import PageCalls, prose_numbers
from madl.site.views import Problems


def rows(project: Project, calls: Mapping[str, PageCalls], problems: Problems) -> str:
    """Markdown of all rows whose page was rendered and has results; "" if there are none.

    A row that cannot be made is left out and noted in `problems`.
    """
    sections: list[str] = []
    try:
        answers = project.against
    except MadlError as error:
        problems.note(error)
        return ""
    for row in answers:
        if row.stem not in calls or not calls[row.stem].page.view.own:
            continue
        try:
            sections.append(_row(row, calls[row.stem]))
        except MadlError as error:
            problems.note(error)
    if not sections:
        return ""
    return "\n".join(['<div class="against" markdown>\n', *sections, "</div>\n"])


def _row(row: Against, calls: PageCalls) -> str:
    """Markdown of a row: the reported claim, what was measured, a chart, a link to the page."""
    answer = measured(row, calls)
    if row.figure and row.figure not in calls.charts:
        known = ", ".join(calls.charts) or "none"
        raise MadlError(f"{_where(row)}: no chart {row.figure!r} on its page; known: {known}")
    drawn = home.thumbnail(calls, f"against-{row.place}", row.figure or None)
    parts = (
        '<section class="versus" markdown data-search-exclude>\n',
        f'<p class="told"><small>Reported by {words(row.by)}</small> {inline(row.reported)}</p>\n',
        f'<div class="found" markdown>\n<small>Measured</small> {answer}\n</div>\n',
        f'<div class="thumb chart">{drawn}</div>\n' if drawn else "",
        f"[{inline(calls.title())}]({calls.page.path})\n{{ .asks }}\n",
        "</section>\n",
    )
    return "\n".join(part for part in parts if part)


def measured(row: Against, calls: PageCalls) -> str:
    """The row's sentence of what was measured, with the page's numbers in it.

    Raises:
        MadlError: the sentence has a typed digit, or names a number that the page does not have.
    """
    if typed := prose_numbers(row.measured):
        raise MadlError(
            f"{_where(row)}: {typed[0]!r} is typed in what was measured; name a number of "
            f"experiments/{row.stem}/page.py"
        )
    return calls.sentence(row.measured, _where(row))


def _where(row: Against) -> str:
    """The row's place, for an error message."""
    return f"experiments/reported.toml, against {row.stem} ({row.reported[:30]}…)"
