"""What the template of a page may call; every call returns Markdown made from a view.

A template holds prose and calls: a number comes out of a claim, a figure, a table or a case's
parameters. Verdict labels and figures are the only HTML, and without a style sheet they still read.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from madl.errors import MadlError
from madl.logbook import plots
from madl.logbook.experiment import Claim, Drawing, Panel, Project, Row, Verdict
from madl.logbook.stats import CONTENDED, Evidence
from madl.logbook.views import NOT_RUN, Page


@dataclass
class PageCalls:
    """What the template of a page may call; each returns Markdown."""

    project: Project
    page: Page

    def all(self) -> dict[str, Any]:
        calls = (
            *(self.title, self.question, self.banner, self.claim, self.verdict, self.figure),
            *(self.table, self.evidence, self.provenance, self.machines, self.notes, self.param),
            self.output,
        )
        return {call.__name__: call for call in calls}

    def _known(self, what: str, name: str, known: Iterable[str]) -> str:
        if name not in known:
            raise MadlError(
                f"template {self.page.name}.md.j2 names an unknown {what} {name!r}; "
                f"known: {', '.join(known) or 'none'}"
            )
        return name

    def title(self) -> str:
        """The question's number and the experiment's title."""
        ids = [question.id for question in self.page.questions]
        number = f"{ids[0]} " if len(ids) == 1 else ""
        return f"{number}{self.page.view.experiment.title}"

    def question(self, id: str | None = None) -> str:
        """The question's text, in its box; by id where the page answers several."""
        by_id = {question.id: question for question in self.page.questions}
        chosen = by_id[self._known("question", id, by_id)] if id else self.page.questions[0]
        return f'!!! question "Question {chosen.id}"\n\n    {chosen.text}\n'

    def banner(self) -> str:
        """What a short run's numbers may not be taken for."""
        profile = self.page.view.plan.profile
        return (
            f'!!! warning "{profile.name.capitalize()} profile"\n\n    {profile.banner}\n'
            if (profile.banner and self.page.view.own)
            else ""
        )

    def claim(self, name: str) -> str:
        """The claim's sentence and its verdict."""
        claim = self.page.view.claims[self._known("claim", name, self.page.view.claims)]
        return f"{claim.text}. {mark(claim.verdict)}"

    def verdict(self, name: str) -> Verdict:
        """For a template to branch on."""
        return self.page.view.claims[self._known("claim", name, self.page.view.claims)].verdict

    def figure(self, name: str) -> str:
        """The drawing in every rendering, its caption, its data."""
        figures = self.page.view.experiment.figures
        figure = figures[self._known("figure", name, figures)]
        rows = self.page.view.rows[name]
        if rows is None:
            return self._pending()
        base = f"figures/{self.page.name}/{name}"
        alt = html.escape(figure.alt(rows), quote=True)
        caption = (
            f"<figcaption>{html.escape(figure.caption)} "
            f'<a href="{base}.csv" download>Data (CSV)</a></figcaption>\n</figure>\n'
        )
        if isinstance(figure, Drawing):
            return (
                f'<figure id="{name}" class="drawing" role="group" aria-label="{alt}" '
                f"data-search-exclude>\n{_panels(figure.panels(rows))}\n{caption}"
            )
        pictures = "\n".join(
            f'<picture><source media="(max-width: 44em)" srcset="{base}.{theme}.narrow.svg">'
            f'<img src="{base}.{theme}.wide.svg#only-{theme}" alt="{alt}" loading="lazy"></picture>'
            for theme in plots.THEMES
        )
        return f'<figure id="{name}" class="plot">\n{pictures}\n{caption}'

    def table(self, name: str) -> str:
        """A figure's or a table's rows."""
        rows = self.page.view.rows.get(self._known("table", name, self.page.view.rows))
        return self._pending() if rows is None else markdown_table(rows)

    def output(self, name: str) -> str:
        """A text that a case captured, as it was."""
        text = self.page.view.outputs[self._known("output", name, self.page.view.outputs)]
        return self._pending() if text is None else f"```{{ .text .captured }}\n{text}\n```\n"

    def _pending(self) -> str:
        command = f"python cli.py run {self.page.name} --profile {self.page.view.plan.profile.name}"
        progress = self.page.view.progress
        if self.page.view.is_complete:
            return f'!!! info "Not run here"\n\n    {self.page.view.why_skipped}.\n'
        return f'!!! warning "Pending"\n\n    {progress}. To complete it: `{command}`\n'

    def evidence(self) -> str:
        """Every claim with what decided it."""
        lines = ["| Verdict | Claim | Effect, 95 % interval | Test |", "| :-- | :-- | :-- | :-- |"]
        lines += [_evidence_row(claim) for claim in self.page.view.claims.values()]
        table = "\n".join(lines)
        return f'<div class="evidence" markdown>\n\n{table}\n\n</div>\n' if lines[2:] else ""

    def param(self, name: str) -> Any:
        """The values of a parameter in the cases that have it, run or not."""
        planned = [case.params for case in self.page.view.cases]
        if not planned:
            return NOT_RUN
        self._known("parameter", name, sorted({key for params in planned for key in params}))
        values = {params[name] for params in planned if name in params}
        return ", ".join(_number(value) for value in sorted(values, key=_order))

    def provenance(self) -> str:
        """Machine, profile, cases, duration and the command that does it again."""
        view, records = self.page.view, self.page.view.own
        command = f"python cli.py run {self.page.name} --profile {view.plan.profile.name}"
        rows: list[Row] = [{"": "Reproduce", " ": f"`{command}`"}]
        if records:
            run = records[-1].run
            seconds = sum(record.seconds for record in records)
            crowded = sum((record.run.contention or 0) > CONTENDED for record in records)
            rows += [
                {"": "Machine", " ": f"{run.host}; device {run.device}"},
                {"": "Software", " ": f"Python {run.python}, torch {run.torch}"},
                {"": "Run", " ": f"{view.date}, profile {view.plan.profile.name}, {view.progress}"},
                {"": "Compute time", " ": f"{seconds / 60:.1f} min in all cases"},
                {"": "Crowded", " ": f"{crowded} cases ran beside other busy processes"},
                {"": "Records", " ": f"`.madl/records/{self.page.name}/`, one JSON file a case"},
            ]
            rows += [
                {"": "Elsewhere", " ": f"{host}, {date}: what this machine cannot run"}
                for host, date in {r.run.host: r.run.started[:10] for r in view.borrowed}.items()
            ]
            if view.published:
                rows.append({"": "Origin", " ": "published evidence, not run on this machine"})
        return markdown_table(rows)

    def machines(self) -> str:
        """The same claims as other machines decided them."""
        if not self.page.others:
            return ""
        lines = ["## Other machines", ""]
        for view in self.page.others:
            title = (
                f"{view.machine}: profile {view.plan.profile.name}, {view.date}, {view.progress}"
            )
            lines += [f'??? info "{title}"', ""]
            lines += [f"    - {c.text}. {mark(c.verdict)}" for c in view.claims.values()]
            lines.append("")
        return "\n".join(lines)

    def notes(self) -> str:
        """The student's own words."""
        found = [
            (q.id, note) for q in self.page.questions if (note := read_note(self.project, q.id))
        ]
        if not found:
            return ""
        return "\n".join(["## Notes", "", *(f"{note}\n" for _, note in found)])


