"""Searches with Optuna: random, grid and TPE over named choices; a killed search can go on.

A study is a folder with a file for each finished trial. A trial is an index, and what is drawn at
an index depends on the seed, the index and the trials before it alone. So a study that was killed
goes on with what is left of it and ends as if nothing had happened; a trial that was killed is
tried again. Whoever calls `search` on a folder that another process searches waits for that one.

Trials hold JSON only. The objective is larger when better, and it is for validation data: what a
search chooses by is not what it may be judged by.

Source: TPE, Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", NeurIPS.
Not handled: choices that exist only under another choice; several objectives.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial

from madl.errors import MadlError
from madl.files import read_text, write_atomically
from madl.logbook.experiment import Context
from madl.logbook.records import Params, Scalar, digest_of

optuna.logging.set_verbosity(optuna.logging.WARNING)

SCHEMA = 1
SAMPLERS = ("random", "grid", "tpe", "independent tpe")
STARTUP_TRIALS = 10  # Optuna's default: TPE draws these at random
GRID_LIMIT = 100_000  # points; the order they are visited in is held in memory
MEND = "remove it and what was drawn after it, and they will run again"
ANEW = "move its folder away to begin anew"

Space = Mapping[str, Sequence[Scalar]]
Point = Mapping[str, Scalar]
Objective = Callable[[Point], tuple[float, Mapping[str, Any]]]  # its value, and notes to keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One finished trial: the point, its value, and the objective's notes.

    `at_random`: drawn without a look at earlier trials; always, except by TPE after its start-up.
    """

    index: int
    point: dict[str, Scalar]
    value: float
    notes: dict[str, Any]
    at_random: bool


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
    """Run the study in `folder` until it has `trials` trials, and return all of them, by index.

    A grid ends where it has no more points. The first trials are the points of `begin`, which count
    for what is drawn later.

    Raises:
        MadlError: a space, a sampler or a study that cannot be searched; see `check_space`.
        ValueError: an objective that is not a finite number, or notes that are not JSON.
    """
    check_space(space)
    if sampler not in SAMPLERS:
        raise MadlError(f"unknown sampler {sampler!r}; known: {', '.join(SAMPLERS)}")
    if sampler == "grid" and begin:
        raise MadlError("a grid takes every point once; give it no points to begin with")
    if sampler == "grid":
        trials = min(trials, _grid_size(space))
    identity = {
        "schema": SCHEMA,
        "optuna": optuna.__version__,
        "sampler": sampler,
        "seed": seed,
        "space": [[name, list(values)] for name, values in space.items()],
        "begin": [dict(point) for point in begin],
    }
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "study.lock"):
        _check_identity(folder / "study.json", identity)
        study = optuna.create_study(direction="maximize")  # in memory, made anew of the files
        finished: list[Trial] = []
        for index in range(trials):
            path = folder / f"trial-{index}.json"
            if path.exists():
                trial, frozen = _read(path, space, index)
                study.add_trial(frozen)
            else:
                first = begin[index] if index < len(begin) else None
                trial = _run(study, space, objective, sampler, seed, index, first)
                write_atomically(path, json.dumps(asdict(trial), allow_nan=False))
            finished.append(trial)
    return finished


# ---- the space ----------------------------------------------------------------------------------


def num_points(space: Space) -> int:
    """The number of points of a full grid."""
    return math.prod(len(values) for values in space.values())


def check_space(space: Space) -> None:
    """Refuse a space in which a parameter cannot change anything.

    Raises:
        MadlError: no parameters, or one with fewer than two values, or with equal ones.
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
    """The number of points of a grid. Raises MadlError: more than `GRID_LIMIT`."""
    size = num_points(space)
    if size > GRID_LIMIT:
        raise MadlError(
            f"a grid over {', '.join(space)} has {size:,} points, the limit is {GRID_LIMIT:,}; "
            "give fewer values, or use the random sampler"
        )
    return size


def _is_ordered(values: Sequence[Scalar]) -> bool:
    """Whether the values are numbers in ascending order."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) and numbers == sorted(numbers)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distributions over indices of values: ordered if ascending, else categories."""
    return {
        name: IntDistribution(0, len(values) - 1)
        if _is_ordered(values)
        else CategoricalDistribution(range(len(values)))
        for name, values in space.items()
    }


