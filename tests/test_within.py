"""A run of minutes: which cases come first, what is left out, and what they decide."""

import itertools
import logging
import tarfile
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.machine.page import WORK
from madl.errors import MadlError
from madl.logbook.records import Case, Record, Store
from madl.running import within
from madl.running.evidence import source_of
from madl.running.pages import Page
from madl.running.plans import Options, RunPlan
from madl.running.project import Project
from madl.running.samples import quick_sample
from madl.running.views import View
from madl.site import limits
from madl.site.page import PageCalls
from tests.conftest import a_record, a_run, drawn_once, own
from tests.synthetic import DATA, a_measurement, evidence, full_plan, samples

RANKED = """
[[group]]
decides = "the large ones"
seconds = 50
cases = { experiment = "toy", x = [2, 3] }

[[group]]
decides = "one"
seconds = 20
cases = { experiment = "toy", x = 1 }

[[group]]
decides = "the rest"
seconds = 20
cases = { experiment = "toy" }

[[group]]
decides = "what comes later"
seconds = 20
cases = { experiment = "toy", x = 9 }
"""


@pytest.fixture
def clock(monkeypatch):
    """Seconds pass only when a test says so."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(within.time, "monotonic", lambda: now.s)
    return now


@pytest.fixture
def ranked(toy, plan) -> RunPlan:
    (toy.experiments / "gpu.toml").write_text(RANKED)
    return plan


def run(plan, clock, *, minutes, takes_s, **more) -> list[int]:
    """The cases that ran, each of which takes so many seconds."""
    ran: list[int] = []
    for event in within.run(plan, plan.project.store, Options(), minutes=minutes, **more):
        ran.append(event.record.case.params["x"])
        clock.s += takes_s
    return ran


def test_groups_run_in_the_order_of_their_worth_and_only_where_all_of_one_fits(
    ranked, clock, caplog
):
    with caplog.at_level(logging.INFO):
        assert run(ranked, clock, minutes=1.5, takes_s=30) == [1, 0]
    assert "left out for want of time: the large ones: 2 cases, about 2 min" in caplog.text
    assert "no case of it is known: what comes later; first run" in caplog.text
    clock.s = 0
    assert run(ranked, clock, minutes=100, takes_s=30) == [2, 3]  # what is left


def test_a_group_that_cannot_become_whole_makes_way(ranked, clock, monkeypatch, caplog):
    monkeypatch.setenv("TOY_FAIL", "2")
    with caplog.at_level(logging.INFO):
        assert run(ranked, clock, minutes=100, takes_s=30) == [2, 1, 0]
    assert "the rest of it is left out: a case failed" in caplog.text


def test_a_case_that_would_end_late_is_not_begun(ranked, clock, monkeypatch):
    """Its sibling took longer than was thought."""
    slow = within.runner.run

    def slowly(*arguments):
        for event in slow(*arguments):
            yield replace(event, record=replace(event.record, seconds=70))

    monkeypatch.setattr(within.runner, "run", slowly)
    assert run(ranked, clock, minutes=2, takes_s=70) == [2, 1]


def test_records_are_packed_after_each_group_and_taken_in_elsewhere(
    ranked, clock, tmp_path, monkeypatch
):
    pack, counts = tmp_path / "records.tgz", []
    pack_records = within.pack_records

    def counted(store, path):
        pack_records(store, path)
        with tarfile.open(path) as archive:
            counts.append(sum(name.endswith(".json") for name in archive.getnames()))

    monkeypatch.setattr(within, "pack_records", counted)
    failed = a_record(case=Case(experiment="toy", params={"x": 9}), status="failed", error="no")
    ranked.project.store.put(failed)  # where it is taken in, it may have a result
    run(ranked, clock, minutes=100, takes_s=1, pack=pack)
    assert counts == [0, 2, 3, 4]  # first of all, so that a file that cannot be written is said
    with tarfile.open(pack) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(tmp_path / "elsewhere")
    there = Store(tmp_path / "elsewhere")
    assert all(there.get(case).status == "ok" for case in own(ranked).cases("toy"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RANKED.partition('[[group]]\ndecides = "the rest')[0], "no group for toy, x 0, seed 0"),
        (RANKED.replace("seconds = 50", 'seconds = "long"'), "group 1: a group has decides"),
        (RANKED.replace('decides = "one"', ""), "group 2: a group has decides"),
        ("group = 3", "group is no list of tables"),
        ("[[group", "gpu.toml"),
    ],
)
def test_what_is_wrong_with_the_ranking_is_said(ranked, text, said):
    (ranked.project.experiments / "gpu.toml").write_text(text)
    again = Project(ranked.project.root)
    with pytest.raises(MadlError, match=said):
        within.groups(RunPlan(again, ranked.profile, ranked.workload), again.store)


def test_a_file_that_cannot_be_written_is_said_before_anything_runs(ranked, clock, tmp_path):
    with pytest.raises(FileExistsError):  # where the folder would be
        run(ranked, clock, minutes=100, takes_s=1, pack=tmp_path / "log" / "records.tgz")
    assert not any(ranked.project.store.get(case) for case in own(ranked).cases("toy"))


@pytest.mark.parametrize(
    ("why", "is_known"),
    [("no CUDA device here", True), ("Torch-TensorRT is not installed here", False)],
)
def test_a_case_planned_since_is_left_out_where_the_machine_lacked_its_device(
    why, is_known, groups
):
    before, since = (case for case in groups[4].cases[:2])
    skipped = a_record(case=before, values={}, status="skipped", error=why)
    row = page_with("lab4_compile", []).view.evidence

    def source(case: Case) -> Record | None:
        if case.experiment == "lab4_compile":
            return skipped if case == before else None
        return row.source(case)  # of its tuning

    found = replace(row, source=source).record(since)
    assert (found is not None) == is_known
    assert not is_known or (found.case, found.status) == (since, "skipped")


# ---- what the groups of the product decide ------------------------------------------------------

GPU = "NVIDIA H100 80GB HBM3"
STUDIED = ("lab4_compile", "lab4_attention", "lab4_memory")


def invented(case: Case) -> Record:
    """A record of a GPU that compiles and fuses at twice the speed."""
    run = a_run(host="a lent GPU", device=GPU, torch="2.11.0+cu130", cuda="13.0")
    return a_record(case=case, values=_invented(case.params), run=run)


def timed(seconds: dict[str, float], params: dict[str, Any]) -> dict[str, Any]:
    process = params.get("process", 0)
    return {
        name: a_measurement(samples(s, seed=process + 10 * i), device=GPU, first_call_s=1.0)
        for i, (name, s) in enumerate(seconds.items())
    }


FORM_MS = {"naive": 8.0, "tuned": 4.0, "chunked": 5.0, "math": 9.0}
FORM_MS |= {"flash": 2.0, "efficient": 2.5, "cudnn": 1.5}


def _invented(params: Any) -> dict[str, Any]:
    match params:
        case {"what": "cuda"}:
            peak = {"requested_bytes": 900 << 20, "allocated_bytes": 1000 << 20}
            return dict.fromkeys(("FP32", "MXINT8", "MXINT8, packed before"), peak)
        case {"kind": "correct"}:
            return {"errors": {"naive float16": 0.1}, "scales": {"ones": 0.0, "random": 5.0}}
        case {"kind": "memory"}:
            peaks = [
                {"form": form, "dtype": "float32", "length": n, "peak_bytes": n << 20}
                for form in FORM_MS
                for n in (2048, 4096)
            ]
            return {"peaks": [{**one, "score_bytes": 1 << 20} for one in peaks]}
        case {"length": 32768}:
            missing = dict.fromkeys(("naive", "tuned", "math"), "out of memory")
            rest = {form: FORM_MS[form] / 1e3 for form in FORM_MS.keys() - missing}
            return {"measurements": timed(rest, params), "missing": missing}
        case {"dtype": str()}:
            every = {form: ms / 1e3 for form, ms in FORM_MS.items()}
            missing = {"tuned in FP32": "out of memory"}
            return {"measurements": timed(every, params), "missing": missing}
        case {"kind": "naive"}:
            names = (
                "eager, training",
                "compiled, training",
                "eager, evaluation",
                "compiled, evaluation",
            )
            return {"measurements": timed(dict.fromkeys(names, 0.01), params)}
        case {"ways": str()}:
            ways = {
                way: 0.01 if way.startswith("eager/") else 0.005 for way in params["ways"].split()
            }
            return {"measurements": timed(ways, params), "missing": {}}
        case {"copy_mb": int()}:
            return {
                "measurements": timed(dict.fromkeys(WORK, 0.001), params),
                "amount": dict.fromkeys(WORK, 1e9),
            }
    raise AssertionError(params)


@pytest.fixture(scope="module")
def groups() -> list[within.Group]:
    nothing = Store(DATA / "none")
    return within.groups(quick_sample(full_plan(), nothing.get, "cuda"), nothing)


def page_with(name: str, records: list[Record]) -> Page:
    """The page of the machine that has most evidence of it, with these borrowed."""
    (page,) = (page for page in evidence() if page.name == name)
    lent = source_of({record.case.key: record for record in records})
    view = View(name=name, evidence=page.view.evidence, lenders=[lent])
    return Page(name=name, view=view, others=[], questions=page.questions)


def rendered(page: Page) -> str:
    from madl.site import templates

    calls = PageCalls(Project(), page)
    template = templates.load(Project(), f"{page.name}/page.md.j2", "write one")
    return templates.render(template, calls.variables())


def test_the_first_sixteen_cases_decide_every_claim_and_fit_in_seven_minutes(groups):
    first = list(itertools.takewhile(lambda group: "the lab's batch" not in group.decides, groups))
    cases = [case for group in first for case in group.cases]
    assert len(cases) == 16
    assert sum(group.case_s * len(group.cases) for group in first) < 7 * 60
    records = [invented(case) for case in cases]
    claimed = {}
    for name in STUDIED:
        view = page_with(name, records).view
        of_gpu = {n for n in view.results if n.endswith("cuda") or n.startswith("cuda")}
        claimed |= {n: view.results[n].verdict for n in of_gpu}
    assert claimed == {"cuda_faster": "supported", "fused_is_faster_on_cuda": "supported"}


@pytest.mark.parametrize("name", STUDIED)
@pytest.mark.parametrize("amount", ["none", "one process", "sixteen", "all"])
def test_a_page_shows_a_gpu_beside_the_cpu_with_whatever_there_is_of_it(
    groups, name, amount, monkeypatch
):
    monkeypatch.setattr("madl.site.svg.memoized", drawn_once)
    every = [case for group in groups for case in group.cases]
    few = {"none": 0, "sixteen": 16, "all": len(every)}
    cases = (
        every[: few[amount]]
        if amount in few
        else [case for case in every if case.params.get("process") == 1]
    )
    page = page_with(name, [invented(case) for case in cases])
    said = rendered(page)
    tables = [line for line in said.splitlines() if line.startswith("|")]
    has_any = any(case.experiment == name for case in cases)
    assert any(GPU in line for line in tables) == has_any
    assert any("CUDA GPU" in line for line in tables) != has_any
    assert (" that it cannot run on a lent GPU, <time>" in said) == has_any
    assert ("We have not run this on a GPU." in said) == (
        name != "lab4_memory" and amount not in ("sixteen", "all")
    )
    assert not [
        line for line in limits.problems(said) if line.startswith(("its lead", "its answer"))
    ]
    before = page_with(name, []).view.shown
    gone = {n for n, one in page.view.shown.items() if one is None and before[n] is not None}
    assert not gone  # a part of a GPU's cases takes nothing away
    if amount == "all":
        assert "not run here" not in "".join(tables)
