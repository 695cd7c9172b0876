"""Pages: made from records alone, the same bytes every time, honest about what is missing."""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from madl.errors import MadlError
from madl.logbook import records as results
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store
from madl.logbook.stats import Estimate, Interval, Unit
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.site import report
from madl.site.page import markdown_table
from madl.site.views import pages
from tests.conftest import TEMPLATE, a_record, a_run, write

GOLDEN = Path(__file__).parent / "data"


def fill(plan, count=4, **run) -> Store:
    store = Store(plan.project.state)
    for case in plan.cases("toy")[:count]:
        x = case.params["x"]
        store.put(a_record(x, case=case, run=a_run(**run)))
    return store


def page(plan) -> str:
    return (plan.project.docs / "labs" / "toy.md").read_text()


def words(plan, name: str = "labs/toy.md") -> str:
    """A page without its tags."""
    return BeautifulSoup((plan.project.docs / name).read_text(), "html.parser").get_text()


def with_in_why(plan, more: str) -> None:
    """Give the toy's page more to show."""
    template = plan.project.experiments / "toy" / "page.md.j2"
    template.write_text(TEMPLATE.replace("They are products.", more))


def snapshot(docs: Path) -> dict[str, bytes]:
    return {str(p.relative_to(docs)): p.read_bytes() for p in docs.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["labs/toy.md", "ledger.md", "index.md"])
def test_pages_are_the_golden_ones(plan, name):
    report.write(plan, fill(plan))
    golden = GOLDEN / f"golden_{Path(name).stem}.md"
    text = (plan.project.docs / name).read_text()
    text = re.sub(r"<svg class=\"(wide|narrow|thumb)\".*?</svg>", r"<svg \1…>", text)
    assert text == golden.read_text()  # but for the drawing, whose own tests are in test_svg.py


def packed(path) -> list[dict]:
    with zipfile.ZipFile(path) as file:
        return [json.loads(line) for line in file.read("cases.jsonl").splitlines()]


def test_the_copy_of_a_record_is_whole_and_the_same_bytes_again(tmp_path):
    records = [a_record(1), replace(a_record(2), values={"of": [{"a": 1.23456}, {"b": [1, 2]}]})]
    made = report._packed(records)
    assert made == report._packed(records)
    (tmp_path / "cases.zip").write_bytes(made)
    first, second = packed(tmp_path / "cases.zip")
    assert first["case"]["params"] == records[0].case.params
    assert second["values"] == {"of": [{"a": 1.235}, {"b": [1, 2]}]}


def test_beside_a_page_lie_what_its_numbers_are_made_of_and_no_other_records(plan):
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("    many=lambda r: len(r.all()),\n", ""))
    with_in_why(plan, "")
    template = plan.project.experiments / "toy" / "page.md.j2"
    template.write_text(template.read_text().replace("{{ many }}", "many"))
    report.write(plan, fill(plan))
    linked = set(re.findall(r'href="(records/[^"]+\.json)"', page(plan)))
    folder = plan.project.docs / "labs"
    assert linked == {"records/toy/one.json", "records/toy/grows.json"}
    keys = {key for one in linked for key in json.loads((folder / one).read_text())["records"]}
    assert keys == {plan.cases("toy")[1].key}
    (record,) = packed(folder / "records/toy/cases.zip")
    assert record["case"]["experiment"] == "toy"
    lying = {str(p.relative_to(folder)) for p in folder.rglob("records/*/*.*")}
    assert lying == {*linked, "records/toy/cases.zip"}


def test_in_a_table_a_number_and_its_unit_stay_on_one_line_and_differences_have_signs():
    difference = Estimate(0.012, Interval(-0.004, 0.028), Unit.POINTS, 1000)
    table = markdown_table([{"a": "1024 → 4096", "b": "5.44 ms [4.40, 6.74]", "c": difference}])
    cells = table.splitlines()[-1].replace("&#91;", "[").replace("&#93;", "]").strip("| ")
    assert cells.split(" | ") == [
        "1024\u00a0→\u00a04096",
        "5.44\u00a0ms [4.40, 6.74]",
        "+1.2\u00a0points [−0.4, +2.8]",
    ]


