"""Quick runs a sample of full's cases again; a page shows the most complete evidence."""

from dataclasses import replace

import pytest

from madl.errors import MadlError
from madl.logbook.records import Store, publish
from madl.running import runner
from madl.running.evidence import (
    TOGETHER,
    Evidence,
    EvidenceTable,
    choose_evidence,
)
from madl.running.pages import pages
from madl.running.plans import ExplicitPlan, Options, RunPlan
from madl.running.samples import quick_sample
from tests.conftest import a_record, a_run, own, write

SEEDED = '''
"""A case for each confirming seed, of the number that the toy leads to."""

from madl.logbook.experiment import Experiment

page = Experiment(title="Seeded", needs=("toy",))

@page.cases
def cases(plan):
    best = max(record.values["square"] for record in plan.records("toy"))
    return [{"best": best, "seed": seed} for seed in plan.seeds]

@page.quick
def quick(params):
    return params["seed"] == 10

@page.run
def run(params, ctx):
    return {"best": params["best"]}
'''


@pytest.fixture
def seeded(plan) -> RunPlan:
    """Full's plan of the toy, and of a page with seeds that needs it."""
    write(plan.project.experiments / "seeded" / "page.py", SEEDED)
    return plan


def done(
    plan: RunPlan, name: str, host: str = "far away", num_seeds: int = 5, first: int = 0
) -> None:
    run = a_run(host=host)
    if name == "seeded":
        params = [{"best": 9, "seed": seed} for seed in plan.seeds[first:num_seeds]]
        cases = [replace(own(plan).cases("toy")[0], experiment=name, params=one) for one in params]
        records = [a_record(case=case, values={"best": 9}, run=run) for case in cases]
    else:
        records = [a_record(case.params["x"], case=case, run=run) for case in own(plan).cases(name)]
    publish(records, plan.project.docs / "data" / f"{name}.jsonl")


def a_sample(plan: RunPlan) -> ExplicitPlan:
    return quick_sample(plan, plan.project.store.get)


def shown(plan: RunPlan, name: str) -> Evidence:
    """The evidence that the page of an experiment shows."""
    table = EvidenceTable(plan=plan, own=plan.project.store.get)
    return choose_evidence(table.rows(name), name)


def test_quick_runs_cases_of_full_alone_and_nothing_that_published_choices_stand_for(seeded):
    done(seeded, "toy")
    done(seeded, "seeded")
    store = Store(seeded.project.state)
    events = list(runner.run(a_sample(seeded), store, ["seeded"], Options()))
    assert [event.record.case.params for event in events] == [{"best": 9, "seed": 10}]
    (page,) = (page for page in pages(a_sample(seeded), store) if page.name == "seeded")
    assert page.view.machine == "far away"
    assert (page.again.run, page.again.cases) == (1, 5)


def test_a_sample_that_cannot_be_chosen_says_where(plan):
    path = plan.project.experiments / "toy" / "page.py"
    path.write_text(path.read_text().replace("    return True", '    return params["no"]'))
    with pytest.raises(MadlError, match=r"toy/page.py, line \d+: which cases are quick: KeyError"):
        a_sample(plan).listed("toy")


@pytest.mark.parametrize("asked", ["timed", "requires"])
def test_what_a_page_cannot_say_of_a_case_says_where(plan, asked):
    path = plan.project.experiments / "toy" / "page.py"
    wrong = f'title="Squares", {asked}=lambda params: params["no"])'
    path.write_text(path.read_text().replace('title="Squares")', wrong))
    with pytest.raises(MadlError, match=r"toy/page.py, line \d+: wh.*: KeyError: 'no'"):
        list(runner.run(plan, plan.project.store, [], Options()))


def test_a_folder_that_is_no_module_is_named_before_anything_runs(plan):
    folder = plan.project.experiments / "toy"
    folder.rename(folder.with_name("my-toy"))
    with pytest.raises(MadlError, match="experiments/my-toy: a page's name has letters"):
        list(runner.run(plan, plan.project.store, [], Options()))


def test_a_whole_run_of_this_machine_is_shown_before_a_published_one_and_that_before_a_part(seeded):
    done(seeded, "toy")
    assert shown(seeded, "toy").host == "far away"
    store = Store(seeded.project.state)
    store.put(a_record(case=own(seeded).cases("toy")[0]))
    assert shown(seeded, "toy").host == "far away"
    list(runner.run(seeded, store, ["toy"], Options()))
    assert shown(seeded, "toy").host is None


def test_evidence_of_fewer_seeds_is_whole_and_comes_after_that_of_more(seeded):
    done(seeded, "toy")
    done(seeded, "seeded", num_seeds=1)
    row = shown(seeded, "seeded")
    assert (row.host, row.plan.num_seeds, row.is_complete("seeded")) == ("far away", 1, True)
    done(seeded, "toy", "another")
    done(seeded, "seeded", "another", num_seeds=2)
    assert shown(seeded, "seeded").host == "another"


@pytest.mark.parametrize(("timed", "host"), [(False, TOGETHER), (True, "another")])
def test_machines_that_have_run_a_page_together_are_one_unless_both_have_timed(seeded, timed, host):
    folder = seeded.project.experiments / "seeded"
    write(folder / "page.py", SEEDED.replace('("toy",)', f'("toy",), timed={timed}'))
    done(seeded, "toy")
    done(seeded, "seeded", "another", num_seeds=2)
    done(seeded, "seeded", first=2)
    assert shown(seeded, "seeded").host == host
    (page,) = (page for page in pages(seeded, seeded.project.store) if page.name == "seeded")
    assert page.view.machine == ("another" if timed else "another; far away")
    assert page.view.evidence.coverage("seeded") == (2 if timed else 5, True)
    assert page.others == []


def test_a_machine_that_has_not_run_what_a_page_needs_follows_what_another_chose(seeded):
    done(seeded, "toy")
    done(seeded, "seeded", "another")
    page = next(page for page in pages(seeded, seeded.project.store) if page.name == "seeded")
    assert page.view.machine == "another"
    assert [record.values for record in page.view.own] == [{"best": 9}] * 5
