"""How long cases take: as long as in committed evidence, at the pace that this machine has shown.

A case is known by what tells it apart among its siblings. So the evidence of another workload, or
one in which an earlier question chose another model, says something of it, too.
"""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from madl.errors import MadlError
from madl.logbook.records import Case, Pending, Record, Source, published_by_machine
from madl.running.plans import StoredPlan
from madl.training import workloads


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
        keys = varying(planned)
        known = {_told_apart(r.case, keys): r.seconds for r in self._evidence(name)}
        found = {case.key: known.get(_told_apart(case, keys)) for case in planned}
        self.usual_s |= {key: seconds for key, seconds in found.items() if seconds is not None}

    def finished(self, record: Record) -> None:
        name = record.case.experiment
        self.took_s.setdefault(name, []).append(record.seconds)
        if usual_s := self.usual_s.get(record.case.key):
            self.here_s[name] = self.here_s.get(name, 0.0) + record.seconds
            self.there_s[name] = self.there_s.get(name, 0.0) + usual_s

    def expected_s(self, case: Case) -> float:
        """A case that the evidence does not know takes as long as its siblings did, or any did."""
        if (usual_s := self.usual_s.get(case.key)) is not None:
            return usual_s * self._slowness(case.experiment)
        if siblings := self.took_s.get(case.experiment):
            return fmean(siblings)
        every = list(itertools.chain.from_iterable(self.took_s.values()))
        return median(every) if every else 0.0

    def expected(self, name: str) -> list[tuple[Case, float]]:
        """An experiment's cases and times where they are not known yet: as evidence has them."""
        slowness = self._slowness(name)
        return [(record.case, record.seconds * slowness) for record in self._evidence(name)]

    def _slowness(self, name: str) -> float:
        """How many times as long as in evidence cases take here: this experiment's, or all."""
        if name in self.there_s:
            return self.here_s[name] / self.there_s[name]
        there_s = sum(self.there_s.values())
        return sum(self.here_s.values()) / there_s if there_s else 1.0

    def _evidence(self, name: str) -> list[Record]:
        """Of the machine that has most of it: of this plan's workload, or of the default one."""
        if name not in self.evidence:
            machines, _ = published_by_machine(self.plan.project.docs / "data")
            default = workloads.resolve(workloads.DEFAULT).params()
            for workload in (self.plan.workload, default):
                there = replace(self.plan, workload=workload)
                found = (_results(there, machine, name) for machine in machines.values())
                self.evidence[name] = max(found, key=len, default=[])
                if self.evidence[name]:
                    break
        return self.evidence[name]


def _results(plan: StoredPlan, machine: Source, name: str) -> list[Record]:
    """What a machine has of an experiment under a plan, as far as it can be used."""
    plan = replace(plan, store=machine)
    with contextlib.suppress(MadlError, Pending):
        found = [machine.get(case) for case in plan.cases(name)] if plan.is_ready(name) else []
        return [record for record in found if record and record.status == "ok"]
    return []


def varying(cases: Sequence[Case]) -> list[str]:
    """The parameters that tell these cases apart; all else is the same wherever it appears."""
    keys = {key: None for case in cases for key in case.params}
    return [key for key in keys if len({c.params[key] for c in cases if key in c.params}) > 1]


def _told_apart(case: Case, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(case.params.get(key) for key in keys)
