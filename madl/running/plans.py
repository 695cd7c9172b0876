"""What there is to do: the cases of a run, what is left of them, and what cannot be done here."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from madl.errors import MadlError, WrongCommand
from madl.logbook.experiment import CONFIRMING_SEEDS, PROFILES, TUNING, Profile, Question
from madl.logbook.records import (
    RUNS_AGAIN,
    Case,
    Params,
    Pending,
    Record,
    Records,
    Run,
    Source,
    Store,
    published_by_machine,
    select,
)
from madl.logbook.stats import counted
from madl.machine import device as machine
from madl.running.project import Project
from madl.training import examination, workloads

T = TypeVar("T")
MOST_SHARES = 10_000  # more than any run has cases: most of them would have nothing to do


@dataclass(frozen=True)
class StoredPlan:
    """The plan of a run: what `Experiment.cases` sees (see `experiment.Plan`).

    `host` is the machine whose committed evidence the store is. With `is_fixed` the store stays as
    it is, so that cases and results are looked up once.
    """

    project: Project
    store: Source
    profile: Profile
    workload: Params
    num_seeds: int = len(CONFIRMING_SEEDS)
    host: str | None = None
    is_fixed: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        return CONFIRMING_SEEDS[: 1 if self.profile.name == "smoke" else self.num_seeds]

    @property
    def options(self) -> str:
        """Of the command line, that choose this plan."""
        fewer = self.profile.name == "full" and self.num_seeds < len(CONFIRMING_SEEDS)
        seeds = f" --seeds {self.num_seeds}" if fewer else ""
        return f"--profile {self.profile.name}{seeds}{workloads.arguments(self.workload)}"

    def cases(self, name: str) -> list[Case]:
        """The cases of an experiment; none, where the model has not what it requires."""
        return self._once(
            "cases",
            name,
            lambda: [] if self.why_unsuitable(name) else self.project.cases(name, self),
        )

    def why_unsuitable(self, name: str) -> str | None:
        """Why this workload's model cannot answer what the experiment asks, as far as is known."""
        experiment = self.project.load(name)
        if why := self._lacking(experiment.required):
            return why
        needs = (self.why_unsuitable(needed) for needed in experiment.needs)
        return next(filter(None, needs), None)

    def why_unavailable(self, case: Case) -> str | None:
        """Why a case cannot run with this model, or on this machine."""
        required = self.project.load(case.experiment).required_by(case.params)
        return self._lacking(required) or self.project.why_unavailable(case)

    def why_partly(self, question: Question) -> str | None:
        """Why this workload's model cannot answer all of what a question asks."""
        experiment = self.project.load(question.stem)
        params = (one for asked in question.asked for one in asked.combinations)
        whys = (self._lacking(experiment.required_by(one)) for one in params)
        return self.why_unsuitable(question.stem) or next(filter(None, whys), None)

    def _lacking(self, required: Sequence[str]) -> str | None:
        lacks = self._examination.lacks if required and self._examination else {}
        missing = (lacks[need] for need in required if need in lacks)
        return next((f"not for this model: {why}" for why in missing), None)

    @cached_property
    def _examination(self) -> examination.Examination | None:
        if not examination.is_needed(self.workload):
            return None
        return examination.known(self.project.state, self.workload)

    def records(self, name: str) -> Records:
        return select(self.store, self.cases(name))

    def finished(self, name: str) -> list[Record]:
        """Results as they are stored, and the cases that this machine cannot run."""
        return self._once("finished", name, lambda: self._finished(name))

    def _finished(self, name: str) -> list[Record]:
        found = (self.store.get(case) for case in self.cases(name))
        return [record for record in found if record and self.stands(record)]

    def stands(self, record: Record) -> bool:
        """Whether it is a result, or still true that this machine cannot give one.

        Whether another machine still cannot is not to be known here.
        """
        if record.status != "skipped" or not self._is_of_here(record):
            return record.status != "failed"
        return self.why_unavailable(record.case) is not None

    def lacks_no_more(self, record: Record) -> bool:
        """Whether it was made without a program that is there now."""
        lacked = record.run.lacked
        return bool(lacked) and self._is_of_here(record) and bool(machine.programs().get(lacked))

    def _is_of_here(self, record: Record) -> bool:
        return self.host is None and record.run.host == machine.host_label()

    def good(self, name: str) -> list[Record]:
        """The results that there are."""
        found = self.finished(name) if self.is_ready(name) else []
        return [record for record in found if record.status == "ok"]

    def _once(self, what: str, name: str, make: Callable[[], list[T]]) -> list[T]:
        if not self.is_fixed:
            return make()
        if (what, name) not in self._known:
            self._known[what, name] = make()
        return self._known[what, name]

    @cached_property
    def _known(self) -> dict[tuple[str, str], list[Any]]:
        return {}

    def is_complete(self, name: str) -> bool:
        """Whether every case has its result, or cannot have one on this machine."""
        return self.is_ready(name) and len(self.finished(name)) == len(self.cases(name))

    def is_ready(self, name: str) -> bool:
        """Whether all that the experiment needs is complete, so that its cases are known."""
        return all(self.is_complete(needed) for needed in self.project.load(name).needs)

    def can_become_ready(self, name: str) -> bool:
        """Whether nothing that it needs, at any distance, has failed."""
        for needed in self.project.load(name).needs:
            if not self.can_become_ready(needed):
                return False
            found = [self.store.get(c) for c in self.cases(needed)] if self.is_ready(needed) else []
            if any(record and record.status == "failed" for record in found):
                return False
        return True

    @property
    def whole(self) -> "StoredPlan":
        """What is asked for: of quick, full's plan."""
        if self.profile.name != "quick":
            return self
        return StoredPlan(self.project, self.store, PROFILES["full"], self.workload, self.num_seeds)

    @cached_property
    def by_seeds(self) -> "list[StoredPlan]":
        """This plan, and those of fewer seeds."""
        fewer = range(self.num_seeds - 1, 0, -1)
        return [self, *(replace(self, num_seeds=num_seeds) for num_seeds in fewer)]

    def has_all(self, name: str) -> bool:
        """Whether it is complete and there are results."""
        return self.is_complete(name) and bool(self.good(name))


