"""From records to Markdown: pages, ledger, home. Data first, prose last; nothing is parsed back.

A page renders at any moment: what is missing says so. Rendering the same records twice gives the
same bytes, so no page knows the time of day.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from madl.errors import MadlError
from madl.logbook import plots
from madl.logbook.experiment import Figure, Project, Question
from madl.logbook.page import PageCalls
from madl.logbook.plans import StoredPlan
from madl.logbook.results import Store, write_atomically
from madl.logbook.views import NOT_RUN, Page, Status, pages


@dataclass(kw_only=True)
class Ledger:
    """The state of every question, for the ledger page, its JSON twin and `checklist`."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def count(self, status: Status) -> int:
        return sum(row["status"] == status for row in self.rows)

    @property
    def is_complete(self) -> bool:
        return self.count("answered") == len(self.rows)


def ledger(project: Project, rendered: Sequence[Page]) -> Ledger:
    """One row a question, in the coursework's order."""
    by_stem = {page.name: page for page in rendered}
    return Ledger(rows=[_ledger_row(q, by_stem.get(q.stem)) for q in project.questions])


def _ledger_row(question: Question, page: Page | None) -> dict[str, Any]:
    claims = list(page.view.claims.values()) if page and page.view.own else []
    return {
        "id": question.id,
        "title": question.title,
        "status": page.status if page else "open",
        "stem": question.stem,
        "page": page.path if page else None,
        "answer": claims[0].text if claims else None,
        "verdicts": dict(sorted(Counter(claim.verdict for claim in claims).items())),
        "progress": page.view.progress if page else None,
    }


def write(plan: StoredPlan, store: Store | None) -> Ledger:
    """Render every page, figure, the ledger and the home page; returns the ledger.

    Raises:
        MadlError: a template or a note that cannot be rendered; no page is touched then.
    """
    project = plan.project
    rendered = pages(plan)
    state = ledger(project, rendered)
    texts = {page.path: _render_page(project, page) for page in rendered}
    changes = _changes(rendered, store)
    environment = _environment(project)
    for name in ("ledger", "index"):
        template = environment.get_template(f"{name}.md.j2")
        globals_ = _site_globals(plan, rendered, state, changes)
        texts[f"{name}.md"] = _render(template, globals_)
    written = {project.docs / path for path in texts}
    for page in rendered:
        written |= _write_figures(project, page)
    for path, text in texts.items():
        _write_if_changed(project.docs / path, re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")
    twin = json.dumps({"questions": state.rows}, indent=1)
    _write_if_changed(project.docs / "ledger.json", twin + "\n")
    _remove_stale(project.docs, written)
    return state


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        write_atomically(path, text)


def _remove_stale(docs: Path, written: set[Path]) -> None:
    """Pages and figures of experiments that are gone; only below generated folders."""
    for folder in (docs / "labs", docs / "figures"):
        for path in folder.rglob("*"):
            if path.is_file() and path not in written:
                path.unlink()


def _figure_base(project: Project, page: Page, name: str) -> Path:
    return (project.docs / page.path).parent / "figures" / page.name / name


def _write_figures(project: Project, page: Page) -> set[Path]:
    written: set[Path] = set()
    code = _drawing_code(project, page.name)
    for name, figure in page.view.experiment.figures.items():
        rows = page.view.rows[name]
        if rows is not None:
            base = _figure_base(project, page, name)
            written.update(plots.write(figure, rows, base, code=code))
    return written


def _drawing_code(project: Project, name: str) -> str:
    sources = [Path(plots.__file__), project.experiments / f"{name}.py"]
    return "".join(path.read_text("utf-8") for path in sources)


def _environment(project: Project) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(project.templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: jinja2.Template, globals_: Mapping[str, Any]) -> str:
    try:
        return template.render(globals_)
    except jinja2.TemplateError as error:
        raise MadlError(f"template {template.name}: {error}") from error


def _render_page(project: Project, page: Page) -> str:
    name = f"{page.name}.md.j2"
    try:
        template = _environment(project).get_template(name)
    except jinja2.TemplateNotFound as error:
        raise MadlError(f"experiment {page.name} has no templates/{name}; write one") from error
    except jinja2.TemplateSyntaxError as error:
        raise MadlError(f"template {error.name}, line {error.lineno}: {error.message}") from error
    return _render(template, PageCalls(project, page).all())


def _site_globals(
    plan: StoredPlan, rendered: Sequence[Page], state: Ledger, changes: Sequence[str]
) -> dict[str, Any]:
    place = {question.stem: i for i, question in enumerate(reversed(plan.project.questions))}
    with_results = [page for page in rendered if page.questions and page.view.own]
    answered = sorted(with_results, key=lambda page: -place[page.name])  # as the coursework asks
    latest = max((page.view.date for page in answered), default="")
    machine = answered[0].view.machine if answered else NOT_RUN
    return {
        "answered": f"{state.count('answered')} of {len(state.rows)}",
        "partly": state.count("partly"),
        "machine": machine,
        "date": latest or "never",
        "profile": (answered[0].view.plan.profile if answered else plan.profile).name,
        "banner": (answered[0].view.plan.profile.banner if answered else ""),
        "findings": functools.partial(_findings, plan.project, answered),
        "ledger_table": functools.partial(_ledger_table, state),
        "changes": functools.partial(_bullets, changes),
    }


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) + "\n" if lines else ""


