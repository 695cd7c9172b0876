"""Hand-written pages lead where they say: commands exist, log sections are their questions'."""

import re
from pathlib import Path

import cli
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Store
from madl.running.plans import StoredPlan
from madl.running.project import Project
from madl.site.page import PageCalls
from madl.site.views import Page, View

ROOT = Path(__file__).parents[1]
LOG = (ROOT / "docs" / "log.md").read_text()
PROJECT = Project()
WITHOUT_FAILURES = {"2.3", "4.3b"}  # questions of which the log has nothing


def more(project: Project, id: str, tmp_path: Path) -> str:
    """How a question's page ends."""
    question = next(q for q in project.questions if q.id == id)
    plan = StoredPlan(project, Store(tmp_path), PROFILES["quick"], {})
    view = View(name=question.stem, plan=plan, published=False)
    page = Page(name=question.stem, view=view, others=(), questions=[question])
    return PageCalls(project, page).more()


def test_every_command_of_the_guide_exists():
    named = re.findall(r"python cli\.py (\w+)", (ROOT / "docs" / "own.md").read_text())
    assert len(named) >= 5
    assert set(named) <= set(cli.main.commands)


def test_the_log_is_grouped_by_questions_that_exist():
    ids = [question.id for question in PROJECT.questions]
    sections = re.findall(r"^## (\S+) .*\{ #q(\S+) \}$", LOG, re.MULTILINE)
    assert [id.replace(".", "-") for id, _ in sections] == [anchor for _, anchor in sections]
    assert [id for id, _ in sections] == [id for id in ids if id in {s for s, _ in sections}]
    assert set(ids) - {id for id, _ in sections} <= WITHOUT_FAILURES | {
        id for id in ids if id.startswith("5.")
    }


def test_every_entry_of_the_log_stands_in_a_section():
    head = LOG.partition("\n## ")[0]
    assert "- **" not in head


def test_a_page_ends_with_its_part_of_the_log_and_its_lab_s_notebook(tmp_path):
    said = more(PROJECT, "1.1", tmp_path)
    assert "(../notebooks/lab1.ipynb)" in said
    assert "(../log.md#q1-1)" in said
    assert "(../log.md)" in more(PROJECT, "2.3", tmp_path)  # it has no section


def test_a_logbook_without_log_and_notebooks_links_none(toy, tmp_path):
    assert more(toy, "9.1", tmp_path) == ""