def test_rendering_twice_gives_the_same_bytes(plan):
    store = fill(plan)
    report.write(plan, store)
    first = snapshot(plan.project.docs)
    report.write(plan, store)
    assert snapshot(plan.project.docs) == first


def test_figures_are_the_same_bytes_when_drawn_anew(plan):
    store = fill(plan)
    report.write(plan, store)
    first = snapshot(plan.project.docs)
    for path in (plan.project.docs / "labs" / "figures").rglob("*"):
        if path.is_file():
            path.unlink()
    report.write(plan, store)
    assert snapshot(plan.project.docs) == first
    assert "labs/figures/toy/squares.csv" in first


def test_a_page_says_what_is_pending_and_how_to_get_it(plan):
    state = report.write(plan, fill(plan, count=1))
    assert "Not measured here yet: One squared is more than a half." in words(plan)
    assert "1 of 4 cases" in words(plan)
    assert "<code>python cli.py run toy --profile full</code>" in page(plan)
    assert state.rows[0]["status"] == "partly"


def test_a_question_is_answered_only_by_complete_records(plan):
    assert report.write(plan, Store(plan.project.state)).rows[0]["status"] == "open"
    assert report.write(plan, fill(plan, 2)).rows[0]["status"] == "partly"
    state = report.write(plan, fill(plan, 4))
    assert [row["status"] for row in state.rows] == ["answered", "open"]
    twin = json.loads((plan.project.docs / "ledger.json").read_text())
    assert twin["questions"] == state.rows


def test_the_ledger_and_its_twin_say_the_same_of_what_is_not_measured(plan):
    waits = "0 of 4 cases. To complete it: `python cli.py run toy --profile full`"
    unmeasured = "Not measured here yet: One squared is more than a half."
    for count, said in ((0, waits), (1, unmeasured)):
        state = report.write(plan, fill(plan, count))
        assert state.rows[0]["answer"] == said
        for name in ("ledger.md", "index.md"):
            assert said.replace("`", "") in words(plan, name)
    (claim,) = state.rows[0]["claims"]
    assert (claim["verdict"], claim["finding"]) == ("not measured", "1 of 4 cases")


def test_only_claims_registered_beforehand_are_promised_an_error_rate(plan):
    for registered, pages_wrong in (({}, "0.0"), (None, "0.1")):
        claims = plan.project.load("toy").claims
        made = registered if registered is not None else {n: c.digest for n, c in claims.items()}
        report.write(plan, fill(plan, claims=made))
        text = (plan.project.docs / "ledger.md").read_text()
        assert f"of the registered ones, at most {pages_wrong} pages" in text
        assert f"Of 1 claim {int(bool(made))} were registered before their runs" in text
        assert f"{1 - bool(made)} after." in text


def test_a_smoke_run_answers_nothing_and_says_so(toy):
    plan = StoredPlan(toy, Store(toy.state), PROFILES["smoke"], {})
    state = report.write(plan, fill(plan))
    assert state.rows[0]["status"] == "partly"
    assert "its numbers mean nothing" in page(plan)


def test_a_stale_record_is_not_shown(plan):
    store = fill(plan)
    stale = a_record(99, values={"square": 424242})
    store.put(stale)
    report.write(plan, store)
    assert "424242" not in page(plan)


def test_a_note_is_included_and_never_touched(plan):
    note = plan.project.docs / "notes" / "9.1.md"
    note.write_text("My *own* words, `<b>code</b>` and `{{ braces }}`.\n")
    report.write(plan, fill(plan))
    text = page(plan)
    assert "<p>My <em>own</em> words, <code>&lt;b&gt;code&lt;/b&gt;</code> and " in text
    assert "<code>{{ braces }}</code>" in text
    assert note.read_text().startswith("My *own* words")


