"""Renders records into Markdown: pages, ledger, home. Data first, prose last; nothing is parsed.

A page renders at any moment: what is missing says so, and what cannot be read or made is a line of
`Ledger.problems`. Rendering the same records twice gives the same bytes, so no page knows the time
of day. Files of an earlier rendering are never needed: they are replaced, even if damaged.
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
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from madl.errors import MadlError
from madl.files import read_text, write_if_changed
from madl.logbook.charts import to_csv
from madl.logbook.claims import Claim, Result
from madl.logbook.experiment import Question
from madl.logbook.records import Record, Store, encode
from madl.logbook.stats import CONTENDED, holm
from madl.logbook.values import ALPHA, LEVEL, pluralize
from madl.running.pages import Page, Status, pages
from madl.running.plans import RunPlan
from madl.running.project import RESTORE, SITE_PAGES, Project
from madl.running.views import NOT_RUN, Problems
from madl.site import (
    against,
    explain,
    home,
    how_sure,
    notebooks,
    notes,
    prose,
    provenance,
    replication,
    share,
    tables,
    templates,
)
from madl.site.markup import chip, html, inline, words
from madl.site.page import PageCalls

DENSE: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}  # JSON without spaces
REPORTED = 3  # rows of what others report on home
EVIDENCE = re.compile(r'---\n(?:.+\n)*evidence: "')  # in the front matter of an experiment's page


@dataclass(kw_only=True)
class Ledger:
    """The state of every question, for the ledger page, its JSON twin and `checklist`."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with records, claims, charts; one line each

    def count(self, status: Status) -> int:
        """The number of questions with this status."""
        return sum(row["status"] == status for row in self.rows)

    @property
    def is_complete(self) -> bool:
        return self.count("answered") == len(self.rows)


def ledger(project: Project, calls: Mapping[str, PageCalls]) -> Ledger:
    """The ledger, with a row for each question in the order of `questions.toml`."""
    return Ledger(rows=[_ledger_row(q, calls.get(q.stem)) for q in project.questions])


def _ledger_row(question: Question, calls: PageCalls | None) -> dict[str, Any]:
    """A question's row of the ledger; `calls` belong to its page, None without a page."""
    page = calls and calls.page
    results = page.view.results.values() if page and page.view.own else ()
    primary = [result for result in results if result.primary]
    return {
        "id": question.id,
        "title": question.title,
        "question": question.text,
        "status": page.status if page else "open",
        "stem": question.stem,
        "page": page.path if page else None,
        "answer": calls.description if calls else None,
        "verdicts": dict(sorted(Counter(result.decided for result in primary).items())),
        "coverage": [
            {"what": part.counted, "asked": part.required, "run": part.run}
            for part in (page.coverage if page else [])
        ],
        "progress": page.view.progress if page else None,
        "has_run": page.view.is_whole if page else False,
        "evidence_of": page.view.machine if page and page.view.is_published else None,
        "claims": [_claim_row(r, page.view.experiment.claims[r.name]) for r in primary if page],
    }


def _claim_row(result: Result, claim: Claim) -> dict[str, Any]:
    """A primary claim's entry in the row of its question."""
    return {
        "name": result.name,
        "hypothesis": result.hypothesis,
        "verdict": result.verdict,
        "finding": how_sure.with_interval(result) if result.contrast else result.why,
        "p": result.p_adjusted,
        "digest": claim.digest,
        "state": result.state,
    }


def write(plan: RunPlan, store: Store) -> Ledger:
    """Render every page, figure, the ledger and the home page into `docs/`; returns the ledger.

    Raises:
        MadlError: templates, questions or experiments are missing or cannot be read; no page is
            touched then.
    """
    (store.root / "build").mkdir(parents=True, exist_ok=True)
    with FileLock(store.root / "build" / ".lock"):  # whoever renders second waits
        return _write(plan, store)


