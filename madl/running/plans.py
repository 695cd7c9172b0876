"""Plans: which cases there are, by profile, workload and seeds; and options of how they run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from madl.logbook.experiment import (
    CONFIRMING_SEEDS,
    FURTHER_SEEDS,
    PROFILES,
    Plan,
    Profile,
    Question,
)
from madl.logbook.records import Case, Params
from madl.running.project import Project
from madl.training import examination, workloads


@dataclass(frozen=True)
class RunPlan:
    """A profile, a workload and a number of seeds.

    Which cases an experiment has depends on what earlier cases chose, too: experiments see a plan
    through `evidence.Evidence`.
    """

    project: Project
    profile: Profile
    workload: Params
    num_seeds: int = len(CONFIRMING_SEEDS)
    why_no_case: str = "no case of this choice"  # said of an experiment that has none
    is_further: bool = False  # of the further seeds
    is_of_one_split: bool = False  # of evidence that is older than folds: nothing new is planned so

    @property
    def seeds(self) -> tuple[int, ...]:
        """The confirming seeds; the further ones if it `is_further`."""
        seeds = FURTHER_SEEDS if self.is_further else CONFIRMING_SEEDS
        return seeds[: 1 if self.profile.name == "smoke" else self.num_seeds]

    @property
    def options(self) -> str:
        """The options of the command line that choose this plan."""
        fewer = self.profile.name == "full" and self.num_seeds < len(CONFIRMING_SEEDS)
        seeds = f" --seeds {self.num_seeds}" if fewer else ""
        return f"--profile {self.profile.name}{seeds}{workloads.arguments(self.workload)}"

    @property
    def whole(self) -> "RunPlan":
        """The plan of which this one takes some cases: full for quick, else the same profile's."""
        profile = PROFILES["full"] if self.profile.name == "quick" else self.profile
        return RunPlan(self.project, profile, self.workload, self.num_seeds)

    def cases(self, name: str, evidence: Plan) -> list[Case]:
        """The cases of an experiment; none if the model lacks what all of them require.

        Raises:
            Pending: `evidence` lacks a result that decides which they are.
        """
        return [] if self.why_unsuitable(name) else self.project.cases(name, evidence)

    def needs(self, name: str) -> Sequence[str]:
        """The experiments whose results decide which cases this one has."""
        return self.project.load(name).needs

    def with_needs(self, names: Sequence[str]) -> list[str]:
        """These experiments (all, if none is named) and all they need, each after its needs."""
        return self.project.with_needs(names) if names else self.project.names()

    def why_unsuitable(self, name: str) -> str | None:
        """Why this workload's model cannot answer the experiment; None if no reason is known."""
        experiment = self.project.load(name)
        if why := self._lacking(experiment.required):
            return why
        needs = (self.why_unsuitable(needed) for needed in experiment.needs)
        return next(filter(None, needs), None)

    def why_unavailable(self, case: Case) -> str | None:
        """Why a case cannot run with this model, or on this machine; None if it can."""
        return self.why_unfit(case) or self.project.why_unavailable(case)

    def why_unfit(self, case: Case) -> str | None:
        """Why a case cannot run with this model, wherever it runs; None if it can."""
        return self._lacking(self.project.required_by(case.experiment, case.params))

    def why_partly(self, question: Question) -> str | None:
        """Why this workload's model cannot answer all of what a question asks; None if it can."""
        stem = question.stem
        asked = (params for part in question.requirements for params in part.combinations)
        whys = (self._lacking(self.project.required_by(stem, params)) for params in asked)
        return self.why_unsuitable(stem) or next(filter(None, whys), None)

    def _lacking(self, required: Sequence[str]) -> str | None:
        """Why the model lacks one of these abilities; None if it has all, as far as is known."""
        lacks = self._examination.lacks if required and self._examination else {}
        missing = (lacks[need] for need in required if need in lacks)
        return next((f"not for this model: {why}" for why in missing), None)

    @cached_property
    def _examination(self) -> examination.Examination | None:
        if not examination.is_needed(self.workload):
            return None
        return examination.known(self.project.state, self.workload)


@dataclass(frozen=True)
class ExplicitPlan(RunPlan):
    """A plan of listed cases. They need no experiments: the choices that they follow are made."""

    listed: Callable[[str], Sequence[Case]] = lambda name: ()

    def cases(self, name: str, evidence: Plan) -> list[Case]:
        return list(self.listed(name))

    def needs(self, name: str) -> Sequence[str]:
        return ()

    def with_needs(self, names: Sequence[str]) -> list[str]:
        """These experiments, in order; all of them when none is named."""
        return [name for name in super().with_needs(names) if not names or name in names]


def explicit_plan(plan: RunPlan, cases: Iterable[Case]) -> ExplicitPlan:
    """The plan of only these cases, which are some of the plan's."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.experiment, []).append(case)
    scope = plan.project, plan.profile, plan.workload, plan.num_seeds
    return ExplicitPlan(*scope, listed=lambda name: by_name.get(name, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, never what: nothing here can change a result's key."""

    device: str = "cpu"
    jobs: int = 1
    force: bool = False
    scheduler: str | None = None  # of a Dask cluster, which then executes all cases
