"""Claims of hand-written answers, each beside what a page of the logbook measured about it.

Rows stand in `experiments/reported.toml`, each a table `[[against]]`. Its `measured` is a template
in which numbers of the answering page stand by name: no digit of it is typed.
"""

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from madl.errors import MadlError
from madl.running.project import Project
from madl.running.views import Problems
from madl.site import home, intervals, reported
from madl.site.markup import chip, html, inline, words
from madl.site.page import PageCalls
from madl.site.prose import typed_numbers
from madl.site.reported import Against


def rows(
    project: Project, calls: Mapping[str, PageCalls], problems: Problems
) -> list[tuple[Against, str]]:
    """The rows whose page was rendered and has results, each with its Markdown.

    A row that cannot be made is left out and noted in `problems`.
    """
    told: list[tuple[Against, str]] = []
    try:
        answers = reported.claims(project)
    except MadlError as error:
        problems.note(error)
        return []
    for place, row in enumerate(answers):
        if row.stem not in calls or not calls[row.stem].page.view.own:
            continue
        try:
            told.append((row, _row(row, calls[row.stem], f"{row.stem}-{place}")))
        except MadlError as error:
            problems.note(error)
    return told


def together(texts: Iterable[str]) -> Markup:
    """Markdown of rows one below the other; "" if there are none."""
    sections = list(texts)
    if not sections:
        return Markup()
    return Markup("\n".join(['<div class="against" markdown>\n', *sections, "</div>\n"]))


def opening(told: Iterable[tuple[Against, str]], calls: Mapping[str, PageCalls]) -> Markup:
    """Markdown of what home opens with: the first row with a toy, as a sentence and that toy."""
    row = next((row for row, _ in told if row.toy), None)
    if row is None:
        return Markup()
    page = calls[row.stem]
    drawn = page.or_pending("figure", page.drawn)
    parts = (
        '<section class="touch" markdown data-search-exclude>\n\n<div class="says" markdown>\n',
        f"{measured(row, page)}\n\n[{inline(page.title())}]({page.page.path})\n{{ .asks }}\n",
        "</div>\n",
        f"{drawn(row.toy, inline(row.invites), '', elsewhere=True)}\n</section>\n",
    )
    return Markup("\n".join(parts))


def _row(row: Against, calls: PageCalls, id: str) -> str:
    """Markdown of a row: the reported claim, what was measured, a chart, a link to the page."""
    answer = measured(row, calls)
    for kind, name in (("chart", row.figure), ("drawing", row.toy)):
        shown = calls.page.view.experiment.shown
        known = [known for known, figure in shown.items() if figure.kind == kind]
        if name and name not in known:
            names = ", ".join(known) or "none"
            raise MadlError(f"{_where(row)}: no {kind} {name!r} on its page; known: {names}")
    is_made = row.figure in calls.charts
    drawn = _pair(row, calls) or (is_made and home.thumbnail(calls, id, row.figure))
    link = html('<a class="headerlink" href="#{}" title="Link to this row">¶</a>', id)
    parts = (
        f'<section class="versus" id="{id}" markdown data-search-exclude>\n',
        f'<p class="told">{chip(row.outcome)} <small>Reported by {words(row.by)}</small> '
        f"{inline(row.reported)}{link}</p>\n",
        f'<div class="found" markdown>\n<small>Found here</small> {answer}\n</div>\n',
        f'<div class="thumb chart">{drawn}</div>\n' if drawn else "",
        f"[{inline(calls.title())}]({calls.page.path})\n{{ .asks }}\n",
        "</section>\n",
    )
    return "\n".join(part for part in parts if part)


def _pair(row: Against, calls: PageCalls) -> Markup:
    """The number that is reported beside the one measured, drawn; "" where a row has none.

    Raises:
        MadlError: the page has no such number.
    """
    if row.theirs is None:
        return Markup()
    numbers = calls.page.view.numbers
    if row.ours not in numbers:
        known = ", ".join(numbers) or "none"
        raise MadlError(f"{_where(row)}: no number {row.ours!r} on its page; known: {known}")
    number = numbers[row.ours]
    return intervals.pair(row.theirs, number.value, number.text) if number else Markup()


def measured(row: Against, calls: PageCalls) -> str:
    """The row's sentence of what was measured, with the page's numbers in it.

    Raises:
        MadlError: the sentence has a typed digit, or names a number that the page does not have.
    """
    if typed := typed_numbers(row.measured):
        raise MadlError(
            f"{_where(row)}: {typed[0]!r} is typed in what was measured; name a number of "
            f"experiments/{row.stem}/page.py"
        )
    return calls.sentence(row.measured, _where(row))


def _where(row: Against) -> str:
    """The row's place, for an error message."""
    return f"experiments/reported.toml, against {row.stem} ({row.reported[:30]}…)"
