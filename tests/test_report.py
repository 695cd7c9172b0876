"""Pages: made from records alone, the same bytes every time, honest about what is missing."""

import json
import os
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

from madl.logbook import records as results
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.site import report
from tests.conftest import TEMPLATE, a_record, a_run, own, write

GOLDEN = Path(__file__).parent / "data"


def fill(plan, count=4, **run) -> Store:
    store = Store(plan.project.state)
    for case in own(plan).cases("toy")[:count]:
        x = case.params["x"]
        store.put(a_record(x, case=case, run=a_run(**run)))
    return store


def page(plan) -> str:
    return (plan.project.docs / "labs" / "toy.md").read_text()


def words(plan, name: str = "labs/toy.md") -> str:
    """A page without its tags."""
    return BeautifulSoup((plan.project.docs / name).read_text(), "html.parser").get_text()


def with_in_why(plan, more: str) -> None:
    template = plan.project.experiments / "toy" / "page.md.j2"
    template.write_text(TEMPLATE.replace("They are products.", more))


def snapshot(docs: Path) -> dict[str, bytes]:
    return {str(p.relative_to(docs)): p.read_bytes() for p in docs.rglob("*") if p.is_file()}


def test_pages_are_the_golden_ones_and_made_again_where_a_build_left_them_broken(plan):
    report.write(plan, store := fill(plan))
    for name in ("labs/toy.md", "ledger.md", "index.md"):
        golden = GOLDEN / f"golden_{Path(name).stem}.md"
        text = (plan.project.docs / name).read_text()
        text = re.sub(r"<svg class=\"(wide|narrow|thumb)\".*?</svg>", r"<svg \1…>", text)
        assert yaml.safe_load(text.split("---")[1])["description"]  # or MkDocs shows it as text
        assert text == golden.read_text()  # but for the drawing, tested in test_svg.py
    before = snapshot(plan.project.docs)
    for name, text in (("ledger.json", b"[]"), ("labs/toy.md", b"\xff"), ("index.md", b"")):
        (plan.project.docs / name).write_bytes(text)
    report.write(plan, store)
    assert snapshot(plan.project.docs) == before


def test_a_page_of_an_experiment_that_is_gone_goes_and_what_a_reader_wrote_stays(plan):
    report.write(plan, store := fill(plan))
    docs = plan.project.docs
    (docs / "gone.md").write_text('---\ntitle: "Gone"\nevidence: "published"\n---\n\n# Gone\n')
    (docs / "mine.md").write_text('# Mine\n\n```\nevidence: "published"\n```\n')
    (docs / "folder.md").mkdir()
    report.write(plan, store)
    assert not (docs / "gone.md").exists()
    assert (docs / "mine.md").is_file()
    assert (docs / "folder.md").is_dir()


def packed(path) -> list[dict]:
    with zipfile.ZipFile(path) as file:
        return [json.loads(line) for line in file.read("cases.jsonl").splitlines()]


def test_beside_a_page_lie_whole_copies_of_what_its_numbers_are_made_of_alone(tmp_path, plan):
    records = [a_record(1), replace(a_record(2), values={"of": [{"a": 1.23456}, {"b": [1, 2]}]})]
    made = report._archive(records)
    assert made == report._archive(records)
    (tmp_path / "cases.zip").write_bytes(made)
    first, second = packed(tmp_path / "cases.zip")
    assert first["case"]["params"] == records[0].case.params
    assert first["key"] == records[0].case.key
    assert second["values"] == {"of": [{"a": 1.235}, {"b": [1, 2]}]}
    source = plan.project.experiments / "toy" / "page.py"
    source.write_text(source.read_text().replace("    many=lambda r: len(r.all()),\n", ""))
    with_in_why(plan, "")
    template = plan.project.experiments / "toy" / "page.md.j2"
    template.write_text(template.read_text().replace("{{ many }}", "many"))
    report.write(plan, fill(plan))
    linked = set(re.findall(r'href="(records/[^"]+\.html)"', page(plan)))
    folder = plan.project.docs / "labs"
    assert linked == {"records/toy/one.html", "records/toy/grows.html"}
    twins = {name.replace(".html", ".json") for name in linked}
    keys = {key for one in twins for key in json.loads((folder / one).read_text())["records"]}
    assert keys == {own(plan).cases("toy")[1].key}
    evidence = (folder / "records/toy/grows.html").read_text()
    for told in ("One squared is more than a half.", *keys, "a machine", "python cli.py run toy"):
        assert told in evidence, told
    every = packed(folder / "records/toy/cases.zip")  # what is cited, and all else of its own
    assert len(every) == len(own(plan).cases("toy")) > len(keys)
    assert {record["case"]["experiment"] for record in every} == {"toy"}
    lying = {str(p.relative_to(folder)) for p in folder.rglob("records/*/*.*")}
    assert lying == {*linked, *twins, "records/toy/cases.zip", "records/toy/effects.csv"}
    effects = (folder / "records/toy/effects.csv").read_text().splitlines()
    assert effects[1] == "grows,supported,0.05,0,one-sample t,scales,1,0.5,"
    assert len(effects) == 1 + 5


