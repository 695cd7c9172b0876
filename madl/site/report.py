"""From records to Markdown: pages, ledger, home. Data first, prose last; nothing is parsed back.

A page renders at any moment: what is missing says so, and what cannot be read or made is a line of
`Ledger.problems`. Rendering the same records twice gives the same bytes, so no page knows the time
of day. What was rendered before is never needed: it is replaced, whatever has become of it.
"""

import functools
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import read_text, write_if_changed
from madl.logbook.claims import Claim, Result
from madl.logbook.experiment import Question
from madl.logbook.records import Record, Store, encode
from madl.logbook.stats import ALPHA, counted
from madl.running.plans import StoredPlan
from madl.running.project import RESTORE, Project
from madl.site import (
    against,
    evidence,
    explain,
    home,
    notebooks,
    notes,
    prose,
    replication,
    share,
    templates,
)
from madl.site.markup import NOT_RUN, chip, html, inline
from madl.site.page import PageCalls, markdown_table, prose_numbers
from madl.site.views import Page, Problems, Status, pages

SITE = ("ledger", "index", "reported")  # pages of the whole
EVIDENCE = re.compile(r'---\n(?:.+\n)*evidence: "')  # in the front matter of an experiment's page


@dataclass(kw_only=True)
class Ledger:
    """The state of every question, for the ledger page, its JSON twin and `checklist`."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with records, claims, charts; one line each

    def count(self, status: Status) -> int:
        return sum(row["status"] == status for row in self.rows)

    @property
    def is_complete(self) -> bool:
        return self.count("answered") == len(self.rows)


def ledger(project: Project, rendered: Sequence[Page]) -> Ledger:
    """One row a question, in the coursework's order."""
    by_stem = {page.name: page for page in rendered}
    return Ledger(rows=[_ledger_row(project, q, by_stem.get(q.stem)) for q in project.questions])


def _ledger_row(project: Project, question: Question, page: Page | None) -> dict[str, Any]:
    results = page.view.results.values() if page and page.view.own else ()
    primary = [one for one in results if one.primary]
    return {
        "id": question.id,
        "title": question.title,
        "question": question.text,
        "status": page.status if page else "open",
        "stem": question.stem,
        "page": page.path if page else None,
        "answer": PageCalls(project, page).description() if page else None,
        "verdicts": dict(sorted(Counter(one.decided for one in primary).items())),
        "coverage": [
            {"what": part.what, "asked": part.asked, "run": part.run}
            for part in (page.coverage if page else [])
        ],
        "progress": page.view.progress if page else None,
        "evidence_of": page.view.machine if page and page.view.published else None,
        "claims": [
            _claim_row(one, page.view.experiment.claims[one.name]) for one in primary if page
        ],
    }


def _claim_row(result: Result, claim: Claim) -> dict[str, Any]:
    return {
        "name": result.name,
        "hypothesis": result.hypothesis,
        "verdict": result.verdict,
        "finding": prose.with_interval(result) if result.contrast else result.why,
        "p": result.p_adjusted,
        "digest": claim.digest,
        "state": result.state,
    }


def write(plan: StoredPlan, store: Store) -> Ledger:
    """Render every page, figure, the ledger and the home page; returns the ledger.

    Raises:
        MadlError: there are no templates, or questions, or experiments that can be read; no page is
            touched then.
    """
    (store.root / "build").mkdir(parents=True, exist_ok=True)
    with FileLock(store.root / "build" / ".lock"):  # whoever renders second waits
        return _write(plan, store)


def _write(plan: StoredPlan, store: Store) -> Ledger:
    project, problems = plan.project, Problems()
    if not project.templates.is_dir():
        raise MadlError(f"there is no folder {project.templates}; {RESTORE}")
    planned = pages(plan, problems)
    state = ledger(project, planned)
    cache = store.root / "build" / "charts"
    calls = {page.name: PageCalls(project, page, cache) for page in planned}
    texts = _rendered(
        {p.path: functools.partial(_render_page, project, calls[p.name]) for p in planned}, problems
    )
    rendered = [page for page in planned if page.path in texts]
    for row in state.rows:
        row["page"] = row["page"] if row["page"] in texts else None
    told = against.rows(project, {page.name: calls[page.name] for page in rendered}, problems)
    globals_ = {**_site_globals(plan, rendered, calls, state), "against": Markup(told)}

    def whole(name: str) -> str:
        return templates.render(templates.load(project, f"{name}.md.j2", RESTORE), globals_)

    names = [name for name in SITE if told or name != "reported"]
    texts |= _rendered({f"{n}.md": functools.partial(whole, n) for n in names}, problems)
    for path in {*(page.path for page in planned), *(f"{n}.md" for n in SITE)} - texts.keys():
        (project.docs / path).unlink(missing_ok=True)
    texts = {path: re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for path, text in texts.items()}
    texts["ledger.json"] = _for_web(_dense({"questions": state.rows})) + "\n"
    files: dict[str, str | bytes] = {**texts}
    for page in rendered:
        files |= _files_beside(page, calls[page.name])
    for path, content in files.items():
        write_if_changed(project.docs / path, content)
    _remove_stale(project.docs, {project.docs / path for path in files})
    for stray in notes.strays(project.docs, sorted(q.id for p in planned for q in p.questions)):
        problems.note(stray)
    state.problems = problems.said + notebooks.write(project, store.root / "build")
    return state


