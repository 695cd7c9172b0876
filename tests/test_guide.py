"""Hand-written pages lead where they say: commands exist, log sections are their questions'."""

import re
from pathlib import Path

import cli
from madl.running.project import Project

ROOT = Path(__file__).parents[1]
LOG = (ROOT / "docs" / "log.md").read_text()
PROJECT = Project()
WITHOUT_FAILURES = {"2.3", "4.3b"}  # questions of which the log has nothing


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
