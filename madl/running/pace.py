"""How long cases take: as long as in committed evidence, at the pace that this machine has shown.

A case is known by what tells it apart among its siblings. So the evidence of another workload, or
one in which an earlier question chose another model, says something of it, too.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from madl.errors import MadlError
from madl.logbook.records import Case, Pending, Record, published_by_machine
from madl.running.plans import StoredPlan, most_complete, published_plans, readied
from madl.training import workloads

UNSEEN_S = 20.0  # as if that much had run as fast as in evidence: short times say little


@dataclass
class Pace:
    """What cases took here, and what they take in evidence; all times in seconds."""

    plan: StoredPlan
    usual_s: dict[str, float] = field(default_factory=dict)  # case key → in evidence
    took_s: dict[str, list[float]] = field(default_factory=dict)  # experiment → its cases, here
    here_s: dict[str, float] = field(default_factory=dict)  # … of those that the evidence knows …
    there_s: dict[str, float] = field(default_factory=dict)  # … and in evidence
    evidence: dict[str, list[Record]] = field(default_factory=dict)  # experiment → its cases'

    def learn(self, name: str, planned: Sequence[Case]) -> None:
        """Look for these cases, all that an experiment has, in the evidence."""
        keys, evidence = varying(planned), self._evidence(name)
        known = {_told_apart(r.case, keys): r.seconds for r in evidence}
        same = {r.case.key: r.seconds for r in evidence}
        found = {c.key: same.get(c.key, known.get(_told_apart(c, keys))) for c in planned}
        self.usual_s |= {key: seconds for key, seconds in found.items() if seconds is not None}

    def finished(self, record: Record) -> None:
        if record.status != "ok":
            return
        name = record.case.experiment
        self.took_s.setdefault(name, []).append(record.seconds)
        if usual_s := self.usual_s.get(record.case.key):
            self.here_s[name] = self.here_s.get(name, 0.0) + record.seconds
            self.there_s[name] = self.there_s.get(name, 0.0) + usual_s

    def expected_s(self, case: Case) -> float:
        """A case that the evidence does not know takes as long as its siblings did."""
        if (usual_s := self.usual_s.get(case.key)) is not None:
            return usual_s * self._slowness(case.experiment)
        return fmean(self.took_s.get(case.experiment, [0.0]))

    def expected(self, name: str) -> list[tuple[Case, float]]:
        """An experiment's cases and times where they are not known yet: as evidence has them."""
        slowness = self._slowness(name)
        return [(record.case, record.seconds * slowness) for record in self._evidence(name)]

    def _slowness(self, name: str) -> float:
        """How many times as long as in evidence cases take here: this experiment's, or all."""
        if name in self.there_s:
            here_s, there_s = self.here_s[name], self.there_s[name]
        else:
            here_s, there_s = sum(self.here_s.values()), sum(self.there_s.values())
        return (UNSEEN_S + here_s) / (UNSEEN_S + there_s)

    def _evidence(self, name: str) -> list[Record]:
        """Of the machine that has most of it: of this plan's workload, or of the default one."""
        if name not in self.evidence:
            self.evidence[name] = published_results(self.plan, name)
        return self.evidence[name]


def published_results(plan: StoredPlan, name: str) -> list[Record]:
    """An experiment's committed evidence of this workload; where there is none, of the default."""
    machines, _ = published_by_machine(plan.project.docs / "data")
    for workload in (plan.workload, workloads.resolve(workloads.DEFAULT).params()):
        there = published_plans(replace(plan.whole, workload=workload), machines)
        with contextlib.suppress(MadlError, Pending):  # said where it is read
            if there and (found := most_complete(readied(there, name), name).good(name)):
                return found
    return []


def how_to_make_whole(plan: StoredPlan, jobs: int) -> str:
    """What to do with a model or data that nothing is published of, and how long it takes."""
    project, one = plan.project, replace(plan.whole, num_seeds=1)
    took_s = sum(
        record.seconds / (1 if project.load(name).runs_alone(record.case.params) else jobs)
        for name in project.names()
        for record in published_results(one, name)
    )
    about = f" (about {in_words(took_s)})" if took_s else ""
    return (
        "nothing is published of this model and data, so that only pages of them without tuning "
        f"are run; for a whole logbook of them: python cli.py all {one.options}{about}"
    )


def in_words(seconds: float) -> str:
    """A time to wait: "40 s", "12 min", "1 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def varying(cases: Sequence[Case]) -> list[str]:
    """The parameters that tell these cases apart; all else is the same wherever it appears."""
    keys = {key: None for case in cases for key in case.params}
    return [key for key in keys if len({c.params[key] for c in cases if key in c.params}) > 1]


def _told_apart(case: Case, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(case.params.get(key) for key in keys)
