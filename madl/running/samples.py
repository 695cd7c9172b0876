"""Plans of some of full's cases: the quick profile's, and those that primary claims read."""

import functools
from collections.abc import Sequence
from dataclasses import replace

from madl.logbook.arms import SEED
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Source, Store
from madl.running.evidence import EvidenceTable, choose_evidence, tolerant, with_workload
from madl.running.pages import pages
from madl.running.plans import ExplicitPlan, RunPlan, explicit_plan
from madl.training import workloads


def quick_sample(plan: RunPlan, own: Source, only: str | None = None) -> ExplicitPlan:
    """The plan of the quick profile: those of full's cases that each page's `quick` takes.

    With `only`, those that have this value ("cuda") instead. Choices that decide cases are taken
    from the evidence that a page shows, so nothing has to be run for them. Cases keep their keys.
    """
    table = EvidenceTable(plan=plan.whole, own=tolerant(own))

    def is_taken(case: Case) -> bool:
        return only in case.params.values() if only else plan.project.is_quick(case)

    @functools.cache
    def listed(name: str) -> Sequence[Case]:
        shown = choose_evidence(table.rows(name), name)
        return list(filter(is_taken, shown.cases(name))) if shown.is_ready(name) else []

    why = "no case of this choice" if only else "not in the quick profile, but in full"
    scope = plan.project, PROFILES["quick"], plan.workload, plan.num_seeds
    return ExplicitPlan(*scope, why_no_case=why, listed=listed)


def claimed_cases(plan: RunPlan, store: Store) -> ExplicitPlan:
    """The plan of the full profile's cases that primary claims read, with this plan's workload.

    Which cases they are is read from evidence of the default workload, on which all was tuned. With
    that workload, cases of further seeds are among them.

    Raises:
        MadlError: a record that cannot be used, or a claim or chart that cannot be made.
    """
    default = workloads.resolve(workloads.DEFAULT).params()
    read: dict[str, Case] = {}
    for page in pages(replace(plan.whole, workload=default), store):
        for case in page.view.claimed:
            there = with_workload(case, plan.workload)
            is_of_it = plan.workload == default or there != case
            if is_of_it and case.params.get(SEED) in (None, *plan.whole.seeds):
                read[there.key] = there
                if plan.workload == default and (twin := page.view.twins.get(case.key)):
                    read[twin.key] = twin
    return explicit_plan(replace(plan, profile=PROFILES["full"]), read.values())