def _indices(space: Space, point: Point) -> dict[str, int]:
    """Parameter → index of the point's value."""
    return {name: values.index(point[name]) for name, values in space.items()}


# ---- the study ----------------------------------------------------------------------------------


def _check_identity(path: Path, identity: Mapping[str, Any]) -> None:
    """Write down how a study is made, or compare it with what is written there.

    Raises:
        MadlError: it was made otherwise, or cannot be read.
    """
    identity = json.loads(json.dumps(identity))
    if not path.exists():
        write_atomically(path, json.dumps(identity))
    try:
        written = {part: json.loads(read_text(path, ANEW))[part] for part in identity}
    except (ValueError, KeyError, TypeError) as error:
        raise MadlError(f"{path} does not say how a study was made ({error}); {ANEW}") from error
    for part in identity:
        if written[part] != identity[part]:
            raise MadlError(
                f"{path} was made with {part} {written[part]}, this search has {part} "
                f"{identity[part]}; {ANEW}, or go on with what it was made with"
            )


def _read(path: Path, space: Space, index: int) -> tuple[Trial, FrozenTrial]:
    """(trial, Optuna's form of it) from the file of a finished trial.

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
    first: Point | None,
) -> Trial:
    """Run one trial: draw a point, or take `first`, evaluate it, and tell the study."""
    if first is not None:
        study.enqueue_trial(_indices(space, first))
    else:
        study.sampler = _sampler(sampler, space, seed, index)
    trial = study.ask(_distributions(space))
    point = {name: values[trial.params[name]] for name, values in space.items()}
    value, notes = objective(point)
    if not math.isfinite(value):
        raise ValueError(f"the objective of {point} is {value}; it must be a finite number")
    try:
        notes = json.loads(json.dumps(notes, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a trial keeps JSON only ({error}): {notes}") from error
    try:
        study.tell(trial, value)
    except RuntimeError:  # with which Optuna's grid ends a study at its last point
        if sampler != "grid":
            raise
    at_random = "tpe" not in sampler or first is not None or index < STARTUP_TRIALS
    return Trial(index=index, point=point, value=value, notes=notes, at_random=at_random)


def _sampler(sampler: str, space: Space, seed: int, index: int) -> BaseSampler:
    """A new sampler for one trial, so that what it draws does not depend on earlier draws.

    All are Optuna's at their defaults, but for "independent tpe": each parameter by itself, as was
    the default before Optuna 5. A grid's points are shuffled by the study's seed.
    """
    if sampler == "grid":
        return GridSampler({name: range(len(values)) for name, values in space.items()}, seed=seed)
    own_seed = int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:4])
    match sampler:
        case "random":
            return RandomSampler(seed=own_seed)
        case "tpe":
            return TPESampler(seed=own_seed)
        case _:
            return TPESampler(seed=own_seed, multivariate=False)


def study_folder(ctx: Context, params: Mapping[str, Scalar]) -> Path:
    return ctx.folder(f"study-{digest_of(params)}")


def run_study(
    ctx: Context,
    params: Params,
    space: Space,
    objective: Objective,
    begin: Sequence[Point] = (),
) -> tuple[list[Trial], Trial]:
    """Run a case's study as its `params` describe it; returns all trials, and the (first) best."""
    trials = search(
        study_folder(ctx, params),
        space,
        objective,
        sampler=str(params["sampler"]),
        seed=int(params["seed"] or 0),
        trials=int(params["trials"] or 0),
        begin=begin,
    )
    return trials, max(trials, key=lambda trial: trial.value)


def memoized(
    ctx: Context, key: Mapping[str, Scalar], evaluate: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """The values of `evaluate()`, computed once on this machine for a key, then read.

    The key holds all that they depend on, so studies that come upon the same key share them.
    """

    def build(folder: Path) -> None:
        folder.mkdir()
        (folder / "value.json").write_text(json.dumps(evaluate(), allow_nan=False))
        (folder / "key.json").write_text(json.dumps(dict(key)))

    folder = ctx.artifact(f"trial-{digest_of(key)}", build, by=evaluate)
    return json.loads((folder / "value.json").read_text())