def _write(plan: RunPlan, store: Store) -> Ledger:
    """`write`, while no other process renders."""
    project, problems = plan.project, Problems()
    if not project.templates.is_dir():
        raise MadlError(f"there is no folder {project.templates}; {RESTORE}")
    planned = pages(plan, store, problems)
    cache = store.root / "build" / "charts"
    calls = {page.name: PageCalls(project, page, cache) for page in planned}
    state = ledger(project, calls)
    renderers = {c.page.path: functools.partial(_render_page, c) for c in calls.values()}
    texts = _render_all(renderers, problems)
    shown = {name: c for name, c in calls.items() if c.page.path in texts}
    for row in state.rows:
        row["page"] = row["page"] if row["page"] in texts else None
    paths = {page.path: page.path in texts for page in planned}
    told = against.rows(project, shown, problems)
    names = {
        **_site_names(plan, shown, paths, state),
        "against": against.together(text for _, text in told),
        "touch": against.opening(told, shown),
        "reported_first": against.together([text for row, text in told if not row.toy][:REPORTED]),
    }

    def whole(name: str) -> str:
        return templates.render(templates.load(project, f"{name}.md.j2", RESTORE), names)

    site = [name for name in SITE_PAGES if told or name != "reported"]
    texts |= _render_all({f"{name}.md": functools.partial(whole, name) for name in site}, problems)
    for path in {*(page.path for page in planned), *(f"{n}.md" for n in SITE_PAGES)} - texts.keys():
        (project.docs / path).unlink(missing_ok=True)
    texts = {path: re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for path, text in texts.items()}
    texts["ledger.json"] = f"{htmlsafe_json_dumps({'questions': state.rows}, **DENSE)}\n"
    files: dict[str, str | bytes] = {**texts}
    for page_calls in shown.values():
        files |= _files_beside(page_calls)
    for path, content in files.items():
        write_if_changed(project.docs / path, content)
    _remove_stale(project.docs, {project.docs / path for path in files})
    for stray in notes.strays(project.docs, sorted(q.id for p in planned for q in p.questions)):
        problems.note(stray)
    state.problems = problems.lines + notebooks.write(project, store.root / "build")
    return state


def _render_all(renderers: Mapping[str, Callable[[], str]], problems: Problems) -> dict[str, str]:
    """Render each page: path → text. One that fails is left out, and noted in `problems`."""
    texts: dict[str, str] = {}
    for path, render in renderers.items():
        try:
            texts[path] = render()
        except MadlError as error:
            problems.note(error)
    return texts


def _files_beside(calls: PageCalls) -> dict[str, str | bytes]:
    """The files beside a page by path: its figures' data, its numbers' and claims' documents, the
    packed records, its picture, and its toy's script.
    """
    page = calls.page
    figures, records = (f"{page.folder}{kind}/{page.name}" for kind in ("figures", "records"))
    files: dict[str, str | bytes] = {
        f"{figures}/{name}": text for name, text in calls.csv_files().items()
    }
    if page.view.own and calls.project.site_url:  # nobody asks for it without an address
        files[_picture(page)] = calls.picture()
    document = templates.load(calls.project, "evidence.html.j2", RESTORE)
    of_page = {
        "stem": Markup(page.name),
        "title": calls.title(),
        "archive": provenance.CASES,
        "up": Markup(f"../../{calls.up}"),  # from the document to the site's root
    }
    known = {record.case.key: record for record in page.view.stored}
    for name, entry in calls.index.items():
        twin = htmlsafe_json_dumps({**entry, "in": provenance.CASES}, **DENSE)
        files[f"{records}/{name}.json"] = f"{twin}\n"
        picture = how_sure.evidence_drawn(page.view, name)
        facts = provenance.variables(name, entry, known, picture)
        lines = calls.command(entry["records"]).splitlines()
        facts["command"] = Markup("\n").join(map(words, lines))
        files[f"{records}/{name}.html"] = templates.render(document, {**facts, **of_page})
    if effects := how_sure.unit_effects(page.view):
        files[f"{records}/{how_sure.EFFECTS}"] = to_csv(effects)
    if packed := calls.packed_records():
        files[f"{records}/{provenance.CASES}"] = _archive(packed)
    toy = calls.project.experiments / page.name / explain.OWN
    if toy.is_file():
        files[f"{figures}/{explain.OWN}"] = read_text(toy, RESTORE)
    return files


FIELDS = f"""\
cases.jsonl has a line of JSON for each case of the page, measured here or on another machine.

key      as the evidence of a number names the case
case     the experiment, all parameters, and the version of the experiment
values   what was measured. A test of a model has n examples; bits is base64 of a bit for each, the
         highest of a byte first, 1 where the answer is right; tests of one `examples` are paired
run      machine, software, code and time. contention is the share of the machine that other work
         took; a timed case above {CONTENDED} is left out
status   ok, failed or skipped, and error why

Fractions have four digits. effects.csv has the effects of claims, unit by unit: models in the
order of their seeds; of a ratio, the logarithm too.
"""


