"""Searches on Optuna: random, grid and TPE over named choices, resumable, shared by workers.

A study is a folder: a journal that every finished trial is appended to, and locks that the kernel
lets go of when their process dies. A trial is an index, and what is drawn at an index depends on
the seed, the index and the trials before it alone. So a study that was killed goes on with what is
left of it and ends as if nothing had happened; a trial that was killed is tried again. Several
workers may call `search` on one folder: each takes the next free index, all return the same list.

Trials hold JSON only. The objective is larger when better, and it is for validation data: what a
search chooses by is not what it may be judged by.

Source: TPE, Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", NeurIPS.
Not handled: choices that exist only under another choice; several objectives.
"""

import functools
import hashlib
import json
import math
import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from madl.errors import MadlError
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Scalar
from madl.training import study_journal

optuna.logging.set_verbosity(optuna.logging.WARNING)

SCHEMA = 1
SAMPLERS = ("random", "grid", "tpe")
STARTUP_TRIALS = 10  # Optuna's default: TPE draws these at random
TPE_CANDIDATES = 24
GRID_LIMIT = 1_000_000  # points; the order they are visited in is held in memory
POLL_S = 0.2
_KEPT = {"index", "at_random", "worker", "notes"}  # beside the point and its value

Space = Mapping[str, Sequence[Scalar]]
Point = Mapping[str, Scalar]
Objective = Callable[[Point], tuple[float, Mapping[str, Any]]]  # its value, and notes to keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One finished trial: the point, its value, the objective's notes.

    `at_random`: drawn without a look at earlier trials; always, except by TPE after its start-up.
    """

    index: int
    point: dict[str, Scalar]
    value: float
    notes: dict[str, Any]
    at_random: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def settings(sampler: str) -> dict[str, Scalar]:
    """All that defines a sampler beside its seed, to be shown and to be compared on resuming.

    Raises:
        MadlError: there is no such sampler.
    """
    if sampler not in SAMPLERS:
        raise MadlError(f"unknown sampler {sampler!r}; known: {', '.join(SAMPLERS)}")
    if sampler == "grid":
        return {"sampler": sampler, "order": "every point once, shuffled by the seed"}
    if sampler == "random":
        return {"sampler": sampler}
    return {
        "sampler": sampler,
        "startup_trials": STARTUP_TRIALS,
        "candidates": TPE_CANDIDATES,
        "multivariate": True,
        "constant_liar": True,
    }


def search(
    folder: Path, space: Space, objective: Objective, *, sampler: str, seed: int, trials: int
) -> list[Trial]:
    """Bring the study in `folder` to that many trials, and return them by index.

    A grid ends where it has no more points. Trials that other workers are at are waited for.

    Raises:
        MadlError: a space, a sampler or a study that cannot be searched; see `check_space`.
        ValueError: an objective that is not a finite number, or notes that are not JSON.
    """
    check_space(space)
    if sampler == "grid":
        trials = min(trials, _grid_size(space))
    identity = {
        "schema": SCHEMA,
        "optuna": optuna.__version__,
        "sampler": settings(sampler),
        "seed": seed,
        "space": [[name, list(values)] for name, values in space.items()],
    }
    folder.mkdir(parents=True, exist_ok=True)
    claim = FileLock(folder / "claim.lock")
    with _worker(folder) as worker:
        with claim:
            study = study_journal.opened(folder / "study.journal", identity, _KEPT)
        while True:
            with claim:
                _fail_killed_trials(study, folder, worker)
                index = _next_index(study, trials)
                trial = None if index is None else _ask(study, space, sampler, seed, index, worker)
            if trial is not None:
                _tell(study, trial, *objective(_point(space, trial.params)))
            elif len(_finished(study, trials)) == trials:
                break
            else:
                time.sleep(POLL_S)  # what is left is in other workers' hands
    return [_as_trial(space, trial) for _, trial in sorted(_finished(study, trials).items())]


# ---- the space ----------------------------------------------------------------------------------


def num_points(space: Space) -> int:
    """How many points a full grid has."""
    return math.prod(len(values) for values in space.values())


def check_space(space: Space) -> None:
    """Refuse a space in which a parameter cannot change anything.

    Raises:
        MadlError: no parameters, or one with fewer than two different values.
    """
    if not space:
        raise MadlError("the search space has no parameters; name at least one and its values")
    for name, values in space.items():
        if len(set(map(repr, values))) < max(len(values), 2):
            raise MadlError(
                f"search parameter {name} has the values {list(values)}: it needs two or more, "
                "all different; leave it out if it is not to be searched"
            )


def _grid_size(space: Space) -> int:
    size = num_points(space)
    if size > GRID_LIMIT:
        raise MadlError(
            f"a grid over {', '.join(space)} has {size:,} points, the limit is {GRID_LIMIT:,}; "
            "give fewer values, or use the random sampler"
        )
    return size


def grid_point(space: Space, number: int) -> dict[str, Scalar]:
    """The point of that number in the grid, counted with the last parameter fastest."""
    point: dict[str, Scalar] = {}
    for name in reversed(list(space)):
        number, i = divmod(number, len(space[name]))
        point[name] = space[name][i]
    return {name: point[name] for name in space}


def _is_ordered(values: Sequence[Scalar]) -> bool:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) and numbers == sorted(numbers)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Ascending numbers keep their order, as indices; everything else is a set of categories."""
    return {
        name: IntDistribution(0, len(values) - 1)
        if _is_ordered(values)
        else CategoricalDistribution(range(len(values)))
        for name, values in space.items()
    }