def published_plans(plan: StoredPlan, machines: Mapping[str, Source]) -> list[StoredPlan]:
    """The plan on the committed evidence of each machine; in the smoke profile, none."""
    if plan.profile.name == "smoke":
        return []
    full = plan.whole
    asked = full.profile, full.workload, full.num_seeds
    return [
        StoredPlan(full.project, machine, *asked, host=host, is_fixed=True)
        for host, machine in machines.items()
    ]


@dataclass(frozen=True)
class _Beside:
    """One store's results of an experiment, and of what it needs others' where it has none."""

    own: Source
    name: str
    machines: Sequence[Source]

    def get(self, case: Case) -> Record | None:
        record = self.own.get(case)
        is_good = record is not None and record.status == "ok"
        if is_good or case.experiment.removesuffix(TUNING) == self.name:
            return record
        others = (machine.get(case) for machine in self.machines)
        return next((other for other in others if other and other.status == "ok"), record)


def readied(plans: Sequence[StoredPlan], name: str) -> list[StoredPlan]:
    """Each plan; on others' published evidence of what the experiment needs, where it lacks that.

    What others chose is followed then: it is not chosen anew on each machine.
    """
    published = [plan.store for plan in plans if plan.host is not None]
    return [
        plan
        if plan.is_ready(name)
        else replace(plan, store=_Beside(plan.store, name, published), is_fixed=True)
        for plan in plans
    ]


def most_complete(plans: Iterable[StoredPlan], name: str) -> StoredPlan:
    """The plan with the evidence that a page shows; of equal ones, the first.

    A whole one before all others, of more seeds before one of fewer, this machine's own before a
    published one; of parts, the one with most results, or of which the cases are known.
    """

    def rank(plan: StoredPlan) -> tuple[object, ...]:
        is_whole, is_own = plan.has_all(name), plan.host is None
        good = len(plan.good(name))
        return is_whole, is_whole * plan.num_seeds, is_whole and is_own, good, plan.is_ready(name)

    found = (next((p for p in plan.by_seeds if p.has_all(name)), plan) for plan in plans)
    return max(found, key=rank)


@dataclass(frozen=True)
class Sample(StoredPlan):
    """The quick profile: of full's cases, with equal keys, those that each page's `quick` takes.

    With `only`, those that have this value ("cuda") instead. The cases are those of the most
    complete evidence, so nothing has to be run for its choices.
    """

    only: str | None = None

    def cases(self, name: str) -> list[Case]:
        if ("cases", name) not in self._known:
            shown = most_complete(readied(self._plans, name), name)
            every = shown.cases(name) if shown.is_ready(name) else []
            self._known["cases", name] = [
                case
                for case in every
                if (self.only in case.params.values() if self.only else self.project.is_quick(case))
            ]
        return self._known["cases", name]

    @cached_property
    def _plans(self) -> list[StoredPlan]:
        machines, _ = published_by_machine(self.project.docs / "data")
        own = replace(self.whole, store=Readable(self.store), is_fixed=True)
        return [own, *published_plans(self, machines)]

    def is_ready(self, name: str) -> bool:
        return True