def test_a_question_is_answered_only_by_complete_records_of_its_cases(plan):
    assert report.write(plan, Store(plan.project.state)).rows[0]["status"] == "open"
    assert "clearest effects" not in (plan.project.docs / "index.md").read_text()
    assert report.write(plan, fill(plan, 1)).rows[0]["status"] == "partly"
    assert "Not measured here yet: One squared is more than a half." in words(plan)
    assert "1 of 4 cases" in words(plan)
    assert "<code>python cli.py run toy --profile full</code>" in page(plan)
    store = fill(plan, 4)
    store.put(a_record(99, values={"square": 424242}))  # of a case that was planned once
    state = report.write(plan, store)
    assert [row["status"] for row in state.rows] == ["answered", "open"]
    assert "424242" not in page(plan)
    twin = json.loads((plan.project.docs / "ledger.json").read_text())
    assert twin["questions"] == state.rows


NOTES = [  # what a note holds, and what the page shows of it
    ("\\`<script>alert(1)</script>`", "<p>`"),
    ("[x](JavaScript:alert(1))", '<a rel="noopener noreferrer">x</a>'),
    ("[x](java&#115;cript:alert&#40;1&#41;)", '<a rel="noopener noreferrer">x</a>'),
    ("x\n{: onclick=alert(1) }", "{: onclick=alert(1) }</p>"),
    ("<svg:a://x onload=alert(1)>y", "<p>y"),
    ("![x](//else.where/x.png)", '<img alt="x">'),
    ('<p style="position:fixed" class="chip" id="claim-x">y</p>', "<p>y</p>"),
    ("</div></section><h1>y</h1>", "<h3>y</h3>"),
    ("{{ 7 * 7 }} {% x %}", "{{ 7 * 7 }} {% x %}"),
]


def test_what_a_note_brings_is_structure_and_nothing_more(plan):
    report.write(plan, fill(plan))
    before = page(plan)
    for text, shown in NOTES:
        (plan.project.docs / "notes" / "9.1.md").write_text(f"Fine.\n\n{text}\n")
        report.write(plan, fill(plan))
        rest, _, note = page(plan).partition("## Notes\n\n")
        assert rest.strip() == before.strip()
        assert note.strip().count("\n") == 0, "on one line, in which Markdown sees nothing"
        assert shown in note
        acts = r"<script|<[^>]*\son\w+=|javascript:|vbscript:|<svg"
        assert not re.search(acts, note, re.IGNORECASE)


def test_a_note_that_is_no_text_costs_itself_and_is_named(plan, tmp_path):
    store, note = fill(plan), plan.project.docs / "notes" / "9.1.md"
    report.write(plan, store)
    before = page(plan)
    (tmp_path / "secret").write_text("secret")
    for make, message in (
        (lambda: note.symlink_to(tmp_path / "secret"), "not a regular file of"),
        (lambda: os.mkfifo(note), "not a regular file of"),
        (lambda: note.write_bytes(b"a\xff"), "byte 1 is not UTF-8"),
        (lambda: note.write_text("a" * 2**19), "more than 256 KB"),
    ):
        make()
        (problem,) = report.write(plan, store).problems
        assert "docs/notes/9.1.md " in problem
        assert message in problem
        assert page(plan) == before
        note.unlink()


