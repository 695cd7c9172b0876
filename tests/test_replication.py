"""What replicates, in a table, and what changes when only what measures time runs again."""

import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from madl.errors import MadlError
from madl.logbook.experiment import PROFILES
from madl.logbook.numbers import exact
from madl.logbook.records import Record, Store, publish
from madl.running import runner, samples, sittings
from madl.running.pages import pages
from madl.running.plans import Options, RunPlan
from madl.running.project import Project
from madl.running.views import Problems
from madl.site import disagreements, replication, report
from madl.site.page import PageCalls
from madl.training import workloads
from tests.conftest import TEMPLATE, own
from tests.test_runner import executed


def changed_toy(plan, old: str, new: str) -> Project:
    path = plan.project.root / "experiments" / "toy" / "page.py"
    path.write_text(path.read_text().replace(old, new))
    return Project(plan.project.root)


def clock(plan) -> RunPlan:
    """The toy's plan, where x = 1 is timed in three processes, and its claim is on those times."""
    timed = '(title="Squares", timed=lambda params: "process" in params)'
    changed_toy(plan, '(title="Squares")', timed)
    cases = 'return [{"x": x, "seed": 0} for x in range(plan.profile.choose(smoke=2, quick=4))]'
    changed_toy(
        plan,
        cases,
        'times = [{"x": 1, "process": n} for n in (1, 2, 3)]\n'
        '    return [{"x": x, "seed": 0} for x in (0, 2, 3)] + times',
    )
    changed_toy(
        plan,
        "one = r.single(x=1)\n"
        '    weighed = [one.values["square"] - 0.5 + i / 100 for i in range(5)]',
        "every = r.all(x=1)\n"
        '    weighed = [one.values["square"] - 0.5 + i / 100 for i, one in enumerate(every)]',
    )
    changed_toy(plan, "Unit.BITS, unit_name", "Unit.TIMES, unit_name")
    project = changed_toy(plan, 'unit_name="scales"), [one])', 'unit_name="sittings"), every)')
    return RunPlan(project, plan.profile, {})


def test_a_further_sitting_measures_what_claims_on_times_read_and_counts_with_the_others(
    plan, tmp_path
):
    plan = clock(plan)
    store, page = Store(plan.project.state), plan.project.docs / "data" / "toy.jsonl"
    list(runner.run(plan, store, [], Options()))
    before = executed(tmp_path)
    shutil.rmtree(store.root / "artifacts")  # as where records came from another machine
    (view,) = sittings.add_sittings(plan, store, [], 2)
    assert executed(tmp_path) == [*before, 1, 1]
    assert replication.outcomes(view)["toy.grows"].endswith("5 sittings")
    assert [r.case.params["process"] for r in sittings.times_of(view)] == [1, 2, 3, 4, 5]
    publish([*own(plan).finished("toy"), *sittings.times_of(view)], page)
    (shown,) = pages(plan, Store(tmp_path / "none"))
    assert shown.view.results["grows"].comparison.units == 5
    assert replication.predicted([shown]) == (5, 5)
    elsewhere = Store(tmp_path / "elsewhere")  # of this machine, whose sittings are published
    (view,) = sittings.add_sittings(plan, elsewhere, ["toy"], 1)
    assert replication.outcomes(view)["toy.grows"].endswith("6 sittings")
    assert [path.parent.name for path in elsewhere.root.rglob("records/*/*.json")] == ["toy"]


def test_another_machine_first_measures_the_sittings_of_the_plan(plan, tmp_path, monkeypatch):
    plan, page = clock(plan), plan.project.docs / "data" / "toy.jsonl"
    list(runner.run(plan, Store(tmp_path / "first"), [], Options()))
    first = [Store(tmp_path / "first").get(case) for case in own(plan).cases("toy")]
    there = [replace(r, run=replace(r.run, host="far away")) for r in first if r]
    publish(there, page)
    before = executed(tmp_path)
    (view,) = sittings.add_sittings(plan, Store(plan.project.state), [], 1)
    assert executed(tmp_path) == [*before, 1, 1, 1]
    assert replication.outcomes(view)["toy.grows"].endswith("3 sittings")
    monkeypatch.setenv("TOY_FAIL", "1")
    with pytest.raises(MadlError, match="a case of toy failed: the toy was told to fail"):
        sittings.add_sittings(plan, Store(plan.project.state), [], 1)


def test_what_cannot_be_timed_here_is_not_measured_again(plan, monkeypatch):
    plan = clock(plan)
    store = Store(plan.project.state)
    list(runner.run(plan, store, [], Options()))
    monkeypatch.setenv("TOY_MISSING", "no such device")
    with pytest.raises(MadlError, match="nothing to repeat"):
        sittings.add_sittings(plan, store, [], 1)