def _archive(records: Sequence[Record]) -> bytes:
    """A ZIP of records, a line of JSON each, with fractions to four digits, as pages print three,
    and of a text on their fields.

    The same records are the same bytes.
    """
    lines: dict[str, None] = {}
    for record in records:
        values = json.loads(encode(record), parse_float=lambda text: float(f"{float(text):.4g}"))
        lines[json.dumps({"key": record.case.key, **values}, **DENSE)] = None
    texts = {"cases.jsonl": "\n".join([*lines, ""]), "fields.txt": FIELDS}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, text in texts.items():
            file.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _remove_stale(docs: Path, written: set[Path]) -> None:
    """Remove pages, figures and records of an earlier rendering that were not written by this one.

    A folder that is a link is left alone. Directly in `docs/`, where pages written by hand lie,
    only those are removed whose front matter says whose evidence they show.
    """
    for folder in (docs / "labs", docs / "figures", docs / "records"):
        for path in () if folder.is_symlink() else folder.rglob("*"):
            if path.is_file() and path not in written:
                path.unlink()
    for page in set(docs.glob("*.md")) - written:
        if page.is_file() and EVIDENCE.match(page.read_text("utf-8", errors="replace")):
            page.unlink()


def _render_page(calls: PageCalls) -> str:
    """The Markdown of an experiment's page.

    Raises:
        MadlError: its template is missing, wrong, or has a number in its prose.
    """
    name = calls.template
    template = templates.load(calls.project, name, "write one")
    text = read_text(calls.project.experiments / name, "save it as UTF-8 text")
    if not re.search(r"{%-?\s*extends\b", text):
        raise MadlError(
            f'template {name} has the shape of no page; begin it with {{% extends "page.md.j2" %}}'
        )
    if numbers := prose.typed_numbers(text):
        raise MadlError(
            f"template {name} has the number {numbers[0]!r} in its prose; give it a name in "
            "page.py, page.numbers(…), and print that"
        )
    return templates.render(template, calls.variables())


def _site_names(
    plan: RunPlan, shown: Mapping[str, PageCalls], paths: Mapping[str, bool], state: Ledger
) -> dict[str, Any]:
    """The functions and values that the templates of ledger, home and reported may use, by name.

    `paths` says of every page's path whether the page was rendered.
    """
    place = {question.stem: i for i, question in enumerate(plan.project.questions)}
    rendered = [calls.page for calls in shown.values()]
    with_results = [page for page in rendered if page.questions and page.view.own]
    answered = sorted(with_results, key=lambda page: place[page.name])  # as the coursework asks
    latest = max((page.view.date for page in answered), default="")
    machines = [page.view.machine for page in answered] or [NOT_RUN]
    beyond = sum(question.beyond for question in plan.project.questions)
    return {
        "picture": _picture(page) if (page := home.clearest(answered)) else "",
        "lab_questions": len(state.rows) - beyond,
        "beyond": beyond,
        "answered": f"{state.count('answered')} of {len(state.rows)}",
        "partly": state.count("partly"),
        "machine": inline(_tallied(machines)),
        "date": inline(latest) or "never",
        "cards": functools.partial(home.cards, state.rows, shown),
        "notebooks": functools.partial(home.notebook_links, plan.project),
        "ledger_table": functools.partial(_ledger_table, state, shown),
        "totals": functools.partial(_totals, state, rendered),
        "registered": functools.partial(_registration, state, answered),
        "replication_table": lambda: (
            tables.markdown(rows) if (rows := replication.rows(answered)) else ""
        ),
        "linked": functools.partial(_link_or_text, plan.project.docs, paths),
    }


def _picture(page: Page) -> str:
    """The path of a page's picture, below `docs/`."""
    return f"{page.folder}{share.path(page.name)}"


def _link_or_text(docs: Path, paths: Mapping[str, bool], path: str, text: str) -> str:
    """A link to a page below `docs/`; the text alone if the page is not there."""
    return f"[{text}]({path})" if paths.get(path, (docs / path).is_file()) else text


def _tallied(texts: Sequence[str]) -> str:
    """The text that all pages share, or how many have which: "3 pages: A; 1 page: B"."""
    counts = Counter(texts)
    if len(counts) == 1:
        return texts[0]
    return "; ".join(f"{pluralize(count, 'page')}: {text}" for text, count in counts.most_common())


