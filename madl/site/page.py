"""The functions that a page's template may call; each returns Markdown made from a view.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bs4 import BeautifulSoup
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import read_text
from madl.logbook.arms import SEED
from madl.logbook.charts import Chart, to_csv
from madl.logbook.drawing import Panel
from madl.logbook.experiment import TUNING
from madl.logbook.numbers import contended_processes
from madl.logbook.records import Record, Row, Run, sort_key
from madl.logbook.stats import CONTENDED
from madl.logbook.values import pluralize
from madl.machine.device import missing_device
from madl.running.pages import Page
from madl.running.project import RESTORE, Project
from madl.running.reruns import accuracies
from madl.running.views import NOT_RUN, View
from madl.site import (
    answers,
    excerpts,
    explain,
    how_sure,
    notebooks,
    notes,
    prose,
    provenance,
    replication,
    reported,
    share,
    svg,
    tables,
    templates,
)
from madl.site.markup import chip, inline, words
from madl.training import workloads

ON_GPU = "python cli.py run --only cuda --within 15"
T = TypeVar("T")
STATUS = {"answered": "question answered", "partly": "question partly answered"}


@dataclass
class PageCalls:
    """The functions and numbers that a page's template may use; each function returns Markdown."""

    project: Project
    page: Page
    cache: Path | None = None  # folder in which drawn charts are kept between reports

    def variables(self, *, elsewhere: bool = False) -> dict[str, Any]:
        """The functions and numbers that a template may use, by name.

        With `elsewhere`, they are for a sentence on a page at the site's root: links lead from
        there, and verdicts have no mark.

        Raises:
            MadlError: a number has the name of a function.
        """
        view, numbers = self.page.view, self.page.view.numbers
        methods = (
            *(self.title, self.question, self.facts_line, self.figure, self.table, self.output),
            *(self.provenance, self.elsewhere, self.notes, self.param, self.reported, self.more),
            *(self.front_matter, self.of_default_data, self.of_other_data),
        )
        functions = {method.__name__: method for method in methods} | {
            "code": functools.partial(excerpts.block, self.project.root),
            "claims_table": functools.partial(how_sure.claims_table, view, self.records),
            "secondary": functools.partial(how_sure.secondary, view.results, self.records),
            "answers": lambda: tables.markdown(rows) if (rows := answers.rows(view)) else "",
        }
        named = {name: self.or_pending(name, function) for name, function in functions.items()}
        if taken := sorted(named.keys() & numbers.keys()):
            raise MadlError(
                f"a number of {self.template} has the name {taken[0]!r} of a call; rename it"
            )
        folder = self.page.folder + self.records if elsewhere else self.records
        block = functools.partial(prose.claim_block, self.page, self.template)
        return {
            **named,
            **{name: prose.NumberLink(number, folder) for name, number in numbers.items()},
            prose.BLOCK: functools.partial(block, marked=not elsewhere),
        }

    @property
    def template(self) -> str:
        """The name of the page's template, below `experiments/`."""
        return f"{self.page.name}/page.md.j2"

    @functools.cached_property
    def answer(self) -> str:
        """The template's block `answer`, as it is shown on pages at the site's root."""
        names = self.variables(elsewhere=True)
        return templates.render_block(self.project, self.template, "answer", names)

    def sentence(self, text: str, where: str) -> str:
        """Render a text that names numbers of this page, for pages at the site's root.

        `where` says in an error whose text it is.
        """
        return templates.render_line(self.project, text, where, self.variables(elsewhere=True))

    @functools.cached_property
    def charts(self) -> dict[str, Chart]:
        """The charts that the page shows, by name."""
        names = templates.arguments_of("figure", self.project, self.template)
        shown = self.page.view.shown
        return {n: chart for n in names if isinstance(chart := shown.get(n), Chart)}

    def first_chart(self) -> str | None:
        """The name of the first chart without panels, or else of the first; None without charts."""
        charts = self.charts
        return next((n for n in charts if charts[n].facet is None), next(iter(charts), None))

    @functools.cached_property
    def description(self) -> str:
        """The page's answer, or how to get one if nothing was run, as plain text."""
        if self.page.view.own:
            with contextlib.suppress(MadlError):  # said where the page is rendered
                text = BeautifulSoup(self.answer, "html.parser").get_text().strip()
                return text.replace("`", "")
        return self.how_to_run()

    @property
    def records(self) -> Markup:
        """The folder of the page's records, relative to the page.

        Each page has its own: two pages may show one case of two machines.
        """
        return Markup(f"records/{self.page.name}")

    @property
    def up(self) -> str:
        """The way from the page to the site's root: "../" or ""."""
        return "../" * self.page.folder.count("/")

    @functools.cached_property
    def index(self) -> Mapping[str, Mapping[str, Any]]:
        """The value and the records' keys of each number and claim, by name."""
        return provenance.index(self.page.view)

    def packed_records(self) -> list[Record]:
        """The page's own records, with those of tuning, and all others that its numbers cite."""
        cited = {key for entry in self.index.values() for key in entry["records"]}
        own = (self.page.name, f"{self.page.name}{TUNING}")
        stored = self.page.view.stored
        return [r for r in stored if r.case.experiment in own or r.case.key in cited]

    def front_matter(self) -> Markup:
        """Title, description, picture and kind of evidence as YAML, escaped for HTML."""
        entries = {"title": self.title(), "description": self.description}
        entries |= {"image": share.path(self.page.name)} if self.page.view.own else {}
        entries |= {"evidence": self._evidence()}
        safe = {name: html.escape(text) for name, text in entries.items()}
        lines = (f"{name}: {json.dumps(text, ensure_ascii=False)}" for name, text in safe.items())
        return Markup("\n".join(lines))

    def _evidence(self) -> str:
        """Whose evidence the page shows: "published"; this machine's, as none is published ("own")
        or though some is ("again"); "pending" where it is not whole.
        """
        view = self.page.view
        if not view.is_whole:
            return "pending"
        if view.is_published:
            return "published"
        data = self.project.docs / "data" / f"{self.page.name}.jsonl"
        return "again" if data.exists() else "own"

    def picture(self) -> bytes:
        """The PNG for shared links to the page; words alone if no chart can be drawn."""
        words = (self.project.site_name, self.title(), self.description)
        draw = functools.partial(share.picture, *words, id=self.page.name, cache=self.cache)

        def figure(name: str) -> bytes:
            return draw(self.page.view.shown[name])

        name = self.first_chart()
        drawn = self.attempt("figure", figure, name) if name else None
        return draw(None) if drawn is None else drawn

    def attempt(self, label: str, make: Callable[..., T], *names: str, **more: Any) -> T | None:
        """The part that `make` returns; None if it fails, which is noted under `label`.

        Raises:
            MadlError: the template or what it names is wrong.
        """
        try:
            with warnings.catch_warnings():  # numbers that cannot be drawn are no picture
                warnings.simplefilter("error", RuntimeWarning)
                return make(*names, **more)
        except MadlError:
            raise
        except (Exception, SystemExit) as error:
            self.page.view.note_failure(" ".join([label, *names]), error)
            return None

    def or_pending(self, label: str, make: Callable[..., Any]) -> Callable[..., Any]:
        """A function that makes the same, or a text that says that it is pending."""

        def tolerant(*names: str, **more: Any) -> Any:
            part = self.attempt(label, make, *names, **more)
            return self._pending() if part is None else part

        return tolerant

    def _check_name(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Raises: MadlError: the template names something that is not known."""
        if name not in known:
            raise MadlError(
                f"template {self.template} names an unknown {kind} {name!r}; "
                f"known: {', '.join(known) or 'none'}"
            )

    def _shown(self, function: str, name: str, *kinds: str) -> Any:
        """The chart, rows or text of this name; None where it could not be made.

        Raises:
            MadlError: there is none of these kinds, which the template's call `function` takes.
        """
        declared = self.page.view.experiment.shown
        self._check_name(function, name, [n for n in declared if declared[n].kind in kinds])
        return self.page.view.shown[name]

    def title(self) -> str:
        """The number and title of the only question that the page answers, or its own title."""
        match self.page.questions:
            case [question]:
                return f"{question.id} {question.title}"
            case _:
                return self.page.view.experiment.title or self.page.name

    def question(self) -> str:
        """The page's questions in our words, each saying if no lab sheet asks it."""
        beyond = "Beyond the lab sheets: "
        questions = self.page.questions
        return "".join(f"*{beyond if q.beyond else ''}{q.text}*\n" for q in questions)

    def facts_line(self) -> str:
        """A line of facts: machine and date, number of models, coverage, what was run again."""
        view, page = self.page.view, self.page
        if not view.own:
            return f'<p class="facts">{chip("open")} {inline(self.how_to_run())}</p>\n'
        seeds, further = (
            len({record.case.params.get(SEED) for record in records} - {None})
            for records in (view.own, view.further)
        )
        size = _test_size(view)
        is_timed = any(view.experiment.runs_alone(record.case.params) for record in view.own)
        done = "Measured" if size or is_timed else "Computed"
        parts = [f"{done} on {_place(view.machine, view.own)}"]
        parts += [
            f"{pluralize(len(lent), 'case')} that it cannot run on {_place(host, lent)}"
            for host, lent in view.lent.items()
        ]
        if view.plan.profile.name == "smoke":
            parts.append("proves that it runs; its numbers mean nothing")
        if size:
            workload = view.plan.workload
            model, data = (
                f" ({words(workload[key])})" if key in workload else ""
                for key in ("model", "dataset")
            )
            models = f"{pluralize(seeds, 'model')}{model}"
            parts.append(f"n = {models} × {size:,} test sentences{data}")
        if further:
            parts.append(f"n = {seeds + further} for primary claims")
        for sheet in dict.fromkeys(q.sheet for q in page.questions if q.sheet):
            asked = workloads.resolve(sheet)
            if not asked.params().items() <= view.plan.workload.items():
                parts.append(f"the lab sheet has {words(asked.model)} on {words(asked.dataset)}")
        parts += [words(part) for part in page.coverage if not part.is_whole]
        if not view.is_whole:
            parts.append(view.progress)
        if missing_device("cuda") in view.why_skipped and not view.lent:
            parts.append(f"no CUDA GPU here; on one, <code>{ON_GPU}</code> takes 15 minutes")
        if page.again and (line := page.again.line()):
            parts.append(words(line.rstrip(".")))
        status = f"{chip(page.status, STATUS.get(page.status, ''))} " if page.questions else ""
        return f'<p class="facts">{status}{" · ".join(parts)}</p>\n'

    def figure(self, name: str, caption: str = "", caller: Callable[[], str] | None = None) -> str:
        """A chart or drawing as HTML, with a link to its data; the `call` block is its title."""
        title = " ".join(caller().split()) if caller else ""
        if "`" in title:
            raise MadlError(f"template {self.template}: the title of {name} is no place for code")
        return self.drawn(name, title, caption)

    def drawn(self, name: str, title: str, caption: str, *, elsewhere: bool = False) -> str:
        """`figure`; with `elsewhere`, for a page at the site's root."""
        content = self._shown("figure", name, "chart", "drawing")
        if content is None:
            return self._pending()
        folder, up = (self.page.folder, "") if elsewhere else ("", self.up)
        id, figures = f"{self.page.name}-{name}", f"{folder}figures/{self.page.name}"
        data = f"{figures}/{name}.csv"
        if isinstance(content, Chart):
            texts = {"title": _text(title), "caption": caption, "data": data}
            chart = svg.figure(content, id=id, **texts, cache=self.cache)
            return f"{chart}\n"  # what follows, a table for one, is Markdown of its own
        drawing = self.page.view.experiment.shown[name]
        assert drawing.panels is not None
        assert drawing.alt is not None
        look, sheet, live = 'class="drawing"', "", ""
        if drawing.script:
            toy = read_text(self.project.experiments / self.page.name / explain.OWN, RESTORE)
            room = f"--controls: {explain.num_controls(toy, drawing.script)}"
            look = f'class="drawing explain" data-explain="{drawing.script}" style="{room}"'
            sheet = explain.sheet(up)
            live = explain.live(content, f"{figures}/{explain.OWN}", up=up)
        heading = f'<p class="title">{title}</p>\n' if title else ""
        return (
            f'<figure id="{id}" {look} aria-label="{words(drawing.alt(content))}" '
            f"data-search-exclude>\n{sheet}{heading}{_panels(drawing.panels(content))}\n"
            f"<figcaption>{inline(caption)} "
            f'<a href="{data}" download>Data (CSV)</a></figcaption>\n{live}</figure>\n'
        )

    def table(self, name: str, rows: int | None = None) -> str:
        """A Markdown table of the rows of a chart, drawing or table.

        If there are more than `rows`, it has the first of them, and a folded part has all.
        """
        content = self._shown("table", name, "chart", "drawing", "table")
        if content is None:
            return self._pending()
        chart = content if isinstance(content, Chart) else None
        all_rows: Sequence[Row] = content.rows if isinstance(content, Chart) else content
        whole = tables.markdown(all_rows, chart=chart)
        if rows is None or len(all_rows) <= rows:
            return whole
        first = tables.markdown(all_rows[:rows], chart=chart)
        return (  # on paper, where what is folded is open, only once
            f'<div class="unprinted" markdown>\n\n{first}\n</div>\n\n'
            f'??? abstract "All {len(all_rows)} rows"\n\n{textwrap.indent(whole, "    ")}\n'
        )

    def output(self, name: str) -> str:
        """A text that a case captured, as a block of code."""
        text = self._shown("output", name, "output")
        if text is None:
            return self._pending()
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return f"{fence}{{ .text .captured }}\n{_printable(text)}\n{fence}\n"

    def how_to_run(self) -> str:
        """A sentence: what has run, and the command for the rest; or why it cannot run here."""
        view = self.page.view
        if why := view.plan.why_unsuitable(view.name):
            return f"{why[:1].upper()}{why[1:]}."
        if (why := view.why_skipped) and view.evidence.is_complete(view.name):
            return f"Not run here: {why}."
        return f"{view.progress[:1].upper()}{view.progress[1:]}. To complete it: `{self.command()}`"

    def command(self, keys: Iterable[str] = ()) -> str:
        """The command that runs the page's cases; a line more where these are of further seeds."""
        run = f"python cli.py run {self.page.name}"
        view = self.page.view
        further = {case.key for case in view.twins.values()} & {*keys}
        more = [f"{run} --only claims"] if further else []
        return "\n".join([f"{run} {view.plan.options}", *more])

    def _pending(self) -> str:
        """A paragraph that says why something is not there, and how to get it."""
        view = self.page.view
        if not view.is_whole or view.why_skipped:
            why = inline(self.how_to_run())
        elif view.is_broken:
            why = "It could not be made; <code>cli.py report</code> says why."
        else:
            why = f"The cases of the {view.plan.profile.name} profile are too few for it."
        return f'<p class="pending">{why}</p>\n'

    def param(self, name: str) -> Any:
        """The values of a parameter in the planned cases, as text: "2, 4, 8"."""
        planned = [case.params for case in self.page.view.cases]
        if not planned:
            return NOT_RUN
        self._check_name("parameter", name, sorted({key for params in planned for key in params}))
        values = {params[name] for params in planned if name in params}
        return ", ".join(_number(value) for value in sorted(values, key=sort_key))

    def of_default_data(self, caller: Callable[[], str]) -> str:
        """The body of the `call` block, if the page's data set is the default one; else ""."""
        return caller() if self._is_of_default_data else ""

    def of_other_data(self, caller: Callable[[], str]) -> str:
        """The body of the `call` block, if the page's data set is not the default one; else ""."""
        return "" if self._is_of_default_data else caller()

    @property
    def _is_of_default_data(self) -> bool:
        default = workloads.PRESETS[workloads.DEFAULT].dataset
        return self.page.view.plan.workload.get("dataset", default) == default

    def provenance(self) -> str:
        """A table of machine, software, cases, time and the command to reproduce them."""
        view, records = self.page.view, self.page.view.own
        lines = self.command(record.case.key for record in view.further).splitlines()
        facts = [("Reproduce", ", then ".join(f"`{line}`" for line in lines))]
        if records:
            runs = [record.run for record in records]
            started = [run.started[:10] for run in runs]
            days = " to ".join(dict.fromkeys((min(started), max(started))))
            beside = [r for r in records if (r.run.contention or 0) > CONTENDED]
            crowded = f"{len(beside)} of these cases beside other busy processes"
            if beside:
                crowded += f", which took {_minutes(beside)} of it"
            timed = contended_processes(records)
            if timed.cases:
                crowded += f"; {timed.value} of their timed processes"
            took = f"{_minutes(records)} in these cases"
            if view.further:
                took += f", {_minutes(view.further)} in the {len(view.further)} further ones"
            facts += [
                ("Machine", f"{view.machine}; device {runs[-1].device}"),
                ("Processor", "; ".join(sorted({run.cpu for run in runs}))),
                ("Software", f"Python {runs[-1].python}, torch {runs[-1].torch}"),
                ("Kernels", "; or ".join(filter(None, dict.fromkeys(run.kernels for run in runs)))),
                ("Run", f"{days}, profile {view.plan.profile.name}, {view.progress}"),
                ("Compute time", took),
                ("Crowded", crowded),
                ("Code", "; ".join(dict.fromkeys(map(_code, runs)))),
                ("Measured", view.age),
            ]
            for host, lent in view.lent.items():
                facts.append(("Elsewhere", f"{host}, {_date(lent)}: what this machine cannot run"))
        table = tables.markdown([{"": name, " ": fact} for name, fact in facts if fact])
        packed = f'<a href="{self.records}/{provenance.CASES}" download>{provenance.CASES}</a>'
        note = f'<p class="facts">Its records, a line of JSON each: {packed}</p>\n'
        return f"{table}\n{note if self.packed_records() else ''}"

    def elsewhere(self) -> str:
        """A part "Elsewhere" with the replications: a row a primary claim, a column a run."""
        rows = [
            {column: cell for column, cell in row.items() if column != "question"}
            for row in replication.rows([self.page])
        ]
        return f"## Elsewhere\n\n{tables.markdown(rows)}\n" if rows else ""

    def reported(self) -> str:
        """A table of the values that others reported, with their source.

        Raises:
            MadlError: `experiments/reported.toml` has none for this page.
        """
        reports = reported.figures(self.project)
        if (report := reports.get(self.page.name)) is None:
            raise MadlError(
                f"template {self.template} calls reported(), and experiments/reported.toml has no "
                f"table [{self.page.name}]; known: {', '.join(reports) or 'none'}"
            )
        return (
            f"{tables.markdown(report.rows)}\n"
            f'<p class="facts">Source: {words(report.source)}; workload: {words(report.workload)}; '
            "nothing on this page is decided by them.</p>\n"
        )

    def notes(self) -> str:
        """A part "Notes" with the student's notes on the page's questions; "" without any."""
        texts = [note for q in self.page.questions if (note := self._note(q.id))]
        return "\n".join(["## Notes", "", *(f"{note}\n" for note in texts)]) if texts else ""

    def _note(self, id: str) -> str:
        """A question's note as HTML; "" if there is none, or it cannot be read, which is noted."""
        try:
            return notes.read(self.project.docs, id)
        except MadlError as error:
            self.page.view.problems.note(error)
            return ""

    def more(self) -> str:
        """A line of links: to the lab's notebook, and to what was tried and failed."""
        docs, ids = self.project.docs, [question.id for question in self.page.questions]
        parts: list[str] = []
        lab = next((f"lab{id.partition('.')[0]}" for id in ids), "")
        if lab in notebooks.names(self.project):
            parts.append(f"[vary this lab's figure in a notebook](../notebooks/{lab}.ipynb)")
        if ids and (docs / "log.md").is_file():
            text = read_text(docs / "log.md", "restore it from the repository")
            anchors = (f"#q{id.replace('.', '-')}" for id in ids)
            anchor = next((anchor for anchor in anchors if f"{{ {anchor} }}" in text), "")
            parts.append(f"[what was tried and failed](../log.md{anchor})")
        return f"Go on: {', '.join(parts)}.\n" if parts else ""

    def csv_files(self) -> dict[str, str]:
        """The data behind every figure: file name → CSV."""
        view = self.page.view

        def data(name: str) -> str:
            content = view.shown[name]
            return to_csv(content.rows if isinstance(content, Chart) else content)

        names = [
            name
            for name, declared in view.experiment.shown.items()
            if declared.kind in ("chart", "drawing") and view.shown[name] is not None
        ]
        texts = {f"{name}.csv": self.attempt("data", data, name) for name in names}
        return {name: text for name, text in texts.items() if text is not None}


def _place(host: str, records: Sequence[Record]) -> str:
    return f"{inline(host)}, <time>{words(_date(records))}</time>"


def _date(records: Sequence[Record]) -> str:
    """The day on which the last of these records was begun."""
    return max(record.run.started for record in records)[:10]


def _text(markup: str) -> str:
    """HTML as text, without the marks of verdicts."""
    return html.unescape(re.sub(r'<a class="mark .*?</a>|<[^>]+>', "", markup)).strip()


def _test_size(view: View) -> int | None:
    """The number of test examples on which most models of this page were judged."""
    own = view.records.of_experiment(view.name)
    sizes = [estimate.n for record in own for _, estimate in accuracies(record.values)]
    return max(set(sizes), key=sizes.count) if sizes else None


def _panels(panels: Sequence[Panel]) -> str:
    """HTML of a drawing's panels: the open ones, then the folded ones beside or below them."""
    opened = "\n".join(
        f'<div class="panel">{f"<p>{words(p.title)}</p>" if p.title else ""}{p.svg}</div>'
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


def _minutes(records: Iterable[Record]) -> str:
    """The compute time of these cases: "1.5 min"."""
    return f"{sum(record.seconds for record in records) / 60:.1f} min"


def _code(run: Run) -> str:
    """The code that made a record: commit and digest."""
    changed = ", with uncommitted changes" if run.dirty else ""
    return f"commit {run.commit or 'unknown'}{changed}, digest {run.code}"


def _number(value: Any) -> str:
    """A parameter's value as text."""
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    return f"{value:,}" if isinstance(value, int) else inline(value)


def _printable(text: str) -> str:
    """The text with spaces for control characters, which browsers and Markdown do not take."""
    return re.sub(r"[^\S\n ]|[\x00-\x08\x0e-\x1f\x7f]", " ", text.replace("\t", "    "))