def _point(space: Space, indices: Mapping[str, int]) -> dict[str, Scalar]:
    return {name: values[indices[name]] for name, values in space.items()}


# ---- the study ----------------------------------------------------------------------------------


@contextmanager
def _worker(folder: Path) -> Generator[str]:
    """A name for this worker, and a lock that is held for as long as it lives."""
    name = uuid.uuid4().hex
    path = _worker_path(folder, name)
    try:
        with FileLock(path):
            yield name
    finally:
        path.unlink(missing_ok=True)


def _worker_path(folder: Path, worker: str) -> Path:
    return folder / f"worker-{worker}.lock"


def _is_alive(folder: Path, worker: str | None) -> bool:
    path = _worker_path(folder, worker or "")
    if not path.exists():
        return False
    try:
        with FileLock(path, blocking=False):
            pass
    except Timeout:
        return True
    path.unlink(missing_ok=True)
    return False


def _fail_killed_trials(study: optuna.Study, folder: Path, me: str) -> None:
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get("worker")  # None: killed before it had even said its name
        if worker != me and not _is_alive(folder, worker):
            study.tell(trial.number, state=TrialState.FAIL)


def _next_index(study: optuna.Study, trials: int) -> int | None:
    states = (TrialState.COMPLETE, TrialState.RUNNING)
    taken = {t.user_attrs["index"] for t in study.get_trials(deepcopy=False, states=states)}
    return next((index for index in range(trials) if index not in taken), None)


def _ask(
    study: optuna.Study, space: Space, sampler: str, seed: int, index: int, worker: str
) -> optuna.Trial:
    finished = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    study.sampler = _sampler(space, sampler, seed, index)
    trial = study.ask(_distributions(space))
    trial.set_user_attr("at_random", sampler != "tpe" or finished < STARTUP_TRIALS)
    trial.set_user_attr("index", index)
    trial.set_user_attr("worker", worker)
    return trial


def _sampler(space: Space, sampler: str, seed: int, index: int) -> BaseSampler:
    """A new one for every trial, so that what it draws does not depend on who drew before."""
    own_seed = int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:4])
    if sampler == "random":
        return RandomSampler(seed=own_seed)
    if sampler == "tpe":
        return TPESampler(
            seed=own_seed,
            n_startup_trials=STARTUP_TRIALS,
            n_ei_candidates=TPE_CANDIDATES,
            multivariate=True,
            constant_liar=True,
        )
    point = grid_point(space, _grid_order(num_points(space), seed)[index])
    return _Point({name: space[name].index(value) for name, value in point.items()})


@functools.lru_cache(maxsize=4)
def _grid_order(size: int, seed: int) -> list[int]:
    order = list(range(size))
    random.Random(seed).shuffle(order)
    return order


class _Point(BaseSampler):
    """One known point. Optuna's grid sampler counts a killed trial's point as visited."""

    def __init__(self, indices: Mapping[str, int]) -> None:
        self._indices = indices

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> int:
        return self._indices[param_name]


def _tell(study: optuna.Study, trial: optuna.Trial, value: float, notes: Mapping[str, Any]) -> None:
    if not math.isfinite(value):
        raise ValueError(f"the objective of {trial.params} is {value}; it must be a finite number")
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a trial keeps JSON only ({error}): {notes}") from error
    trial.set_user_attr("notes", dict(notes))
    study.tell(trial, value)


def _finished(study: optuna.Study, trials: int) -> dict[int, FrozenTrial]:
    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    by_index = {t.user_attrs["index"]: t for t in reversed(found)}
    return {index: trial for index, trial in by_index.items() if index < trials}


def _as_trial(space: Space, trial: FrozenTrial) -> Trial:
    assert trial.value is not None
    return Trial(
        index=trial.user_attrs["index"],
        point=_point(space, trial.params),
        value=trial.value,
        notes=trial.user_attrs["notes"],
        at_random=trial.user_attrs["at_random"],
    )


def study_folder(ctx: Context, params: Mapping[str, Scalar]) -> Path:
    """Where the study of a case with these parameters lives."""
    return ctx.folder(f"study-{_digest(params)}")


def of_case(
    ctx: Context, params: Params, space: Space, objective: Objective
) -> tuple[list[Trial], Trial]:
    """The study that a case's `sampler`, `seed` and `trials` describe, and its first best trial."""
    found = search(
        study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
    )
    return found, max(found, key=lambda trial: trial.value)


def remembered(
    ctx: Context, what: Mapping[str, Scalar], evaluate: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """What `evaluate` gives for `what`, evaluated once on this machine and then read.

    An objective is a function of its configuration, so studies that come by the same one share it.
    `what` must hold all that the result depends on.
    """

    def build(folder: Path) -> None:
        folder.mkdir()
        (folder / "value.json").write_text(json.dumps(evaluate(), allow_nan=False))
        (folder / "what.json").write_text(json.dumps(dict(what)))

    folder = ctx.artifact(f"trial-{_digest(what)}", build)
    return json.loads((folder / "value.json").read_text())


def _digest(what: Mapping[str, Scalar]) -> str:
    text = json.dumps(dict(what), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
