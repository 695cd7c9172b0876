"""Records for tests: models and times that are made up, and one machine's evidence."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from madl.logbook.arms import Arm, TimedArm
from madl.logbook.experiment import PROFILES
from madl.logbook.records import Case, Record, Records, Store, read_published, sealed
from madl.logbook.searches import preferred_rate
from madl.logbook.values import Outcomes
from madl.running.pages import Page, pages
from madl.running.plans import RunPlan
from madl.running.project import Project
from madl.training import workloads
from tests.conftest import a_record, a_run

DATA = Path(__file__).parents[1] / "docs" / "data"
EXAMPLES = 2000


def published(name: str) -> list[Record]:
    """The committed evidence of the machine that has most of it."""
    every = read_published(DATA / f"{name}.jsonl")
    ((host, _),) = Counter(record.run.host for record in every).most_common(1)
    return [record for record in every if record.run.host == host]


@functools.cache
def evidence() -> list[Page]:
    """Every page of the committed evidence, nothing beside it."""
    return pages(full_plan(), Store(DATA / "none"))


def full_plan() -> RunPlan:
    """Full's plan, of the default workload."""
    return RunPlan(Project(), PROFILES["full"], workloads.resolve("snippets").params())


def tuned_rate(records: Sequence[Record], name: str) -> float:
    """The rate that the collapse rule takes of these records of a tuning seed."""
    return preferred_rate({r.case.params[name]: r.values["validation_loss"] for r in records})


def judgement(
    correct: Any, *, validation: float = 0.8, loss: float | None = None, examples: str = "test"
) -> dict[str, Any]:
    """What a case keeps of a model: `correct` is how many of the examples, or which of them."""
    if isinstance(correct, int):
        correct = np.arange(EXAMPLES) < correct
    correct = np.asarray(correct, bool)
    kept = {"validation_accuracy": validation, "accuracy": float(correct.mean()), "loss": 0.5}
    kept |= {} if loss is None else {"validation_loss": loss}
    return kept | {"outcomes": Outcomes(correct, examples).to_json()}


def kept_of(experiment: str, values: dict[str, Any], **params: Any) -> Record:
    """What an experiment keeps of the case with these parameters."""
    return a_record(case=Case(experiment=experiment, params=params), values=values)


def model(correct: Any, *, params: dict[str, Any] | None = None, **kept: Any) -> Record:
    """The record of one model as it is stored."""
    return kept_of(
        "toy", judgement(correct, **kept), **{"method": "a", "seed": 0, **(params or {})}
    )


def read(*records: Record, missing: Sequence[Case] = ()) -> Records:
    """Records as an experiment reads them."""
    return Records(map(sealed, records), missing)


def an_arm(label: str, *correct: Any, **kept: Any) -> Arm:
    """One model a seed."""
    records = [
        model(one, params={"method": label, "seed": seed}, **kept)
        for seed, one in enumerate(correct)
    ]
    return Arm(label=label, records=tuple(read(*records)))


def two_models(
    rng: np.random.Generator,
    n: int = EXAMPLES,
    *,
    difference: float = 0.0,
    discordant: float = 0.06,
) -> tuple[Any, Any]:
    """Correctness of two models that disagree on this share; B's accuracy is larger by this."""
    u, right = rng.random(n), rng.random(n) < 0.8
    of_a = u < (discordant - difference) / 2
    of_b = ~of_a & (u < discordant)
    return np.where(of_b, False, of_a | right), np.where(of_a, False, of_b | right)


def samples(median_s: float, *, seed: int = 0, count: int = 20) -> list[float]:
    """Times about this median, with a scatter of a per cent."""
    return list(median_s * np.exp(0.01 * np.random.default_rng(seed).standard_normal(count)))


def a_measurement(samples_s: Sequence[float], **changes: Any) -> dict[str, Any]:
    """The JSON of a `timing.Measurement` in which the linter finds no mistake."""
    subject = {"dtype": "float32", "shape": "(1, 8)", "training": False, "records_gradient": False}
    good = {
        "samples_s": list(samples_s),
        "calls_per_sample": 1,
        "first_call_s": 1.5,
        "clock": "perf_counter",
        "result_on": "cpu",
        "unfinished": None,
        "warmup_s": [0.01, 0.01],
        "device": "cpu",
        "turns": len(samples_s) - 1,
        "compilations": 0,
        "contention": 0.0,
        "subject": subject,
    }
    return {**good, **changes}


def a_process(index: int, contention: float | None = 0.0, **variants: Any) -> Record:
    """The record of one process in which variants took turns."""
    case = Case(experiment="toy", params={"process": index})
    run = a_run(contention=contention)
    return a_record(case=case, values={"measurements": variants}, run=run)


def a_timed_arm(label: str, *by_process: Sequence[float], contention: float | None = 0.0):
    """A variant with these samples, a list a process."""
    runs = tuple(a_measurement(one, contention=contention) for one in by_process)
    records = tuple(a_process(i) for i in range(len(by_process)))
    return TimedArm(label=label, records=records, runs=runs)
