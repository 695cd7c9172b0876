"""`cli.py new`: what it writes runs, renders, and keeps the rules of every other page."""

import shutil

import pytest

from madl.logbook.experiment import PROFILES
from madl.running.pages import pages
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import workloads
from tests import test_conventions, test_nulls
from tests.conftest import ROOT
from tests.test_cli import call

STEM = "weights_2_try"
NAME = "few_bits_cost_accuracy"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    root = tmp_path_factory.mktemp("own")
    for folder in ("experiments", "templates", "docs/notes", "docs/data"):
        (root / folder).mkdir(parents=True)
    for name in ("page.md", "evidence.html", "index.md", "ledger.md"):
        shutil.copy(ROOT / f"templates/{name}.j2", root / "templates")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "experiments/baseline", root / "experiments/baseline", ignore=ignored)
    (root / "experiments" / "questions.toml").write_text(
        '["1.1"]\nstem = "other"\ntitle = "Other"\ntext = "Why?"'  # no newline at its end
    )
    return Project(root)


@pytest.fixture(scope="module")
def made(project, tiny_model, tiny_dataset):
    """The commands that a student gives, one after the other; `report` of the page."""
    workload = ("--model", str(tiny_model), "--dataset", str(tiny_dataset))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MADL_ROOT", str(project.root))
        written = call("new", STEM)
        ran = call("all", STEM, "--profile", "smoke", "--jobs", "1", *workload)
    chosen = workloads.resolve("snippets", model=str(tiny_model), dataset=str(tiny_dataset))
    fresh = Project(project.root)
    plan = RunPlan(fresh, PROFILES["smoke"], chosen.params())
    return written, ran, plan


def test_it_runs_and_renders_as_it_is(made):
    _, ran, plan = made
    assert ran.exit_code == 0, ran.output
    page = (plan.project.docs / "labs" / f"{STEM}.md").read_text()
    assert "# 5.1 Weights try" in page
    assert "3 of 3 widths" in (plan.project.docs / "ledger.md").read_text()
    assert 'class="pending"' not in page
    assert "ScaledInteger" in page
    assert [(q.id, q.stem) for q in plan.project.questions] == [("1.1", "other"), ("5.1", STEM)]


def test_it_keeps_the_conventions(made, monkeypatch):
    _, _, plan = made
    monkeypatch.setattr(test_conventions, "PROJECT", plan.project)
    monkeypatch.setattr(test_conventions, "ROOT", plan.project.root)
    path = plan.project.experiments / f"{STEM}" / "page.py"
    rules = test_conventions
    rules.test_a_template_prints_every_number_has_sentences_for_every_claim_and_does_not_branch(
        STEM
    )
    rules.test_experiments_import_torch_only_where_a_case_runs_and_read_nothing_private(path)
    rules.test_experiments_reach_test_values_through_arms_only(path)
    rules.test_imports_point_one_way("experiments")


def test_its_claim_can_lose_and_can_win(made):
    _, _, plan = made
    view = next(page.view for page in pages(plan, plan.project.store) if page.name == STEM)
    assert list(view.results) == [NAME]
    for verdict in ("supported", "refuted"):
        test_nulls.test_each_claim_sees_a_planted_effect({STEM: view}, STEM, NAME, verdict)
    test_nulls.test_each_claim_can_lose({STEM: view}, STEM, NAME, 40)


def test_a_bad_name_is_one_line_and_writes_nothing(project, monkeypatch):
    monkeypatch.setenv("MADL_ROOT", str(project.root))
    before = sorted(project.root.rglob("*"))
    for stem, message in (
        ("baseline", "'baseline' is taken (experiments/baseline)"),
        ("other", "'other' is taken (a page of the logbook)"),
        *((name, "cannot be a page's name") for name in ("../mine", "_mine", "2nd", "class", "")),
    ):
        result = call("new", stem)
        assert result.exit_code == 2
        assert result.output.startswith("Error: ")
        assert message in result.output
    assert sorted(project.root.rglob("*")) == before
