"""What the template of a page may call; every call returns Markdown made from a view.

A template holds prose and calls: a number comes out of a named number, a chart, a table or a case's
parameters, and a sentence that states an effect is chosen by a verdict (see `prose`).
"""

import contextlib
import functools
import html
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import read_text
from madl.logbook.charts import Axis, Chart, estimated, to_csv
from madl.logbook.drawing import Panel
from madl.logbook.records import Row, Run
from madl.logbook.stats import CONTENDED, Estimate, Unit, counted, number
from madl.running.project import Project
from madl.site import code as sources
from madl.site import explain, notebooks, notes, prose, replication, share, svg, templates
from madl.site.again import accuracies
from madl.site.markup import NOT_RUN, chip, inline, words
from madl.site.views import Page, View
from madl.training import workloads


@dataclass
class PageCalls:
    """What the template of a page may call; each returns Markdown."""

    project: Project
    page: Page
    cache: Path | None = None  # where drawn charts are kept between reports
    up: str = ""  # from where its words stand to the page's folder

    def all(self) -> dict[str, Any]:
        calls = (
            *(self.title, self.question, self.evidence, self.facts_line, self.figure, self.table),
            *(self.output, self.code, self.sure, self.secondary, self.provenance),
            *(self.elsewhere, self.notes, self.param, self.reported, self.more, self.front_matter),
            *(self.of_default_data, self.of_other_data),
        )
        view, where = self.page.view, f"{self.page.name}/page.md.j2"
        find = prose.judged(view, where)

        def mark(name: str) -> Markup:
            return prose.mark(find(name).result)

        def unmeasured(name: str) -> str:
            return f"Not measured here yet: {inline(find(name).result.hypothesis)} "

        made = {call.__name__: self.tried(call) for call in calls}
        if taken := sorted(made.keys() & view.numbers.keys()):
            raise MadlError(f"a number of {where} has the name {taken[0]!r} of a call; rename it")
        return {
            **made,
            **{name: prose.Printed(view.numbers[name], self.records) for name in view.numbers},
            "_judged": find,
            "_mark": mark,
            "_pending_claim": unmeasured,
        }

    def answer(self, up: str = "") -> str:
        """The sentence that answers the question, without its mark.

        `up` leads from where it stands to the page's folder.
        """
        name = f"{self.page.name}/page.md.j2"
        return templates.block(self.project, name, "answer", self._unmarked(up))

    def said(self, text: str, where: str, up: str) -> str:
        """A text that names numbers of this page, as it reads on another one."""
        return templates.line(self.project, text, where, self._unmarked(up))

    def _unmarked(self, up: str) -> dict[str, Any]:
        """What a template of this page may name on another one, where verdicts have no marks."""
        return replace(self, up=up).all() | {"_mark": "".format}

    def charts(self) -> dict[str, Chart]:
        """The charts that the page shows, by name."""
        path = self.project.experiments / self.page.name / "page.md.j2"
        shown = self.page.view.shown
        names = re.findall(r"figure\(\"([^\"]+)\"", read_text(path, "save it as text"))
        return {n: made for n in names if isinstance(made := shown.get(n), Chart)}

    def first_chart(self) -> str | None:
        """The name of the first chart that the page shows, one without panels if there is one."""
        charts = self.charts()
        return next((n for n in charts if charts[n].facet is None), next(iter(charts), None))

    def description(self) -> str:
        """What the page answers, or how to have it answered, as a text without markup."""
        if self.page.view.own:
            with contextlib.suppress(MadlError):  # said where the page is rendered
                text = BeautifulSoup(self.answer(), "html.parser").get_text().strip()
                return text.replace("`", "")
        return self.how_to_run()

    @property
    def records(self) -> Markup:
        """The folder of the page's records; of two pages, one case may be of two machines."""
        return Markup(f"{self.up}records/{self.page.name}")

    def front_matter(self) -> Markup:
        """Title, description and picture of the page, as YAML; the theme writes them as they are,
        so they are escaped here."""
        told = {"title": self.title(), "description": self.description()}
        told |= {"image": share.path(self.page.name)} if self.page.view.own else {}
        told |= {"evidence": self.evidence()}
        safe = {name: html.escape(text) for name, text in told.items()}
        lines = (f"{name}: {json.dumps(text, ensure_ascii=False)}" for name, text in safe.items())
        return Markup("\n".join(lines))

    def picture(self) -> bytes:
        """What stands for the page where its address is shared; words alone where it has no chart,
        or one that cannot be drawn."""
        words = (self.project.site_name, self.title(), self.description())
        draw = functools.partial(share.picture, *words, cache=self.cache)

        def figure(name: str) -> bytes:
            return draw(self.page.view.shown[name])

        name = self.first_chart()
        made = self.tried(figure)(name) if name else None
        return made if isinstance(made, bytes) else draw(None)

    def evidence(self) -> str:
        """Whose the page's evidence is: published, of this machine for want of any that is
        published, of this machine though some is, or not there yet."""
        view = self.page.view
        if not view.is_complete:
            return "pending"
        if view.published:
            return "published"
        data = self.project.docs / "data" / f"{self.page.name}.jsonl"
        return "again" if data.exists() else "own"

    def sure(self) -> str:
        """A row a primary claim: effect, verdict, and how every single unit came out."""
        return prose.sure(self.page.view, self.records)

    def secondary(self) -> str:
        """The other comparisons, without verdicts."""
        return prose.secondary(self.page.view.results, self.records)

    def tried(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, which says "pending" where it fails."""

        @functools.wraps(call)
        def told(*names: str, **more: str) -> Any:
            try:
                with warnings.catch_warnings():  # numbers that cannot be drawn are no picture
                    warnings.simplefilter("error", RuntimeWarning)
                    return call(*names, **more)
            except MadlError:
                raise
            except (Exception, SystemExit) as error:
                self.page.view.failed(" ".join([call.__name__, *names]), error)
                return self._pending()

        return told

    def _known(self, what: str, name: str, known: Iterable[str]) -> str:
        if name not in known:
            raise MadlError(
                f"template {self.page.name}/page.md.j2 names an unknown {what} {name!r}; "
                f"known: {', '.join(known) or 'none'}"
            )
        return name

    def _shown(self, what: str, name: str, *kinds: str) -> Any:
        """What the page made under this name, or None where records are missing."""
        every = self.page.view.experiment.shown
        return self.page.view.shown[
            self._known(what, name, [n for n, one in every.items() if one.kind in kinds])
        ]

    def title(self) -> str:
        """The question's number and the experiment's title."""
        ids = [question.id for question in self.page.questions]
        number = f"{ids[0]} " if len(ids) == 1 else ""
        return f"{number}{self.page.view.experiment.title}"

    def question(self) -> str:
        """The question in our words, and whether no lab sheet asks it."""
        beyond = "Beyond the lab sheets: "
        asked = self.page.questions
        return "".join(f"*{beyond if one.beyond else ''}{one.text}*\n" for one in asked)

    def facts_line(self) -> str:
        """Whose evidence it is, of how many, whether it is all, and what was run again here."""
        view, page = self.page.view, self.page
        if not view.own:
            return f'<p class="facts">{chip("open")} {inline(self.how_to_run())}</p>\n'
        seeds = len({record.case.params.get("seed") for record in view.own} - {None})
        parts = [f"Measured on {inline(view.machine)}, {inline(view.date)}"]
        if view.plan.profile.name == "smoke":
            parts.append("proves that it runs; its numbers mean nothing")
        if judged := _test_size(view):
            model, data = (
                f" ({words(view.plan.workload[of])})" if of in view.plan.workload else ""
                for of in ("model", "dataset")
            )
            models = f"{counted(seeds, 'model')}{model}"
            parts.append(f"n = {models} × {judged:,} test sentences{data}")
        parts += [words(part) for part in page.coverage if not part.is_whole]
        if not view.is_complete:
            parts.append(view.progress)
        if page.again and (line := page.again.line()):
            parts.append(words(line.rstrip(".")))
        status = f"{chip(page.status)} " if page.questions else ""
        return f'<p class="facts">{status}{" · ".join(parts)}</p>\n'

    def figure(self, name: str, caption: str = "", caller: Callable[[], str] | None = None) -> str:
        """A chart or a drawing under its title, which the block of the call holds; its data."""
        title = " ".join(caller().split()) if caller else ""
        made = self._shown("figure", name, "chart", "drawing")
        if made is None:
            return self._pending()
        one = self.page.view.experiment.shown[name]
        data = f"figures/{self.page.name}/{name}.csv"
        if isinstance(made, Chart):
            drawn = svg.figure(
                made,
                id=f"{self.page.name}-{name}",
                title=_text(title),
                caption=caption,
                data=data,
                cache=self.cache,
            )
            return f"{drawn}\n"  # what follows, a table for one, is Markdown of its own
        assert one.panels is not None
        assert one.alt is not None
        alt = words(one.alt(made))
        look, live = 'class="drawing"', ""
        if one.script:
            look = f'class="drawing explain" data-explain="{one.script}"'
            up = "../" * self.page.folder.count("/")
            live = explain.live(made, f"figures/{self.page.name}/{explain.OWN}", up=up)
        heading = f'<p class="title">{title}</p>\n' if title else ""
        return (
            f'<figure id="{self.page.name}-{name}" {look} role="group" aria-label="{alt}" '
            f"data-search-exclude>\n{heading}{_panels(one.panels(made))}\n"
            f"<figcaption>{inline(caption)} "
            f'<a href="{data}" download>Data (CSV)</a></figcaption>\n{live}</figure>\n'
        )

    def table(self, name: str, rows: int | None = None) -> str:
        """A chart's or a table's rows; of more than `rows`, the others are folded."""
        made = self._shown("table", name, "chart", "drawing", "table")
        if made is None:
            return self._pending()
        every = made.rows if isinstance(made, Chart) else made
        if rows is None or len(every) <= rows:
            return markdown_table(every, chart=made)
        whole = textwrap.indent(markdown_table(every, chart=made), "    ")
        return (
            f"{markdown_table(every[:rows], chart=made)}\n"
            f'??? abstract "All {len(every)} rows"\n\n{whole}\n'
        )

    def output(self, name: str) -> str:
        """A text that a case captured, as it was."""
        text = self._shown("output", name, "output")
        if text is None:
            return self._pending()
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return f"{fence}{{ .text .captured }}\n{_printable(text)}\n{fence}\n"

    def code(self, path: str, name: str) -> str:
        """A piece of the repository, cut out now."""
        return sources.block(self.project.root, path, name)

    def how_to_run(self) -> str:
        """What is there, and the command for the rest, in backticks; or why there is none."""
        view = self.page.view
        if why := view.plan.why_unsuitable(view.name):
            return f"{why[:1].upper()}{why[1:]}."
        if (why := view.why_skipped) and view.plan.is_complete(view.name):
            return f"Not run here: {why}."
        return f"{view.progress[:1].upper()}{view.progress[1:]}. To complete it: `{self.command()}`"

    def command(self) -> str:
        """The command that runs the page's cases."""
        return f"python cli.py run {self.page.name} {self.page.view.plan.options}"

    def _pending(self) -> str:
        view = self.page.view
        if not view.is_complete or view.why_skipped:
            said = inline(self.how_to_run())
        elif view.is_broken:
            said = "It could not be made; <code>cli.py report</code> says why."
        else:
            said = f"The cases of the {view.plan.profile.name} profile are too few for it."
        return f'<p class="pending">{said}</p>\n'

    def param(self, name: str) -> Any:
        """The values of a parameter in the cases that have it, run or not."""
        planned = [case.params for case in self.page.view.cases]
        if not planned:
            return NOT_RUN
        self._known("parameter", name, sorted({key for params in planned for key in params}))
        values = {params[name] for params in planned if name in params}
        return ", ".join(_number(value) for value in sorted(values, key=_order))

    def of_default_data(self, caller: Callable[[], str]) -> str:
        """Words that are true of the default data set alone, on a page of it."""
        return caller() if self._is_of_default_data else ""

    def of_other_data(self, caller: Callable[[], str]) -> str:
        """Words in their place, on a page of any other."""
        return "" if self._is_of_default_data else caller()

    @property
    def _is_of_default_data(self) -> bool:
        default = workloads.PRESETS[workloads.DEFAULT].dataset
        return self.page.view.plan.workload.get("dataset", default) == default

    def provenance(self) -> str:
        """Machine, profile, cases, duration and the command that does it again."""
        view, records = self.page.view, self.page.view.own
        rows: list[Row] = [{"": "Reproduce", " ": f"`{self.command()}`"}]
        if records:
            run = records[-1].run
            seconds = sum(record.seconds for record in records)
            started = [record.run.started[:10] for record in records]
            days = " to ".join(dict.fromkeys((min(started), max(started))))
            beside = [one.seconds for one in records if (one.run.contention or 0) > CONTENDED]
            kernels = list(dict.fromkeys(one.run.kernels for one in records if one.run.kernels))
            crowded = f"{len(beside)} of them beside other busy processes"
            if beside:
                crowded += f", which took {sum(beside) / 60:.1f} min of it"
            rows += [
                {"": "Machine", " ": f"{view.machine}; device {run.device}"},
                {"": "Processor", " ": "; ".join(sorted({one.run.cpu for one in records}))},
                {"": "Software", " ": f"Python {run.python}, torch {run.torch}"},
                *({"": "Kernels", " ": "; or ".join(kernels)} for _ in kernels[:1]),
                {"": "Run", " ": f"{days}, profile {view.plan.profile.name}, {view.progress}"},
                {"": "Compute time", " ": f"{seconds / 60:.1f} min in all cases"},
                {"": "Crowded", " ": crowded},
                {"": "Code", " ": "; ".join(dict.fromkeys(_code(one.run) for one in records))},
            ]
            if view.is_older:
                rows.append({"": "Since then", " ": "the code that measures this has changed"})
            rows += [
                {"": "Elsewhere", " ": f"{host}, {date}: what this machine cannot run"}
                for host, date in {r.run.host: r.run.started[:10] for r in view.borrowed}.items()
            ]
        packed = f'<a href="{self.records}/{prose.CASES}" download>{prose.CASES}</a>'
        told = f'<p class="facts">Its records, a line of JSON each: {packed}</p>\n'
        return f"{markdown_table(rows)}\n{told if prose.records_behind(view) else ''}"

    def elsewhere(self) -> str:
        """What replicates: a row a primary claim, a column a run."""
        found = replication.rows([self.page])
        rows = [{n: cell for n, cell in row.items() if n != "question"} for row in found]
        return f"## Elsewhere\n\n{markdown_table(rows)}\n" if rows else ""

    def reported(self) -> str:
        """What others reported, with its source."""
        known = self.project.reported
        if self.page.name not in known:
            raise MadlError(
                f"template {self.page.name}/page.md.j2 calls reported(), and experiments/"
                f"reported.toml has no table [{self.page.name}]; "
                f"known: {', '.join(known) or 'none'}"
            )
        found = known[self.page.name]
        return (
            f"{markdown_table(found.rows)}\n"
            f'<p class="facts">Source: {words(found.source)}; '
            f"workload: {words(found.workload)}; "
            "nothing on this page is decided by them.</p>\n"
        )

    def notes(self) -> str:
        """The student's own words."""
        found = [note for q in self.page.questions if (note := self._note(q.id))]
        return "\n".join(["## Notes", "", *(f"{note}\n" for note in found)]) if found else ""

    def _note(self, id: str) -> str:
        """A note; nothing where it cannot be read."""
        try:
            return notes.read(self.project.docs, id)
        except MadlError as error:
            self.page.view.problems.note(error)
            return ""

    def more(self) -> str:
        """Where to go on: the lab's notebook, and what was tried and failed."""
        docs, ids = self.project.docs, [question.id for question in self.page.questions]
        parts: list[str] = []
        lab = next((f"lab{id.partition('.')[0]}" for id in ids), "")
        if lab in notebooks.names(self.project):
            parts.append(f"[vary this lab's figure in a notebook](../notebooks/{lab}.ipynb)")
        if ids and (docs / "log.md").is_file():
            text = read_text(docs / "log.md", "restore it from the repository")
            anchors = (f"#q{id.replace('.', '-')}" for id in ids)
            anchor = next((one for one in anchors if f"{{ {one} }}" in text), "")
            parts.append(f"[what was tried and failed](../log.md{anchor})")
        return f"Go on: {', '.join(parts)}.\n" if parts else ""

    def csv_files(self) -> dict[str, str]:
        """The data behind every figure: file name → CSV."""
        view = self.page.view

        def data(name: str) -> str:
            made = view.shown[name]
            return to_csv(made.rows if isinstance(made, Chart) else made)

        return {
            f"{name}.csv": self.tried(data)(name)
            for name, one in view.experiment.shown.items()
            if one.kind in ("chart", "drawing") and view.shown[name] is not None
        }


def _text(made: str) -> str:
    """HTML as text, without the marks of verdicts."""
    return html.unescape(re.sub(r'<a class="mark .*?</a>|<[^>]+>', "", made)).strip()


def _test_size(view: View) -> int | None:
    """On how many test examples most models of this page were judged."""
    own = view.records.of(view.name)
    sizes = [estimate.n for record in own for _, estimate in accuracies(record.values)]
    return max(set(sizes), key=sizes.count) if sizes else None


def _panels(panels: Sequence[Panel]) -> str:
    """Open panels, and beside them the folded ones where the window is wide enough."""
    titled = "<p>{}</p>".format  # of a single one, the figure's title is enough
    opened = "\n".join(
        f'<div class="panel">{titled(words(p.title)) if p.title else ""}{p.svg}</div>'
        for p in panels
        if not p.folded
    )
    folded = "\n".join(
        f"<details><summary>{words(panel.title)}</summary>"
        f'<div class="pan" tabindex="0">{panel.svg}</div></details>'
        for panel in panels
        if panel.folded
    )
    if not folded:
        return opened
    return f'<div class="side">\n{opened}\n<div class="parts">\n{folded}\n</div>\n</div>'


def _code(run: Run) -> str:
    """Which code made a record."""
    changed = ", with uncommitted changes" if run.dirty else ""
    return f"commit {run.commit or 'unknown'}{changed}, digest {run.code}"


def _order(value: Any) -> tuple[str, Any]:
    """Numbers by size, beside values of other types."""
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, str(value))


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else inline(value)