def test_what_a_machine_is_called_is_a_word(plan):
    nasty = "<script>alert(1)</script> [x](javascript:alert(1)) {{ 7 * 7 }}"
    report.write(plan, fill(plan, host=nasty, cpu=nasty, command=nasty))
    for path in (*plan.project.docs.rglob("*.md"), *plan.project.docs.rglob("*.json")):
        assert "<script>alert" not in path.read_text(), path
    assert "alert" in page(plan)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('{{ figure("nope") }}', "unknown figure 'nope'; known: squares"),
        ("{{ nope }}", "'nope' is undefined"),
        ("It gains 3.1 points.", "has the number '3.1' in its prose"),
        ("{{ one / none }}", "compute it in page.py, page.numbers(…)"),
        ('{{ code("nowhere.py", "f") }}', "no source file nowhere.py to show"),
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


def test_a_template_that_takes_its_shape_from_no_page_is_named(plan):
    template = plan.project.experiments / "toy" / "page.md.j2"
    template.write_text(template.read_text().replace('{% extends "page.md.j2" %}', ""))
    (problem,) = report.write(plan, fill(plan)).problems
    assert 'begin it with {% extends "page.md.j2" %}' in problem


def test_other_data_stand_beside_and_say_what_replicates(plan):
    toy = plan.project
    experiment = toy.experiments / "toy" / "page.py"
    text = experiment.read_text().replace('"seed": 0}', '"seed": 0, **plan.workload}')
    experiment.write_text(text)
    found, workload = {}, {"model": "a model", "dataset": "ours"}
    for dataset, squares in (("ours", 1), ("theirs", 0)):
        one = RunPlan(Project(toy.root), PROFILES["full"], workload | {"dataset": dataset})
        cases = own(one).cases("toy")
        found[dataset] = [a_record(squares * c.params["x"], case=c) for c in cases]
    results.publish([*found["ours"], *found["theirs"]], toy.docs / "data" / "toy.jsonl")
    here = RunPlan(Project(toy.root), PROFILES["quick"], workload)
    report.write(here, Store(toy.state))
    text = page(plan)
    assert "profile full" in text
    ledger = (toy.docs / "ledger.md").read_text()
    for one in (ledger, text.partition("## Elsewhere")[2]):
        row = r"is more than a half \| verdict reversed, another size \| supported, .* \| refuted, "
        assert re.search(row, one)
        assert re.search(r"theirs, a machine, earlier code \|$", one, re.MULTILINE)


def test_what_this_machine_cannot_run_is_borrowed_if_anybody_has_it_and_named(plan):
    store, case = fill(plan, host="far away"), own(plan).cases("toy")[1]
    results.publish(own(plan).records("toy"), plan.project.docs / "data" / "toy.jsonl")
    shutil.rmtree(store.root / "records")
    assert report.write(plan, store).rows[0]["status"] == "answered"
    assert "Computed on far away" in page(plan)
    assert 'evidence: "published"' in page(plan)
    fill(plan, host="here")
    store.put(a_record(1, case=case, status="skipped", values={}, error="no such tool"))
    state = report.write(plan, store)
    assert state.rows[0]["status"] == "answered"
    assert "One squared is 1" in words(plan)
    assert "| Elsewhere | far away, 2026-01-02: what this machine cannot run |" in page(plan)
    assert "3 of 4 cases, 1 not for this machine" in page(plan)
    (plan.project.docs / "data" / "toy.jsonl").unlink()
    again = RunPlan(Project(plan.project.root), plan.profile, {})
    state = report.write(again, store)
    assert state.rows[0]["status"] == "partly"
    assert '<p class="pending">Not run here: no such tool.</p>' in page(plan)
    assert "Not measured here yet: One squared is more than a half." in words(plan)


REPORTED = """
[toy]
source = "two <other> toys"
workload = "cubes"
rows = [{ x = 2, cube = "8 to 9" }, { x = 3, cube = "27" }]
"""


def with_reported(plan, text: str) -> None:
    (plan.project.experiments / "reported.toml").write_text(text)
    with_in_why(plan, "{{ reported() }}")