NOTES = {  # what a note holds → what the page shows of it
    "an escaped backtick": ("\\`<script>alert(1)</script>`", "<p>`"),
    "a script": ("a <script>alert(1)</script>b", "<p>a b</p>"),
    "a link": ("[x](JavaScript:alert(1))", '<a rel="noopener noreferrer">x</a>'),
    "entities": ("[x](java&#115;cript:alert&#40;1&#41;)", '<a rel="noopener noreferrer">x</a>'),
    "another scheme": ("[x](vbscript:x)", '<a rel="noopener noreferrer">x</a>'),
    "attributes": ("x\n{: onclick=alert(1) }", "{: onclick=alert(1) }</p>"),
    "svg": ("<svg:a://x onload=alert(1)>y", "<p>y"),
    "a picture": ("![x](//else.where/x.png)", '<img alt="x">'),
    "a style": ('<p style="position:fixed" class="chip" id="claim-x">y</p>', "<p>y</p>"),
    "open tags": ("</div></section><h1>y</h1>", "<h3>y</h3>"),
    "markdown in html": ('<div markdown="1">*y*</div>', "*y*"),
    "front matter": ("---\ntitle: y\n---\n\n# y {#claim-grows}", "<h3>y {#claim-grows}</h3>"),
    "a template": ("{{ 7 * 7 }} {% x %}", "{{ 7 * 7 }} {% x %}"),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_a_note_brings_is_structure_and_nothing_more(plan, name):
    report.write(plan, fill(plan))
    before = page(plan)
    text, shown = NOTES[name]
    (plan.project.docs / "notes" / "9.1.md").write_text(f"Fine.\n\n{text}\n")
    report.write(plan, fill(plan))
    rest, _, note = page(plan).partition("## Notes\n\n")
    assert rest.strip() == before.strip()
    assert note.strip().count("\n") == 0, "on one line, in which Markdown sees nothing"
    assert shown in note
    assert not re.search(r"<script|<[^>]*\son\w+=|javascript:|vbscript:|<svg", note, re.IGNORECASE)


def broken_notes(folder: Path) -> dict[str, tuple[Callable[[Path], object], str]]:
    (folder / "secret").write_text("secret")
    return {
        "a link": (lambda note: note.symlink_to(folder / "secret"), "not a regular file of"),
        "a folder": (lambda note: note.mkdir(), "not a regular file of"),
        "a pipe": (os.mkfifo, "not a regular file of"),
        "bytes": (lambda note: note.write_bytes(b"a\xff"), "byte 1 is not UTF-8"),
        "a book": (lambda note: note.write_text("a" * 2**19), "more than 256 KB"),
    }


@pytest.mark.parametrize("name", ["a link", "a folder", "a pipe", "bytes", "a book"])
def test_a_note_that_is_no_text_costs_itself_and_is_named(plan, name, tmp_path):
    store = fill(plan)
    report.write(plan, store)
    before = snapshot(plan.project.docs)
    make, message = broken_notes(tmp_path)[name]
    make(plan.project.docs / "notes" / "9.1.md")
    (problem,) = report.write(plan, store).problems
    assert "docs/notes/9.1.md " in problem
    assert message in problem
    after = snapshot(plan.project.docs)
    assert {name: text for name, text in after.items() if "notes" not in name} == before


def test_a_note_that_stands_on_no_page_is_named_with_the_names_that_do(plan):
    folder = plan.project.docs / "notes"
    for name in ("9.1.md", "9,1.md", "9.2.md", ".hidden.md", "draft"):
        (folder / name).write_text("My words.\n")
    said = report.write(plan, fill(plan)).problems
    assert [problem.partition(" ")[0] for problem in said] == [
        "docs/notes/9,1.md",
        "docs/notes/9.2.md",
    ]
    assert all(problem.endswith("is named after its question: 9.1.md") for problem in said)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('{{ figure("nope") }}', "unknown figure 'nope'; known: squares"),
        ('{{ table("nope") }}', "unknown table 'nope'; known: squares, roots"),
        ('{{ param("nope") }}', "unknown parameter 'nope'"),
        ("{{ nope }}", "'nope' is undefined"),
        ("{% if %}", "Expected an expression"),
        ("It gains 3.1 points.", "has the number '3.1' in its prose"),
        ('{{ code("nowhere.py", "f") }}', "no source file nowhere.py to show"),
        (
            '{{ code("experiments/toy/page.py", "f") }}',
            "has no function, class or marker [f] to show",
        ),
    ],
)
def test_a_template_that_names_what_is_not_there_costs_its_page_and_is_named(plan, call, message):
    with_a_sibling_page(plan)
    report.write(plan, fill(plan))
    with_in_why(plan, call)
    state = report.write(plan, fill(plan))
    (problem,) = state.problems
    assert message in problem
    assert "toy/page.md.j2" in problem
    docs = plan.project.docs
    assert not list((docs / "labs").rglob("*.*"))
    assert (docs / "other.md").is_file()
    assert state.rows[0]["page"] is None
    for name in ("ledger.md", "index.md"):
        assert "9.1 Squares" in words(plan, name)
        assert "labs/toy.md" not in (docs / name).read_text()