def test_claims_that_cannot_be_made_of_what_was_timed_here_end_the_sittings_in_a_line():
    here = SimpleNamespace(name="toy", timed=[], last_sitting=0, in_sitting=lambda number: [])
    shown = SimpleNamespace(timed=[], plan=SimpleNamespace(project=Project()))
    with pytest.raises(MadlError, match="no primary claim of toy can be made of what was timed"):
        sittings._next_cases(shown, here)


def test_on_other_data_only_what_claims_read_runs_and_stands_beside(plan):
    project = changed_toy(plan, '"seed": 0}', '"seed": 10, **plan.workload}')
    store, here = Store(project.state), workloads.resolve("snippets").params()
    there = workloads.resolve("imdb-openings").params()
    mine = RunPlan(project, PROFILES["full"], here)

    def ran_and_published(plan: RunPlan) -> list[Record]:
        list(runner.run(plan, store, [], Options()))
        publish(found := own(plan).finished("toy"), project.docs / "data" / "toy.jsonl")
        return found

    assert len(ran_and_published(mine)) == 4
    assert len(samples.claimed_cases(mine, store).listed("toy")) == 1
    (one,) = ran_and_published(samples.claimed_cases(replace(mine, workload=there), store))
    assert one.case.params == {"x": 1, "seed": 10, **there}
    (row,) = replication.rows(pages(mine, store))
    machine = one.run.host
    other = f"{', '.join(workloads.differences(there, here))}, {machine}"
    assert row["agreement"] == "same verdict"
    assert row.keys() >= {machine, other}
    (case,) = samples.claimed_cases(mine, store).listed("toy")
    refuting = replace(one, case=case, values={"square": 0}, run=replace(one.run, host="another"))
    publish([refuting], project.docs / "data" / "toy.jsonl")
    (shown,) = pages(mine, store)
    (row,) = replication.rows([shown])
    assert row["agreement"] == "verdict reversed, another size"
    assert row["another"].startswith("refuted")
    assert row["another"].endswith("difference −1\u00a0bit [−1.03, −0.972]")
    claim = disagreements.disagreement(shown, "grows")
    assert (claim.place, claim.differs) == ("another machine", True)
    assert {run.place: run.differs for run in disagreements.other_runs(shown, "grows")} == {
        **{"imdb": False, "another machine": True}
    }
    theirs = replace(case, params={**case.params, "model": "prajjwal1/bert-tiny"})
    published = project.docs / "data" / "toy.jsonl"
    kept = published.read_text()
    publish([replace(one, case=theirs)], published)
    (shown,) = pages(mine, store)
    places = [run.place for run in disagreements.other_runs(shown, "grows")]
    assert "bert-tiny" in places
    published.write_text(kept)
    template = project.experiments / "toy" / "page.md.j2"
    told = "{% disagree %}{{ here }} here, {{ elsewhere }} on {{ place }}.\n{% endclaim %}"
    for text, answer in ((TEMPLATE, "One squared is 1."), (with_fourth(told), "here, −0.48")):
        template.write_text(text)
        report.write(mine, store)
        written = (project.docs / "labs" / "toy.md").read_text()
        assert answer in re.sub(r"<[^>]+>", "", written)
        assert "≠ runs disagree" in written
    assert "<b>0 of 1</b> claims decided alike" in (project.docs / "ledger.md").read_text()
    later = replace(refuting.run, started="2099-01-01T00:00:00+00:00")
    larger = replace(refuting, values={"square": 9}, run=later)
    publish([larger], project.docs / "data" / "toy.jsonl")
    (row,) = replication.rows(pages(mine, store))
    assert row["agreement"] == "same verdict, another size"
    report.write(mine, store)
    assert "≠ size differs" in (project.docs / "labs" / "toy.md").read_text()
    assert "<b>1 of 1</b> claims decided alike" in (project.docs / "ledger.md").read_text()


def with_fourth(sentence: str) -> str:
    return TEMPLATE.replace("{% endclaim %}", sentence, 1)


def seeded(plan) -> Project:
    """The toy with cases x = 0, 1, 2 of each seed, of which its claim reads 0 and 1."""
    seeds = '"seed": 0} for x in range(plan.profile.choose(smoke=2, quick=4))]'
    changed_toy(plan, seeds, '"seed": s, **plan.workload} for x in (0, 1, 2) for s in plan.seeds]')
    changed_toy(
        plan,
        "one = r.single(x=1)\n"
        '    weighed = [one.values["square"] - 0.5 + i / 100 for i in range(5)]',
        'every = [r.single(x=x, seed=s) for x in (0, 1) for s in r.param_values("seed")]\n'
        '    weighed = [5 + one.values["square"] + i / 100 for i, one in enumerate(every)]',
    )
    return changed_toy(plan, 'unit_name="scales"), [one])', 'unit_name="scales"), every)')