def _panels(panels: Sequence[Panel]) -> str:
    """Open panels beside the folded ones, where the window is wide enough."""
    opened = "\n".join(
        f'<div class="panel"><p>{html.escape(panel.title)}</p>{panel.svg}</div>'
        for panel in panels
        if not panel.folded
    )
    folded = "\n".join(
        f"<details><summary>{html.escape(panel.title)}</summary>"
        f'<div class="pan" tabindex="0">{panel.svg}</div></details>'
        for panel in panels
        if panel.folded
    )
    return f'<div class="side">\n{opened}\n<div class="parts">\n{folded}\n</div>\n</div>'


def _order(value: Any) -> tuple[str, Any]:
    """Numbers by size, beside values of other types."""
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, str(value))


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else str(value)


def mark(verdict: Verdict) -> str:
    """The verdict as a small label; without a style sheet it is still a word."""
    return f'<span class="verdict {verdict}">{verdict}</span>'


def _evidence_row(claim: Claim) -> str:
    label, evidence = mark(claim.verdict), claim.evidence
    if evidence is None:
        return f"| {label} | {claim.text} | | |"
    needed = f"<br>*To decide: {evidence.needed}.*" if evidence.needed else ""
    return f"| {label} | {claim.text}{needed} | {_effect(evidence)} | {_test(evidence)} |"


def _effect(evidence: Evidence) -> str:
    scale = evidence.unit.scale
    low, high = (_signed(scale * value) for value in evidence.interval)
    effect = f"{_signed(scale * evidence.effect)} {evidence.unit}"
    return _unbroken(effect) + (_unbroken(f"<br>[{low}, {high}]") if low != high else "")


def _test(evidence: Evidence) -> str:
    seeds = f" × {evidence.seeds} seeds" if evidence.seeds > 1 else ""
    p = "" if evidence.p is None else "p < 0.001" if evidence.p < 0.001 else f"p = {evidence.p:.3f}"
    parts = [evidence.test, f"n = {evidence.n:,}{seeds}", p]
    return "<br>".join(_unbroken(part) if part is p else part for part in parts if part)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _unbroken(text: str) -> str:
    return text.replace(" ", "\u00a0")


def markdown_table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table: numbers to the right, what is missing said in words."""
    columns = list(rows[0])
    numeric = {c: all(isinstance(r[c], int | float) for r in rows) for c in columns}
    lines = [
        "| " + " | ".join(columns) + " |",
        "| " + " | ".join("--:" if numeric[c] else ":--" for c in columns) + " |",
    ]
    lines += ["| " + " | ".join(_cell(row[c]) for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return NOT_RUN
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def read_note(project: Project, id: str) -> str:
    """`docs/notes/<id>.md`, included as it is; Markdown only.

    Raises:
        MadlError: HTML or template code in it, which would run where a reader opens the page.
    """
    path = project.docs / "notes" / f"{id}.md"
    if not path.exists():
        return ""
    text = path.read_text("utf-8")
    for number, line in enumerate(_without_code(text).splitlines(), 1):
        found = re.search(r"<[a-zA-Z/!](?!\S*://)[^>]*>?|\{\{|\{%|\{#|javascript:", line)
        if found:
            raise MadlError(
                f"docs/notes/{id}.md, line {number}: a note is Markdown, not HTML or template "
                f"code; put {found[0]!r} in backticks or take it out"
            )
    return text.strip() + "\n"


def _without_code(markdown: str) -> str:
    """Fenced blocks and code spans blanked out, the number of lines kept."""
    code = r"```.*?```|~~~.*?~~~|`[^`\n]*`"
    return re.sub(code, lambda m: "\n" * m[0].count("\n"), markdown, flags=re.DOTALL)