def test_a_home_page_that_cannot_be_rendered_costs_itself(plan):
    report.write(plan, fill(plan))
    (plan.project.templates / "index.md.j2").write_text("{{ nope }}")
    (problem,) = report.write(plan, fill(plan)).problems
    assert "index.md.j2: 'nope' is undefined" in problem
    assert not (plan.project.docs / "index.md").exists()
    assert "One squared is 1" in words(plan, "ledger.md")
    assert "One squared is 1" in words(plan)


def test_changes_are_kept_until_something_else_changes(plan):
    store = fill(plan)
    report.write(plan, store)
    for _ in range(2):
        for record in plan.records("toy"):
            if record.case.params["x"] == 1:
                store.put(results.Record(**{**fields(record), "values": {"square": 5}}))
        report.write(plan, store)
        assert re.search(r"toy.grows: \+4.52.bits .* Before: \+0.52.bits", words(plan, "ledger.md"))


def fields(record) -> dict:
    return {name: getattr(record, name) for name in record.__slots__}


def test_published_evidence_stands_in_where_this_machine_has_none(plan):
    fill(plan, host="far away")
    results.publish(plan.records("toy"), plan.project.docs / "data" / "toy.jsonl")
    for path in (plan.project.state / "records").rglob("*.json"):
        path.unlink()
    state = report.write(plan, Store(plan.project.state))
    assert state.rows[0]["status"] == "answered"
    assert "Measured on far away" in page(plan)
    assert 'evidence: "published"' in page(plan)


def test_without_results_here_all_pages_speak_of_the_machine_with_most_evidence(plan):
    data = plan.project.docs / "data"
    for host, started in (("rich", "2026-01-02"), ("recent", "2026-02-02")):
        fill(plan, host=host, started=f"{started}T00:00:00+00:00")
        results.publish(plan.records("toy"), data / "toy.jsonl")
    other = replace(next(iter(plan.cases("toy"))), experiment="another")
    results.publish([a_record(1, case=other, run=a_run(host="rich"))], data / "another.jsonl")
    (of_toy,) = pages(replace(plan, store=Store(plan.project.state / "none")))
    assert of_toy.view.machine == "rich"
    (data / "another.jsonl").unlink()
    (of_toy,) = pages(replace(plan, store=Store(plan.project.state / "none")))
    assert of_toy.view.machine == "recent"


def test_other_machines_stand_beside_this_one(plan):
    fill(plan, host="far away")
    results.publish(plan.records("toy"), plan.project.docs / "data" / "toy.jsonl")
    report.write(plan, fill(plan, host="here"))
    text = page(plan)
    assert "| Machine | here; device cpu |" in text
    assert "| here | far away |" in text
    assert "| alike | supported, " in text


def test_a_part_of_another_machine_s_run_does_not_stand_beside(plan):
    fill(plan, host="far away")
    some = results.Records(list(plan.records("toy"))[:3])
    results.publish(some, plan.project.docs / "data" / "toy.jsonl")
    report.write(plan, fill(plan, host="here"))
    assert "## Elsewhere" not in page(plan)


