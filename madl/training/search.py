"""Searches on Optuna: random, grid and TPE over named choices, which go on after a kill.

A study is a folder with a file for each finished trial. A trial is an index, and what is drawn at
an index depends on the seed, the index and the trials before it alone. So a study that was killed
goes on with what is left of it and ends as if nothing had happened; a trial that was killed is
tried again. Whoever calls `search` on a folder that another process searches waits for that one.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial

from madl.errors import MadlError
from madl.files import read_text, write_atomically
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Scalar

optuna.logging.set_verbosity(optuna.logging.WARNING)

SCHEMA = 1
SAMPLERS = ("random", "grid", "tpe")
STARTUP_TRIALS = 10  # Optuna's default: TPE draws these at random
TPE_CANDIDATES = 24
GRID_LIMIT = 1_000_000  # points; the order they are visited in is held in memory
MEND = "remove it and what was drawn after it, and they will run again"
ANEW = "move its folder away to begin anew"

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
    folder: Path,
    space: Space,
    objective: Objective,
    *,
    sampler: str,
    seed: int,
    trials: int,
    begin: Sequence[Point] = (),
) -> list[Trial]:
    """Bring the study in `folder` to that many trials, and return them by index.

    A grid ends where it has no more points. The first trials are those that the study is to `begin`
    with; what is drawn after them has seen them.

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
        "begin": [dict(point) for point in begin],
    }
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "study.lock"):
        _check_identity(folder / "study.json", identity)
        study = optuna.create_study(direction="maximize")  # in memory, made anew of the files
        found: list[Trial] = []
        for index in range(trials):
            path = folder / f"trial-{index}.json"
            if path.exists():
                trial, told = _read(path, space, index)
                study.add_trial(told)
                found.append(trial)
            else:
                given = begin[index] if index < len(begin) else None
                found.append(_run(study, space, objective, sampler, seed, index, given))
                write_atomically(path, json.dumps(found[-1].to_json(), allow_nan=False))
    return found


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


def _indices(space: Space, point: Point) -> dict[str, int]:
    return {name: values.index(point[name]) for name, values in space.items()}


# ---- the study ----------------------------------------------------------------------------------


def _check_identity(path: Path, wanted: Mapping[str, Any]) -> None:
    """That a study was made as this one would be; one that begins says how it is made.

    Raises:
        MadlError: it was made otherwise, or cannot be read.
    """
    wanted = json.loads(json.dumps(wanted))
    if not path.exists():
        write_atomically(path, json.dumps(wanted))
    try:
        found = {part: json.loads(read_text(path, ANEW))[part] for part in wanted}
    except (ValueError, KeyError, TypeError) as error:
        raise MadlError(f"{path} does not say how a study was made ({error}); {ANEW}") from error
    for part in wanted:
        if found[part] != wanted[part]:
            raise MadlError(
                f"{path} was made with {part} {found[part]}, this search has {part} "
                f"{wanted[part]}; {ANEW}, or go on with what it was made with"
            )


def _read(path: Path, space: Space, index: int) -> tuple[Trial, FrozenTrial]:
    """A finished trial, and the same as samplers see it.

    Raises:
        MadlError: it is not the trial of this index and space.
    """
    try:
        trial = Trial(**json.loads(read_text(path, MEND)))
        if trial.index != index:
            raise ValueError(f"it is trial {trial.index}")
        indices, shapes = _indices(space, trial.point), _distributions(space)
        return trial, create_trial(params=indices, distributions=shapes, value=trial.value)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MadlError(f"{path} is not trial {index} of this study ({error}); {MEND}") from error


def _run(
    study: optuna.Study,
    space: Space,
    objective: Objective,
    sampler: str,
    seed: int,
    index: int,
    given: Point | None,
) -> Trial:
    """Draw, unless the point is given, evaluate, and tell the study."""
    if given is not None:
        study.enqueue_trial(_indices(space, given))
    elif sampler == "grid":  # Optuna's own grid sampler does not know which point comes at an index
        point = grid_point(space, _grid_order(num_points(space), seed)[index])
        study.enqueue_trial(_indices(space, point))
    else:
        study.sampler = _sampler(sampler, seed, index)
    asked = study.ask(_distributions(space))
    point = {name: values[asked.params[name]] for name, values in space.items()}
    value, notes = objective(point)
    if not math.isfinite(value):
        raise ValueError(f"the objective of {point} is {value}; it must be a finite number")
    try:
        notes = json.loads(json.dumps(notes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a trial keeps JSON only ({error}): {notes}") from error
    study.tell(asked, value)
    at_random = sampler != "tpe" or given is not None or index < STARTUP_TRIALS
    return Trial(index=index, point=point, value=value, notes=notes, at_random=at_random)


def _sampler(sampler: str, seed: int, index: int) -> BaseSampler:
    """A new one for every trial, so that what it draws does not depend on who drew before."""
    own_seed = int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:4])
    if sampler == "random":
        return RandomSampler(seed=own_seed)
    return TPESampler(
        seed=own_seed,
        n_startup_trials=STARTUP_TRIALS,
        n_ei_candidates=TPE_CANDIDATES,
        multivariate=True,
        constant_liar=True,
    )


@functools.lru_cache(maxsize=4)
def _grid_order(size: int, seed: int) -> list[int]:
    order = list(range(size))
    random.Random(seed).shuffle(order)
    return order


def study_folder(ctx: Context, params: Mapping[str, Scalar]) -> Path:
    """Where the study of a case with these parameters lives."""
    return ctx.folder(f"study-{_digest(params)}")


def of_case(
    ctx: Context,
    params: Params,
    space: Space,
    objective: Objective,
    begin: Sequence[Point] = (),
) -> tuple[list[Trial], Trial]:
    """The study that a case's `sampler`, `seed` and `trials` describe, and its first best trial."""
    found = search(
        study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
        begin=begin,
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