def test_what_others_reported_stands_with_its_source_and_is_whole_or_named_in_a_line(plan):
    with_reported(plan, REPORTED)
    report.write(plan, fill(plan))
    text = page(plan)
    assert "| x | cube |\n| --: | :-- |\n| 2 | 8 to 9 |\n| 3 | 27 |\n\n<p" in text
    assert (
        '<p class="facts">Source: two &lt;other&gt; toys; workload: cubes; '
        "nothing on this page is decided by them.</p>"
    ) in text
    for text, message in (
        ("", "has no table [toy]; known: none"),
        ("[toy", "experiments/reported.toml is not TOML"),
        (REPORTED.replace("source =", "sauce ="), "'sauce'"),
        (re.sub("rows = .*", "rows = []", REPORTED), "there are no rows"),
        (REPORTED.replace("x = 2", "x = [2]"), "'x' is [2], neither a text nor a number"),
    ):
        with_reported(plan, text)
        again = RunPlan(Project(plan.project.root), plan.profile, {})
        (problem,) = report.write(again, plan.project.store).problems
        assert message in problem


def edit(path: Path, **values) -> None:
    data = json.loads(path.read_text())
    data["values"] = {k: v for k, v in (data["values"] | values).items() if v != "gone"}
    path.write_text(json.dumps(data))


BROKEN = {  # what is done to a record (and with a sibling's), and what is said
    "truncated": (lambda one, _: one.write_text(one.read_text()[:50]), "is not a whole record"),
    "a folder": (lambda one, _: (one.unlink(), one.mkdir()), "cannot be read (is a directory)"),
    "swapped": (
        lambda one, two: one.write_bytes(two.read_bytes()),
        "is the record of another case",
    ),
    "a text": (lambda one, _: edit(one, accuracy="high"), "accuracy is 'high', not a share"),
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
    for case in own(plan).cases("other"):
        store.put(a_record(case.params["x"], case=case))
    break_it, message = BROKEN[how]
    one, two = (store._path(case) for case in own(plan).cases("toy")[:2])
    break_it(one, two)
    state = report.write(plan, store)
    (problem,) = state.problems
    assert str(one) in problem
    assert message in problem
    assert problem.endswith("delete it and its case will run again")
    assert "3 of 4 cases" in page(plan)
    assert "There are 4 squares" in words(plan, "other.md")
    assert state.rows[0]["status"] == "partly"


def test_a_value_that_a_record_lacks_is_pending_where_it_is_read_and_named(plan):
    store = fill(plan)
    path = store._path(own(plan).cases("toy")[0])
    edit(path, square="gone")
    state = report.write(plan, store)
    assert all(f"there is no value square in {path}" in problem for problem in state.problems)
    assert {problem.partition(" of toy")[0] for problem in state.problems} == {"roots", "squares"}
    assert state.rows[0]["status"] == "partly"
    assert "4 of 4 cases" in page(plan)


def test_what_its_case_could_not_time_is_missing_and_no_mistake(plan):
    source = plan.project.experiments / "toy" / "page.py"
    text = source.read_text().replace("r: len(r.all())", "r: timed_arm(r, 'a peer')")
    imported = "\nfrom madl.logbook.arms import timed_arm\npage ="
    source.write_text(text.replace("\npage =", imported, 1))
    state = report.write(plan, fill(plan))
    assert state.problems == []
    assert "There are (not run here) squares" in words(plan)


@pytest.mark.parametrize(
    ("what", "old", "new", "said"),
    [
        ("claim grows", "one = r.single(x=1)", "one = r.single(x=1)\n    one.no", "AttributeError"),
        ("claim grows", "return contrast(", "return None and contrast(", "it returns"),
        ("many", "r: len(r.all())", "r: {}['x']", "KeyError: 'x' (experiments/toy"),
        ("many", "r: len(r.all())", "r: len(r.all(xx=1))", "no case has xx=1"),
        ("many", "r: len(r.all())", "r: float('nan')", "the number 'many' is nan"),
        ("claim grows", "one = r.single(x=1)", "raise SystemExit(0)", "SystemExit: 0"),
        ("squares", "return Chart(", "return None and Chart(", "it returns nothing"),
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