def test_other_data_stand_beside_and_say_what_replicates(plan):
    toy = plan.project
    experiment = toy.experiments / "toy" / "page.py"
    text = experiment.read_text().replace('"seed": 0}', '"seed": 0, **plan.workload}')
    experiment.write_text(text)
    found, workload = {}, {"model": "a model", "dataset": "ours"}
    for dataset, squares in (("ours", 1), ("theirs", 0)):
        one = StoredPlan(
            Project(toy.root), plan.store, PROFILES["full"], workload | {"dataset": dataset}
        )
        cases = one.cases("toy")
        found[dataset] = [a_record(squares * c.params["x"], case=c) for c in cases]
    results.publish([*found["ours"], *found["theirs"]], toy.docs / "data" / "toy.jsonl")
    here = StoredPlan(Project(toy.root), plan.store, PROFILES["quick"], workload)
    report.write(here, Store(toy.state))
    text = page(plan)
    assert "profile full" in text
    ledger = (toy.docs / "ledger.md").read_text()
    for one in (ledger, text.partition("## Elsewhere")[2]):
        assert re.search(
            r"One squared is more than a half \| reversed \| supported, .* \| refuted, ", one
        )
        assert re.search(r"theirs, a machine \|$", one, re.MULTILINE)


def test_what_this_machine_cannot_run_is_borrowed_and_named(plan):
    fill(plan, host="far away")
    results.publish(plan.records("toy"), plan.project.docs / "data" / "toy.jsonl")
    store = fill(plan, host="here")
    case = plan.cases("toy")[1]
    store.put(a_record(1, case=case, status="skipped", values={}, error="no such tool"))
    state = report.write(plan, store)
    assert state.rows[0]["status"] == "answered"
    assert "One squared is 1" in words(plan)
    assert "| Elsewhere | far away, 2026-01-02: what this machine cannot run |" in page(plan)
    assert "3 of 4 cases, 1 not for this machine" in page(plan)


def test_what_nobody_has_run_is_not_run_here_and_leaves_the_question_open(plan):
    store = fill(plan)
    case = plan.cases("toy")[1]
    store.put(a_record(1, case=case, status="skipped", values={}, error="no such tool"))
    state = report.write(plan, store)
    assert state.rows[0]["status"] == "partly"
    assert '<p class="pending">Not run here: no such tool.</p>' in page(plan)
    assert "Not measured here yet: One squared is more than a half." in words(plan)


def test_pages_of_experiments_that_are_gone_are_removed(plan):
    store = fill(plan)
    report.write(plan, store)
    (plan.project.docs / "labs" / "gone.md").write_text("old")
    report.write(plan, store)
    assert not (plan.project.docs / "labs" / "gone.md").exists()


@pytest.fixture
def unasked(plan) -> Path:
    """The page of an experiment that no question asks for, which lies beside those of hand."""
    source = (plan.project.experiments / "toy" / "page.py").read_text()
    for name in ("plain", "other"):
        write(plan.project.experiments / f"{name}" / "page.py", source)
        write(plan.project.experiments / f"{name}" / "page.md.j2", "Plain.\n")
    (plan.project.docs / "usage.md").write_text("Written by hand.\n")
    report.write(plan, Store(plan.project.state))
    (plan.project.docs / "other.md").write_text("Written in.\n")
    return plan.project.docs / "plain.md"


def test_a_page_that_no_question_asks_for_goes_with_its_experiment(unasked, plan):
    assert unasked.is_file()
    for name in ("plain", "other"):
        (plan.project.experiments / f"{name}" / "page.py").unlink()
    report.write(replace(plan, project=Project(plan.project.root)), Store(plan.project.state))
    assert {path.name for path in plan.project.docs.glob("*.md")} == {
        *("index.md", "ledger.md", "usage.md", "other.md")
    }