def _printable(text: str) -> str:
    """Without what no terminal prints: a browser would refuse it, and Markdown stumble."""
    return re.sub(r"[^\S\n ]|[\x00-\x08\x0e-\x1f\x7f]", " ", text.replace("\t", "    "))


def markdown_table(rows: Sequence[Row], chart: Any = None) -> str:
    """Rows as a Markdown table: numbers to the right, what is missing said in words."""
    columns = list({column: None for row in rows for column in row})
    lies = isinstance(chart, Chart) and chart.y.scale == "category"
    axis = None if not isinstance(chart, Chart) else chart.x if lies else chart.y
    numeric = {c: all(isinstance(row.get(c), int | float) for row in rows) for c in columns}
    y = {m.column for m in chart.marks} if isinstance(chart, Chart) else set[str | None]()
    lines = [
        "| " + " | ".join(inline(c) for c in columns) + " |",
        "| " + " | ".join("--:" if numeric[c] else ":--" for c in columns) + " |",
    ]
    for row in rows:
        cells = (_cell(row.get(c, ""), axis if c in y else None) for c in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Any, axis: Axis | None = None) -> str:
    estimate = estimated(value)
    if isinstance(estimate, Estimate):
        text = f"{estimate:{'+i' if estimate.unit is Unit.POINTS else 'i'}}"
        return text.replace(", ", ",\u00a0") if estimate.unit is Unit.PERCENT else text
    if value is None:
        return NOT_RUN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return axis.number(value) if axis else number(value)
    return "<br>".join(inline(line) for line in str(value).split("<br>"))


def prose_numbers(text: str) -> list[str]:
    """Numbers that stand in a template's prose: outside calls, comments, code, links, headings.

    A digit is allowed inside a name only: FP32, L1, MXINT8.
    """
    text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return re.findall(r"(?<![A-Za-z0-9])\d[\d.,]*%?", lines)