def _rendered(renderers: Mapping[str, Callable[[], str]], problems: Problems) -> dict[str, str]:
    """The text of each path; a page that cannot be rendered is named, and missing."""
    texts: dict[str, str] = {}
    for path, render in renderers.items():
        try:
            texts[path] = render()
        except MadlError as error:
            problems.note(error)
    return texts


def _files_beside(page: Page, calls: PageCalls) -> dict[str, str | bytes]:
    """The data behind a page's figures, the records behind its numbers, its picture, by path."""
    figures: dict[str, str | bytes] = {
        f"{page.folder}figures/{page.name}/{name}": text for name, text in calls.csv_files().items()
    }
    if page.view.own:
        figures[_picture(page)] = calls.picture()
    behind = prose.behind(page.view)
    folder = f"{page.folder}records/{page.name}"
    figures |= {
        f"{folder}/{name}.json": _for_web(_dense({**twin, "in": prose.CASES})) + "\n"
        for name, twin in behind.items()
    }
    how = {"title": calls.title(), "archive": prose.CASES, "command": calls.command()}
    figures |= {
        f"{folder}/{name}.html": evidence.page(name, twin, page.view.stored, stem=page.name, **how)
        for name, twin in behind.items()
    }
    if found := prose.records_behind(page.view):
        figures[f"{folder}/{prose.CASES}"] = _packed(found)
    toy = calls.project.experiments / page.name / explain.OWN
    if toy.is_file():
        figures[f"{page.folder}figures/{page.name}/{explain.OWN}"] = read_text(toy, RESTORE)
    return figures