def test_seeds_that_have_not_as_many_cases_as_others_are_told_and_left_out(plan):
    project = seeded(plan)
    changed_toy(plan, "for s in plan.seeds]", "for s in plan.seeds if (s, x) != (15, 1)]")
    mine = RunPlan(project, PROFILES["full"], workloads.resolve("snippets").params())
    list(runner.run(mine, Store(project.state), [], Options()))
    problems = Problems()
    (page,) = pages(mine, Store(project.state), problems)
    assert page.view.twins == {}
    told = "experiments/toy/page.py has 15 cases for its seeds and 14 for further ones: these are"
    assert told in problems.lines[0]


def test_further_seeds_run_what_primary_claims_read_and_judge_those_alone(plan):
    project = seeded(plan)
    store, here = Store(project.state), workloads.resolve("snippets").params()
    mine = RunPlan(project, PROFILES["full"], here)
    list(runner.run(mine, store, [], Options()))
    (page,) = pages(mine, store)
    assert page.view.results["grows"].comparison.units == 10  # two cases of each of five seeds
    further = samples.claimed_cases(mine, store)
    cases = own(further).cases("toy")
    assert sorted({case.params["seed"] for case in cases}) == [*range(10, 20)]
    assert {case.params["x"] for case in cases} == {0, 1}
    list(runner.run(further, store, [], Options()))
    (page,) = pages(mine, store)
    assert page.view.results["grows"].comparison.units == 20
    assert len(page.view.records) == 15  # figures and numbers are of the plan's own
    assert len(page.view._records_and([]).and_further) == 15 + 10  # but where one asks for more
    page.view.experiment.made_numbers.clear()  # others of the toy are of a single seed
    page.view.experiment.numbers(every=lambda r: exact(len(r.and_further)))
    assert page.view.numbers["every"].text == "25"
    calls = PageCalls(project, page)
    assert calls.command(case.key for case in cases).endswith(
        "\npython cli.py run toy --only claims"
    )
    assert calls.command(record.case.key for record in page.view.records) == calls.command()
    last = [case for case in cases if case.params["seed"] == 19]
    store.put(replace(store.get(last[0]), status="failed", error="it broke"))
    (page,) = pages(mine, store)
    assert page.view.results["grows"].comparison.units == 18  # without the seed that is not whole


SECONDARY = """
@page.claim
def again(r):
    \"\"\"As `grows`, and secondary.\"\"\"
    return grows(r)

@page.claim
def more(r):
    \"\"\"Of a case that no primary claim reads.\"\"\"
    read = r.all(x=2)
    squares = [one.values["square"] for one in read]
    return contrast(mean(squares, unit=Unit.BITS, unit_name="scales"), read)

page.numbers(found=again, found_more=more,"""


def test_a_secondary_comparison_is_of_further_seeds_where_they_have_all_that_it_reads(plan):
    seeded(plan)
    changed_toy(plan, '"square", x=1', '"square", x=1, seed=10')
    project = changed_toy(plan, "\npage.numbers(", SECONDARY)
    store, here = Store(project.state), workloads.resolve("snippets").params()
    mine = RunPlan(project, PROFILES["full"], here)
    list(runner.run(mine, store, [], Options()))
    list(runner.run(samples.claimed_cases(mine, store), store, [], Options()))
    (page,) = pages(mine, store)
    units = {name: r.contrast.comparison.units for name, r in page.view.results.items()}
    assert units == {"grows": 20, "again": 20, "more": 5}
    assert page.view.results["again"].verdict is None
    assert len(page.view.numbers["found"].cases) == 20  # a number says what the claim found
    assert len(page.view.numbers["found_more"].cases) == 5


def test_fewer_seeds_elsewhere_have_a_verdict_of_their_own_and_half_a_seed_has_none(plan):
    project = seeded(plan)
    store, here = Store(project.state), workloads.resolve("snippets").params()
    mine = RunPlan(project, PROFILES["full"], here)
    list(runner.run(mine, store, [], Options()))
    there = replace(mine, workload=workloads.resolve("imdb-openings").params(), num_seeds=2)
    list(runner.run(samples.claimed_cases(there, store), store, [], Options()))
    found = own(samples.claimed_cases(there, store)).finished("toy")
    assert len(found) == 4
    path = project.docs / "data" / "toy.jsonl"
    publish(own(mine).finished("toy"), path)
    publish([found[0], found[3]], path)
    assert replication.rows(pages(mine, store)) == []
    publish(found, path)
    (row,) = replication.rows(pages(mine, store))
    assert row["agreement"] == "same verdict"