def _totals(state: Ledger, rendered: Sequence[Page]) -> Markup:
    """An HTML list of totals: questions answered, claims by verdict, claims that all runs decide
    alike, and cases run again.
    """
    counts = Counter(claim["verdict"] for row in state.rows for claim in row["claims"])
    claims = replication.replicated(rendered)
    alike = [replication.agreement(own, others) == replication.ALIKE for _, own, others in claims]
    again = [page.again for page in rendered if page.again]
    run, cases = sum(part.run for part in again), sum(part.cases for part in again)
    totals = [
        (f"{state.count('answered')} of {len(state.rows)}", "questions answered"),
        *((str(counts[verdict]), verdict) for verdict in prose.MARKS),
        (f"{sum(alike)} of {len(alike)}", "claims decided alike in every run"),
    ]
    if run:
        totals.append((f"{run:,} of {cases:,}", "cases run again here"))
    items = (html("<li><b>{}</b> {}</li>", count, noun) for count, noun in totals)
    return html('<ul class="totals">{}</ul>\n', Markup().join(items))


def _registration(state: Ledger, pages: Sequence[Page]) -> str:
    """Sentences: how many claims were registered before their runs, what that means, and how many
    verdicts stay if all pages' claims are one family.
    """
    claims = [claim for row in state.rows for claim in row["claims"]]
    counts = Counter(claim["state"] for claim in claims)
    return (
        f"Of {pluralize(len(claims), 'claim')} {counts['registered']} were registered before their "
        f"runs, {counts['known']} worded after an earlier run of the same cases, "
        f"{counts['worded after']} after their own. A page's claims are one family: a page "
        f"of registered ones holds a wrong verdict with a chance of at most {100 * ALPHA:g} %."
        + _over_all(pages)
        + _predicted(pages)
    )


def _predicted(pages: Sequence[Page]) -> str:
    """A sentence: how many processes lie in the interval that the others of their claim predict."""
    held, count = replication.predicted(pages)
    if not count:
        return ""
    return (
        f" Of {count} timed processes, {held} lie in the {100 * LEVEL:g} % interval that the "
        "others of their claim predict."
    )


def _over_all(pages: Sequence[Page]) -> str:
    """A sentence: how many verdicts stay by Holm's method over the claims of all pages; "" of one
    claim.
    """
    results = {
        (page.questions[0].id if page.questions else page.name, result.hypothesis): result
        for page in pages
        for result in page.view.measured.values()
    }
    if len(results) < 2:
        return ""
    p_values = {key: result.p for key, result in results.items() if result.p is not None}
    kept = {key for key, p in holm(p_values).items() if p <= ALPHA}
    decided = {key for key, result in results.items() if result.decided in replication.DECIDED}
    lost = [f"{id} “{hypothesis}”" for id, hypothesis in decided if (id, hypothesis) not in kept]
    falls = f"; not {' nor '.join(sorted(lost))}" if lost else ""
    return (
        f" If all {len(results)} measured claims are one family, {len(kept)} of {len(decided)} "
        f"stay decided{falls}."
    )


def _ledger_table(state: Ledger, shown: Mapping[str, PageCalls]) -> str:
    """A Markdown table of all questions: answer, verdicts, replications; cases run again, if any
    were.
    """
    again = {stem: calls.page.again for stem, calls in shown.items() if calls.page.again}
    is_again = any(part.run for part in again.values())
    heads = ["Question", "Answer", "Verdicts", "Other runs", *["Run again here"] * is_again]
    lines = [
        '<div class="ledger sortable" markdown data-search-exclude>\n',
        "| " + " | ".join(heads) + " |",
        "| :-- " * len(heads) + "|",
    ]
    for row in state.rows:
        title = inline(f"{row['id']} {row['title']}")
        link = f"[{title}]({row['page']})" if row["page"] else title
        run = "; ".join(map(inline, home.run_of_asked(row)))
        asks = f"{link}<br>{chip(row['status'])} <small>{run}</small>"
        calls = shown.get(row["stem"])
        verdicts = "<br>".join(
            chip(verdict, f"{row['verdicts'][verdict]}\u00a0{verdict}")
            for verdict in prose.MARKS
            if verdict in row["verdicts"]
        )
        alike = replication.summary(calls.page) if calls and verdicts else ""
        cells = [asks, home.answer(row, calls), verdicts or "no claim", alike]
        if is_again:
            part = again.get(row["stem"])
            cells.append(f"{part.run} of {part.cases} cases" if part and part.run else "no")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n</div>\n"