def _chosen(answered: Sequence[Page]) -> list[Page]:
    """One page of each lab: the first with a plot and a decided first claim, or else its first."""
    by_lab: dict[str, list[Page]] = {}
    for page in answered:
        by_lab.setdefault(page.questions[0].id.partition(".")[0], []).append(page)
    return [next((page for page in pages if _decided(page)), pages[0]) for pages in by_lab.values()]


def _decided(page: Page) -> bool:
    first = next(iter(page.view.claims.values()), None)
    return bool(first and first.verdict in ("supported", "refuted") and _first_plot(page))


def _first_plot(page: Page) -> str | None:
    figures = page.view.experiment.figures
    drawn = (name for name, figure in figures.items() if isinstance(figure, Figure))
    return next((name for name in drawn if page.view.rows[name] is not None), None)


def _findings(project: Project, answered: Sequence[Page]) -> str:
    """The first claim and the first plot of one page of each lab."""
    parts: list[str] = []
    for page in _chosen(answered):
        calls = PageCalls(project, page)
        folder = page.path.rpartition("/")[0]
        names = list(page.view.experiment.claims)
        parts.append(f"### [{calls.title()}]({page.path})\n")
        parts += [calls.claim(names[0]) + "\n"] if names else []
        if figure := _first_plot(page):
            drawing = calls.figure(figure)
            parts.append(re.sub(r'(src|srcset|href)="figures/', rf'\1="{folder}/figures/', drawing))
    return "\n".join(parts)


def _ledger_table(state: Ledger) -> str:
    lines = ["| Question | Status | Short answer | Verdicts |", "| :-- | :-- | :-- | :-- |"]
    for row in state.rows:
        title = f"{row['id']} {row['title']}"
        link = f"[{title}]({row['page']})" if row["page"] else title
        verdicts = "<br>".join(f"{n}\u00a0{verdict}" for verdict, n in row["verdicts"].items())
        status = f'<span class="status {row["status"]}">{row["status"]}</span>'
        lines.append(f"| {link} | {status} | {row['answer'] or ''} | {verdicts} |")
    return "\n".join(lines) + "\n"


def _changes(rendered: Sequence[Page], store: Store | None) -> list[str]:
    """Claims that read or were judged otherwise in the build before this one.

    The two latest different builds are kept, so building twice does not empty the list.
    """
    if store is None:
        return []
    now = {
        f"{page.name}.{name}": {"text": claim.text, "verdict": claim.verdict}
        for page in rendered
        for name, claim in page.view.claims.items()
    }
    path = store.root / "build" / "claims.json"
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {"now": {}, "before": {}}
    if kept["now"] != now:
        kept = {"now": now, "before": kept["now"]}
        write_atomically(path, json.dumps(kept, sort_keys=True))
    return [
        line for key, new in now.items() if (line := _change(key, kept["before"].get(key), new))
    ]


def _change(key: str, old: Mapping[str, str] | None, new: Mapping[str, str]) -> str | None:
    if old is None or old == new:
        return None
    flipped = old["verdict"] != new["verdict"]
    verdicts = f" ({old['verdict']} → {new['verdict']})" if flipped else ""
    return f"`{key}`{verdicts}: {new['text']}. Before: {old['text']}."
