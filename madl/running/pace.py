"""How long cases will take: as long as in committed evidence, scaled to this machine's pace.

A case is matched by the parameters that tell it from its siblings. So evidence of another
workload, or one in which an earlier question chose another model, can be used, too.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from madl.errors import MadlError
from madl.logbook.records import Case, Pending, Record
from madl.running.evidence import EvidenceTable, choose_evidence
from madl.running.plans import RunPlan
from madl.training import workloads

UNSEEN_S = 20.0  # counted as run at the evidence's pace, as a few short cases say little


@dataclass
class Pace:
    """Seconds that cases took here and in evidence, to estimate how long others will take."""

    plan: RunPlan
    usual_s: dict[str, float] = field(default_factory=dict)  # case key → in evidence
    took_s: dict[str, list[float]] = field(default_factory=dict)  # experiment → each case's, here
    here_s: dict[str, float] = field(default_factory=dict)  # … → the sum, of cases in evidence …
    there_s: dict[str, float] = field(default_factory=dict)  # … → the sum of these in evidence
    evidence: dict[str, list[Record]] = field(default_factory=dict)  # experiment → its records

    def learn(self, name: str, planned: Sequence[Case]) -> None:
        """Look up in evidence how long cases took; `planned` are all of the experiment's."""
        keys, evidence = varying(planned), self._evidence(name)
        similar_s = {case_signature(r.case, keys): r.seconds for r in evidence}
        same_s = {r.case.key: r.seconds for r in evidence}
        for case in planned:
            seconds = same_s.get(case.key, similar_s.get(case_signature(case, keys)))
            if seconds is not None:
                self.usual_s[case.key] = seconds

    def finished(self, record: Record) -> None:
        """Take note of how long a case took."""
        if record.status != "ok":
            return
        name = record.case.experiment
        self.took_s.setdefault(name, []).append(record.seconds)
        if usual_s := self.usual_s.get(record.case.key):
            self.here_s[name] = self.here_s.get(name, 0.0) + record.seconds
            self.there_s[name] = self.there_s.get(name, 0.0) + usual_s

    def expected_s(self, case: Case) -> float:
        """Seconds that a case will take: without evidence, as long as its siblings did here."""
        if (usual_s := self.usual_s.get(case.key)) is not None:
            return usual_s * self._slowness(case.experiment)
        return fmean(self.took_s.get(case.experiment, [0.0]))

    def expected(self, name: str) -> list[tuple[Case, float]]:
        """The cases of an experiment in evidence, with the seconds that each will take here.

        They stand for its own cases as long as these are not known.
        """
        slowness = self._slowness(name)
        return [(record.case, record.seconds * slowness) for record in self._evidence(name)]

    def _slowness(self, name: str) -> float:
        """Time here over time in evidence, of this experiment's cases, or else of all."""
        if name in self.there_s:
            here_s, there_s = self.here_s[name], self.there_s[name]
        else:
            here_s, there_s = sum(self.here_s.values()), sum(self.there_s.values())
        return (UNSEEN_S + here_s) / (UNSEEN_S + there_s)

    def _evidence(self, name: str) -> list[Record]:
        """`published_results` of an experiment, looked up once."""
        if name not in self.evidence:
            self.evidence[name] = published_results(self.plan, name)
        return self.evidence[name]


def published_results(plan: RunPlan, name: str) -> list[Record]:
    """An experiment's committed results for the plan's workload, or else for the default one."""
    for workload in (plan.workload, workloads.resolve(workloads.DEFAULT).params()):
        table = EvidenceTable(plan=replace(plan.whole, workload=workload))
        with contextlib.suppress(MadlError, Pending):  # said where it is read
            rows = table.rows(name)
            if rows and (records := choose_evidence(rows, name).good(name)):
                return records
    return []


def full_run_advice(plan: RunPlan, jobs: int) -> str:
    """How to make a whole logbook of the plan's workload, and how long that takes, in a line.

    Empty if anything of this workload is published.
    """
    project, single = plan.project, replace(plan.whole, num_seeds=1)
    if any(plan.workload in known for known in EvidenceTable(plan=single).workloads.values()):
        return ""
    took_s = sum(
        record.seconds / (1 if project.runs_alone(record.case) else jobs)
        for name in project.names()
        for record in published_results(single, name)
    )
    about = f" (about {in_words(took_s)})" if took_s else ""
    return (
        "nothing is published of this model and data, so that only pages of them without tuning "
        f"are run; for a whole logbook of them: python cli.py all {single.options}{about}"
    )


def in_words(seconds: float) -> str:
    """A waiting time as text: "40 s", "12 min", "1 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def varying(cases: Sequence[Case]) -> list[str]:
    """The parameters in which these cases differ: in their values, or in that they have them."""
    keys = {key: None for case in cases for key in case.params}
    return [key for key in keys if len({case.params.get(key) for case in cases}) > 1]


def case_signature(case: Case, keys: Sequence[str]) -> tuple[object, ...]:
    """The values of these parameters, which tell a case from its siblings."""
    return tuple(case.params.get(key) for key in keys)