@dataclass(frozen=True)
class Listed(StoredPlan):
    """Given cases, by experiment. They need nothing: the choices that they follow are made."""

    listed: Mapping[str, Sequence[Case]] = field(default_factory=dict[str, Sequence[Case]])

    def cases(self, name: str) -> list[Case]:
        return list(self.listed.get(name, ()))

    def is_ready(self, name: str) -> bool:
        return True


@dataclass(frozen=True)
class FirstOf:
    """The good result that the first of several sources has; else what the last one has."""

    sources: Sequence[Source]

    def get(self, case: Case) -> Record | None:
        record = None
        for source in self.sources:
            if (record := source.get(case)) and record.status == "ok":
                break
        return record


def transferred(case: Case, workload: Params) -> Case:
    """The same case of another workload; itself, where it has none, or chose what others run."""
    if workloads.of_case(case.params) is None or case.experiment.endswith(TUNING):
        return case
    return replace(case, params={**case.params, **workload})


def is_published(plan: StoredPlan) -> bool:
    """Whether there is evidence of this plan's workload."""
    machines, _ = published_by_machine(plan.project.docs / "data")
    every = (r for one in machines.values() for r in one.by_key.values())
    return any(workloads.of_case(r.case.params) == plan.workload for r in every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, never what: nothing here can change a result's key."""

    device: str = "cpu"
    jobs: int = 1
    force: bool = False
    shard: tuple[int, int] = (1, 1)
    scheduler: str | None = None  # of a Dask cluster, which then executes all cases


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n`: the i-th of n shares of the cases, 1-based.

    Raises:
        WrongCommand: not of that form, i outside 1 … n, or more shares than anybody has cases.
    """
    match = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= MOST_SHARES:
        raise WrongCommand(
            f"--shard is i/n with 1 <= i <= n <= {MOST_SHARES:,}, for example 2/3; "
            f"got {text[:40]!r}"
        )
    return int(match[1]), int(match[2])


def parse_seeds(text: str | None, profile: str) -> int:
    """How many of the confirming seeds.

    Raises:
        WrongCommand: not one of 1 … 5, or of another profile than full.
    """
    most = len(CONFIRMING_SEEDS)
    if text is None:
        return most
    if profile != "full":
        raise WrongCommand("--seeds is of the full profile; leave it out, or use --profile full")
    if text not in map(str, range(1, most + 1)):
        raise WrongCommand(f"--seeds is 1 to {most}; got {text[:40]!r}")
    return int(text)


def profile_named(name: str) -> Profile:
    """Raises: WrongCommand: there is no such profile."""
    if name not in PROFILES:
        raise WrongCommand(f"unknown profile {name!r}; known: {', '.join(PROFILES)}")
    return PROFILES[name]


def with_needs(plan: StoredPlan, names: Sequence[str]) -> list[str]:
    """These experiments and all they need, in order; all of them when none is named.

    A sample needs nothing, nor do listed cases: the choices that they follow are made.
    """
    project = plan.project
    every = project.with_needs(names) if names else project.names()
    needs = not isinstance(plan, Sample | Listed)
    return [name for name in every if not names or name in names or needs]


@dataclass(frozen=True)
class Readable:
    """A store without the records that cannot be read; `note` is told why."""

    store: Source
    note: Callable[[MadlError], object] = lambda error: None

    def get(self, case: Case) -> Record | None:
        try:
            return self.store.get(case)
        except MadlError as error:
            self.note(error)
            return None


def check_records(plan: StoredPlan, names: Sequence[str]) -> None:
    """Raises: MadlError: every record of these experiments' cases that cannot be read."""
    damaged: dict[str, None] = {}  # what is wrong with each
    readable = Readable(plan.store, lambda error: damaged.setdefault(str(error)))
    plan = replace(plan, store=readable)
    for name in names:
        if plan.is_ready(name):
            plan.finished(name)
        elif damaged:  # perhaps only therefore, and its cases may be known all the same
            with contextlib.suppress(MadlError, Pending):
                plan.finished(name)
    if damaged:
        said = [line.removesuffix(f"; {RUNS_AGAIN}") for line in damaged]
        them, their = ("it", "its case") if len(said) == 1 else ("them", "their cases")
        do = f"delete {them} and {their} will run again, or run with --force"
        raise MadlError("; ".join([*said, do]))


def todo(plan: StoredPlan, name: str, options: Options) -> list[Case]:
    """Cases of this shard that can run here and have no good record: failed ones are retried.

    So are those that were made without a program that is there by now.
    """
    mine = [case for case in plan.cases(name) if is_mine(case, options)]
    if not options.force:
        known = ((case, plan.store.get(case)) for case in mine)
        mine = [c for c, r in known if r is None or r.status != "ok" or plan.lacks_no_more(r)]
    if options.scheduler is not None:
        return mine  # what can run is for the workers to say
    return [case for case in mine if plan.why_unavailable(case) is None]


def is_mine(case: Case, options: Options) -> bool:
    """Whether the case is of this shard."""
    index, count = options.shard
    return int(case.key, 16) % count == index - 1


def skip(plan: StoredPlan, store: Store, name: str, device: str) -> None:
    """Store why cases cannot run on this machine, where the store does not say so yet."""
    for case in plan.cases(name):
        reason = plan.why_unavailable(case)
        known = plan.store.get(case)
        if reason is None or (known and (known.status == "ok" or known.error == reason)):
            continue
        store.put(without_values(plan.project.root, device, case, "skipped", reason))


def why_nothing(plan: StoredPlan, names: Sequence[str]) -> Iterator[str]:
    """Of experiments of which no case was run: what keeps this machine from it, or that all is."""
    whole: list[str] = []
    unsuitable = {name: why for name in names if (why := plan.why_unsuitable(name))}
    yield from (f"{name}: {why}" for name, why in unsuitable.items())
    names = [name for name in names if name not in unsuitable]
    untaken = [name for name in names if plan.is_ready(name) and not plan.cases(name)]
    if untaken:
        is_quick = isinstance(plan, Sample) and plan.only is None
        why = "not in the quick profile, but in full" if is_quick else "no case of this choice"
        yield f"{why}: {', '.join(untaken)}"
    for name in (name for name in names if name not in untaken):
        found = plan.finished(name) if plan.is_ready(name) else []
        skipped = [record for record in found if record.status == "skipped"]
        for why, count in Counter(record.error for record in skipped).items():
            yield f"{name}: {counted(count, 'case')} not for this machine: {why}"
        if not skipped and plan.is_complete(name):
            whole.append(name)
    if whole:
        yield f"already done: {', '.join(whole)}"


def without_values(
    root: Path, device: str, case: Case, status: Literal["failed", "skipped"], why: str
) -> Record:
    """The record of a case that was not executed, or whose end nobody saw."""
    run = Run(**machine.provenance(root, case.experiment, device), contention=None)
    return Record(case=case, status=status, values={}, seconds=0.0, run=run, error=why)


def state_of(plan: StoredPlan, name: str) -> dict[str, Any]:
    """Counts of an experiment's cases, for `status`."""
    damaged: dict[str, None] = {}  # what is wrong with each
    its = Readable(plan.store, lambda error: damaged.setdefault(str(error)))
    plan = replace(plan, store=Readable(plan.store))
    needs = plan.project.load(name).needs
    ready = plan.is_ready(name)
    records = [its.get(case) for case in plan.cases(name)] if ready else []
    kept = [r for r in records if r and not plan.lacks_no_more(r)]
    ok = [r for r in kept if r.status == "ok"]
    failed = [r for r in kept if r.status == "failed"]
    skipped = [r for r in kept if r.status == "skipped" and plan.stands(r)]
    code = plan.project.code(name)
    return {
        "name": name,
        "ready": ready,
        "waits_for": [] if ready else [n for n in needs if not plan.is_complete(n)],
        "cases": len(records),
        "ok": len(ok),
        "failed": len(failed),
        "skipped": len(skipped),
        "damaged": len(damaged),
        "left": len(records) - sum(map(len, (ok, failed, skipped, damaged))),
        "changed": sum(record.run.code != code for record in ok),
        "errors": [
            *filter(None, [plan.why_unsuitable(name)]),
            *sorted({record.error or "" for record in [*failed, *skipped]}),
            *damaged,
        ],
    }