def test_a_page_that_a_question_asks_for_is_no_longer_where_it_was(unasked, plan):
    questions = plan.project.experiments / "questions.toml"
    questions.write_text(questions.read_text().replace('"nothing"', '"plain"'))
    report.write(replace(plan, project=Project(plan.project.root)), Store(plan.project.state))
    assert not unasked.exists()
    assert (plan.project.docs / "labs" / "plain.md").is_file()


BOXES = """

from madl.logbook.drawing import Panel


def panels(rows):
    return [
        Panel(title="All of it", svg="<svg></svg>", folded=False),
        Panel(title=f"a < {len(rows)}", svg="<svg><g/></svg>"),
    ]


@page.drawing(panels=panels, alt=lambda rows: "two boxes")
def boxes(r):
    return [{"x": x, "square": r.one(x=x).values["square"]} for x in (0, 1)]


@page.output
def said(r):
    return f"x is {r.one(x=3).values['square']} {{{{ }}}}"
"""


def with_a_drawing(plan) -> None:
    """Give the toy's page a drawing of two panels and a captured text."""
    source = plan.project.experiments / "toy" / "page.py"
    text = source.read_text()
    source.write_text(text + BOXES)
    with_in_why(plan, '\n{{ figure("boxes") }}\n{{ output("said") }}\n')


def test_a_drawing_is_svg_in_the_page_folded_where_it_says_so(plan):
    with_a_drawing(plan)
    report.write(plan, fill(plan))
    text = page(plan)
    assert '<div class="panel"><p>All of it</p><svg></svg></div>' in text
    assert "<details><summary>a &lt; 2</summary>" in text
    assert 'aria-label="two boxes"' in text
    figures = plan.project.docs / "labs" / "figures" / "toy"
    assert (figures / "boxes.csv").read_text() == "x,square\n0,0\n1,1\n"
    assert not list(figures.glob("boxes*.svg"))


def test_the_home_page_shows_the_first_plot_not_a_drawing(plan):
    with_a_drawing(plan)
    report.write(plan, fill(plan))
    home = (plan.project.docs / "index.md").read_text()
    assert home.count('<div class="thumb chart"><svg class="thumb"') == 2  # opening, card
    assert 'class="drawing"' not in home


def test_a_captured_text_is_shown_as_it_was_and_pending_until_it_is_there(plan):
    with_a_drawing(plan)
    report.write(plan, fill(plan, count=3))
    assert "x is" not in page(plan)
    assert "3 of 4 cases" in page(plan)
    report.write(plan, fill(plan))
    assert "``` { .text .captured }\nx is 9 {{ }}\n```" in page(plan).replace("```{", "``` {")


def test_a_page_whose_captured_text_is_missing_is_not_answered(plan):
    with_a_drawing(plan)
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("r.one(x=3)", "r.one(x=9)"))
    state = report.write(plan, fill(plan))
    assert state.rows[0]["status"] == "partly"


REPORTED = """
[toy]
source = "two <other> toys"
workload = "cubes"
rows = [{ x = 2, cube = "8 to 9" }, { x = 3, cube = "27" }]
"""


def with_reported(plan, text: str) -> None:
    """Give the toy's page what others reported."""
    (plan.project.experiments / "reported.toml").write_text(text)
    with_in_why(plan, "{{ reported() }}")