def _packed(records: Sequence[Record]) -> bytes:
    """Records as the site shows them, a line of JSON each: whole, fractions to four digits, as
    pages print three. The same records are the same bytes."""
    lines = {_dense(json.loads(encode(one), parse_float=_short)): None for one in records}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr(zipfile.ZipInfo("cases.jsonl"), "\n".join([*lines, ""]), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _dense(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _short(written: str) -> float:
    return float(f"{float(written):.4g}")


def _for_web(text: str) -> str:
    """The same JSON without a character that HTML would take for markup."""
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _remove_stale(docs: Path, written: set[Path]) -> None:
    """Pages, figures and records of experiments that are gone.

    What lies behind a link may be anything, and stays. Beside pages written by hand only those that
    say whose evidence they show are of an experiment.
    """
    for folder in (docs / "labs", docs / "figures", docs / "records"):
        for path in () if folder.is_symlink() else folder.rglob("*"):
            if path.is_file() and path not in written:
                path.unlink()
    for page in set(docs.glob("*.md")) - written:
        if page.is_file() and EVIDENCE.match(page.read_text("utf-8", errors="replace")):
            page.unlink()


def _render_page(project: Project, calls: PageCalls) -> str:
    name = f"{calls.page.name}/page.md.j2"
    template = templates.load(project, name, "write one")
    text = read_text(project.experiments / name, "save it as UTF-8 text")
    if not re.search(r"{%-?\s*extends\b", text):
        raise MadlError(
            f'template {name} has the shape of no page; begin it with {{% extends "page.md.j2" %}}'
        )
    if found := prose_numbers(text):
        raise MadlError(
            f"template {name} has the number {found[0]!r} in its prose; give it a name in "
            "page.py, page.numbers(…), and print that"
        )
    return templates.render(template, calls.all())


def _site_globals(
    plan: StoredPlan,
    rendered: Sequence[Page],
    calls: Mapping[str, PageCalls],
    state: Ledger,
) -> dict[str, Any]:
    place = {question.stem: i for i, question in enumerate(plan.project.questions)}
    with_results = [page for page in rendered if page.questions and page.view.own]
    answered = sorted(with_results, key=lambda page: place[page.name])  # as the coursework asks
    latest = max((page.view.date for page in answered), default="")
    there = {page.path for page in rendered}
    made = {one.page.path: one.page.path in there for one in calls.values()}
    machines = [page.view.machine for page in answered] or [NOT_RUN]
    beyond = sum(question.beyond for question in plan.project.questions)
    return {
        "picture": next(map(_picture, home.surprising(answered)), ""),
        "lab_questions": len(state.rows) - beyond,
        "beyond": beyond,
        "answered": f"{state.count('answered')} of {len(state.rows)}",
        "partly": state.count("partly"),
        "machine": inline(_counted(machines)),
        "date": inline(latest) or "never",
        "refuted_first": home.refuted_first(answered),
        "openings": functools.partial(home.openings, answered, calls),
        "cards": functools.partial(home.cards, state.rows, rendered, calls),
        "notebooks": functools.partial(home.of_notebooks, plan.project),
        "ledger_table": functools.partial(_ledger_table, state, rendered, calls),
        "totals": functools.partial(_totals, state, rendered),
        "registered": functools.partial(_registered, state),
        "replication_table": functools.partial(_replication_table, answered),
        "linked": functools.partial(_linked, plan.project.docs, made),
    }


def _picture(page: Page) -> str:
    return f"{page.folder}{share.path(page.name)}"


def _linked(docs: Path, made: Mapping[str, bool], path: str, text: str) -> str:
    """A link to a page, of which some are made only now, where there is one; else its text."""
    return f"[{text}]({path})" if made.get(path, (docs / path).is_file()) else text


def _counted(of_pages: Sequence[str]) -> str:
    """What all pages have in common, or how many have what."""
    counts = Counter(of_pages)
    if len(counts) == 1:
        return of_pages[0]
    return "; ".join(f"{counted(count, 'page')}: {what}" for what, count in counts.most_common())


def _totals(state: Ledger, rendered: Sequence[Page]) -> Markup:
    """What became of questions and primary claims, in other runs too, and what was run again."""
    counts = Counter(claim["verdict"] for row in state.rows for claim in row["claims"])
    found = Counter(row["agreement"] for row in replication.rows(rendered))
    again = [page.again for page in rendered if page.again]
    shown = [
        (f"{state.count('answered')} of {len(state.rows)}", "questions answered"),
        *((str(counts[verdict]), verdict) for verdict in prose.MARKS),
        (f"{found['alike']} of {found.total()}", "claims decided alike in every other run"),
        (
            f"{sum(one.run for one in again):,} of {sum(one.cases for one in again):,}",
            "cases run again here",
        ),
    ]
    items = (html("<li><b>{}</b> {}</li>", count, of) for count, of in shown)
    return html('<ul class="totals">{}</ul>\n', Markup().join(items))


def _registered(state: Ledger) -> str:
    """How many claims were worded beforehand, and what that makes of their verdicts."""
    claims = [claim for row in state.rows for claim in row["claims"]]
    counts = Counter(claim["state"] for claim in claims)
    return (
        f"Of {counted(len(claims), 'claim')} {counts['registered']} were registered before their "
        f"runs, {counts['known']} worded when an earlier run of the same cases was known, "
        f"{counts['worded after']} after. A page's claims are one family: a page "
        f"of registered ones holds a wrong verdict with a chance of at most {100 * ALPHA:g} %."
    )


def _replication_table(pages: Sequence[Page]) -> str:
    rows = replication.rows(pages)
    return markdown_table(rows) if rows else ""


def _ledger_table(state: Ledger, rendered: Sequence[Page], calls: Mapping[str, PageCalls]) -> str:
    """One row a question: what it asks, what was found, how much has run."""
    by_name = {page.name: page for page in rendered}
    lines = [
        '<div class="ledger sortable" markdown data-search-exclude>\n',
        "| Question | Answer | Verdicts | Replicates? | Run again here |",
        "| :-- | :-- | :-- | :-- | :-- |",
    ]
    for row in state.rows:
        title = inline(f"{row['id']} {row['title']}")
        link = f"[{title}]({row['page']})" if row["page"] else title
        asked = [inline(one) for one in home.run_of_asked(row)]
        asks = f"{link}<br>{chip(row['status'])} <small>{'; '.join(asked)}</small>"
        said = home.answer(row, by_name.get(row["stem"]), calls)
        verdicts = "<br>".join(
            chip(verdict, f"{row['verdicts'][verdict]}\u00a0{verdict}")
            for verdict in prose.MARKS
            if verdict in row["verdicts"]
        )
        page = by_name.get(row["stem"])
        again = page.again if page else None
        run = f"{again.run} of {again.cases} cases" if again and again.run else "no"
        alike = replication.summary(page) if page and verdicts else ""
        cells = (asks, said, verdicts or "no claim", alike, run)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n</div>\n"