def test_what_others_reported_stands_with_its_source_and_decides_nothing(plan):
    with_reported(plan, REPORTED)
    report.write(plan, fill(plan))
    text = page(plan)
    assert "| x | cube |\n| --: | :-- |\n| 2 | 8 to 9 |\n| 3 | 27 |\n\n<p" in text
    assert (
        '<p class="facts">Source: two &lt;other&gt; toys; workload: cubes; '
        "nothing on this page is decided by them.</p>"
    ) in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no table [toy]; known: none"),
        ("[toy", "experiments/reported.toml is not TOML"),
        ("toy = 3", "reported.toml, toy: a table has source and workload"),
        (REPORTED.replace("[toy]", "[tyo]"), "tyo: a table has"),
        (REPORTED.replace("source =", "sauce ="), "'sauce'"),
        (REPORTED.replace('"cubes"', "3"), "workload is 3, not a text"),
        (REPORTED.replace('"two <other> toys"', '" "'), "source is ' ', not a text"),
        (REPORTED.replace("rows =", "cells ="), "'rows'"),
        (re.sub("rows = .*", "rows = []", REPORTED), "there are no rows"),
        (re.sub("rows = .*", "rows = [3]", REPORTED), "3 is not a row"),
        (REPORTED.replace("x = 2", "x = true"), "'x' is True, neither a text nor a number"),
        (REPORTED.replace("x = 2", "x = [2]"), "'x' is [2], neither a text nor a number"),
    ],
)
def test_reported_figures_that_are_missing_or_malformed_are_one_clear_line(plan, text, message):
    with_reported(plan, text)
    (problem,) = report.write(plan, fill(plan)).problems
    assert message in problem


def test_a_page_without_reported_figures_needs_no_file_of_them(plan):
    assert dict(plan.project.reported) == {}


def test_each_reported_figure_is_shown_once_on_its_page():
    project = Project()
    shown = [
        path.parent.name
        for path in project.experiments.glob("*/page.md.j2")
        for _ in re.findall(r"\{\{ reported\(\) \}\}", path.read_text())
    ]
    assert sorted(shown) == sorted(project.reported)


# ---- what cannot be used ------------------------------------------------------------------------


def swap(one: Path, two: Path) -> None:
    one.write_bytes(two.read_bytes())


def edit(path: Path, **values) -> None:
    """Give a record other values; None takes one away."""
    data = json.loads(path.read_text())
    data["values"] = {k: v for k, v in (data["values"] | values).items() if v != "gone"}
    path.write_text(json.dumps(data))


BROKEN = {  # what is done to a record (and with a sibling's), and what is said
    "truncated": (lambda one, _: one.write_text(one.read_text()[:50]), "is not a whole record"),
    "empty": (lambda one, _: one.write_text(""), "is not a whole record"),
    "bytes": (lambda one, _: one.write_bytes(b"\xff"), "byte 0 is not UTF-8"),
    "deep": (lambda one, _: one.write_text("[" * 100_000), "is not a whole record"),
    "a folder": (lambda one, _: (one.unlink(), one.mkdir()), "cannot be read (is a directory)"),
    "swapped": (swap, "is the record of another case"),
    "nothing": (lambda one, _: edit(one, square="gone"), "there is no value square"),
    "null": (lambda one, _: edit(one, accuracy=None), "accuracy is None, not a share"),
    "a text": (lambda one, _: edit(one, accuracy="high"), "accuracy is 'high', not a share"),
    "not a number": (lambda one, _: edit(one, loss=float("nan")), "loss is nan"),
    "a list": (lambda one, _: edit(one, outcomes=[1]), "outcomes is [1], not the outcomes"),
}


def with_a_sibling_page(plan) -> None:
    """A second page, which has nothing to do with the first one's records."""
    text = (plan.project.experiments / "toy" / "page.py").read_text()
    write(plan.project.experiments / "other" / "page.py", text)
    write(plan.project.experiments / "other" / "page.md.j2", TEMPLATE)


@pytest.mark.parametrize("how", BROKEN)
def test_a_bad_record_costs_its_row_and_is_named(plan, how):
    with_a_sibling_page(plan)
    store = fill(plan)
    for case in plan.cases("other"):
        store.put(a_record(case.params["x"], case=case))
    break_it, message = BROKEN[how]
    one, two = (store._path(case) for case in plan.cases("toy")[:2])
    break_it(one, two)
    state = report.write(plan, store)
    (problem,) = state.problems
    assert str(one) in problem
    assert message in problem
    assert problem.endswith("delete it and its case will run again")
    assert "3 of 4 cases" in page(plan)
    assert "There are 4 squares" in words(plan, "other.md")
    assert state.rows[0]["status"] == "partly"


@pytest.mark.parametrize("how", [how for how in BROKEN if how not in ("a folder", "swapped")])
def test_a_bad_line_of_published_evidence_costs_its_row_and_is_named(plan, how):
    store, path = fill(plan, host="far away"), plan.project.docs / "data" / "toy.jsonl"
    results.publish([store.get(case) for case in plan.cases("toy")], path)
    shutil.rmtree(store.root / "records")
    lines = path.read_bytes().splitlines()
    place = next(i for i, line in enumerate(lines) if b'"x":0' in line)
    one = path.with_name("one")
    one.write_bytes(lines[place])
    BROKEN[how][0](one, one)
    lines[place] = one.read_bytes()
    path.write_bytes(b"\n".join(lines))
    one.unlink()
    (problem,) = report.write(plan, store).problems
    assert problem.startswith(f"{path}:{place + 1} ")
    assert problem.endswith("remove the line, or publish the results again")
    assert "3 of 4 cases" in page(plan)


def test_what_no_record_has_is_the_experiment_s_fault_and_said_once(plan):
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(
        source.read_text().replace('one.values["square"] - ', 'one.values["cube"] - ')
    )
    state = report.write(plan, fill(plan))
    (problem,) = state.problems
    assert "claim grows of toy: " in problem
    assert "there is no value cube" in problem
    assert "; correct experiments/toy/page.py, or, if it should be there, delete it" in problem
    assert "4 of 4 cases" in page(plan)
    assert "it could not be computed" in words(plan)
    with pytest.raises(MadlError, match="claim grows of toy: there is no value cube"):
        pages(plan)[0].view.results  # noqa: B018 (where nobody is told, it is raised)


@pytest.mark.parametrize(
    ("what", "old", "new", "said"),
    [
        ("claim grows", "one = r.one(x=1)", "one = r.one(x=1)\n    one.no", "AttributeError"),
        ("many", "r: len(r.all())", "r: {}['x']", "KeyError: 'x' (experiments/toy"),
        ("squares", "rows = [", "1 / 0\n    rows = [", "ZeroDivisionError: division by zero (exp"),
    ],
)
def test_what_cannot_be_made_is_pending_and_the_rest_is_there(plan, what, old, new, said):
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace(old, new))
    state = report.write(plan, fill(plan))
    assert any(problem.startswith(f"{what} of toy: {said}") for problem in state.problems)
    assert state.rows[0]["status"] == "partly"
    assert "4 of 4 cases" in page(plan)
    assert "Not run here" not in page(plan)
    is_figure = what == "squares"
    assert is_figure == ("It could not be made; <code>cli.py report</code>" in page(plan))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff", b"[]", b'{"now": 3}', b'{"now": {"a": 1}, "before": {}}', b"[" * 99999],
)
@pytest.mark.parametrize(
    "name",
    [
        *(".madl/build/claims.json", ".madl/build/written.json"),
        *("docs/ledger.json", "docs/labs/toy.md", "docs/index.md"),
    ],
)
def test_what_a_build_left_broken_is_made_again(plan, name, text):
    store = fill(plan)
    report.write(plan, store)
    before = snapshot(plan.project.docs)
    (plan.project.root / name).write_bytes(text)
    report.write(plan, store)
    assert snapshot(plan.project.docs) == before


@pytest.mark.parametrize("cut", [0, 100, None])
def test_a_broken_figure_in_the_cache_is_drawn_again(plan, cut):
    store = fill(plan)
    report.write(plan, store)
    before = snapshot(plan.project.docs)
    for kept in (store.root / "build" / "charts").iterdir():
        data = kept.read_bytes()
        kept.write_bytes(data[:cut] if cut is not None else data.replace(b"grow", b"\xffrow"))
    report.write(plan, store)
    assert snapshot(plan.project.docs) == before


def test_what_pages_have_in_common_is_said_once_and_else_counted():
    assert report._counted(["full", "full"]) == "full"
    assert report._counted(["full", "quick", "full"]) == "2 pages: full; 1 page: quick"
