"""A study of Optuna as a journal on disk, which survives whatever kills its writers.

A journal is a file to which every step of every trial is appended as a line of JSON, under a lock
that the kernel lets go of when its process dies. Opening one drops the half line that a killed
writer left, and refuses what no writer of this program can have left.
"""

import json
import logging
import os
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from madl.errors import MadlError

log = logging.getLogger(__name__)


class _KernelLock(JournalFileOpenLock):
    """Ends with its process: Optuna's own lock files make others wait 30 s for a killed one."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


class _Journal(JournalFileBackend):
    """Hands its lines to the kernel, which keeps them when their process is killed.

    Optuna's own waits for the disk at every parameter of every trial: for most of a study's time,
    where there are a hundred parameters. What a power failure tears is found when it is opened.
    """

    def __init__(self, path: Path, lock: _KernelLock) -> None:
        super().__init__(str(path), lock_obj=lock)
        self._path, self._kernel_lock = path, lock

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in logs)
        self._kernel_lock.acquire()
        try:
            with self._path.open("ab") as file:
                file.write(lines.encode())
        finally:
            self._kernel_lock.release()


def opened(path: Path, identity: Mapping[str, Any], kept: Set[str]) -> optuna.Study:
    """The study in that journal, begun where there is none.

    `identity` holds what it was made with; `kept`, what every finished trial has beside its point.

    Raises:
        MadlError: a journal that no writer of this program can have left, or of another study.
    """
    lock = _KernelLock(path.with_suffix(".lock"))
    if path.exists():
        lock.acquire()
        try:
            _check_journal(path)
        finally:
            lock.release()
    storage = JournalStorage(_Journal(path, lock))
    study = optuna.create_study(
        storage=storage,
        study_name="search",
        direction="maximize",
        load_if_exists=True,
        sampler=RandomSampler(seed=0),  # replaced at every trial
    )
    if "identity" not in study.user_attrs and not study.get_trials(deepcopy=False):
        study.set_user_attr("identity", identity)
    _check_identity(path, study.user_attrs.get("identity"), identity)
    _check_trials(path, study, {name for name, _ in identity["space"]}, kept)
    return study


def _check_journal(path: Path) -> None:
    """Drop the half line of a killed writer; refuse what no writer can have left.

    Optuna itself would append to the half line, and could not read the file after that.
    """
    whole, _, torn = path.read_bytes().rpartition(b"\n")
    if torn:
        log.warning("%s ends in half a line, left by a killed writer; dropped", path)
        os.truncate(path, len(whole) + 1 if whole else 0)
    for number, line in enumerate(whole.split(b"\n") if whole else (), 1):
        try:
            entry: dict[str, Any] = json.loads(line)
            known = 0 <= entry["op_code"] <= 10
            if number == 1 and entry["op_code"] != 0:
                raise ValueError("a study begins with its creation")
        except (ValueError, KeyError, TypeError) as error:
            raise MadlError(
                f"{path}:{number} is not a line of a study ({type(error).__name__}: {error}); "
                "move the file away and its trials will run again"
            ) from error
        if not known:
            raise MadlError(
                f"{path}:{number} has operation {entry['op_code']}, which Optuna "
                f"{optuna.__version__} does not know; use the version that wrote it, "
                "or move the file away and its trials will run again"
            )


def _check_identity(path: Path, found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> None:
    if found is None:
        raise MadlError(f"{path} is a study of another program; move it away")
    wanted = json.loads(json.dumps(wanted))
    for part in wanted:
        if found.get(part) != wanted[part]:
            raise MadlError(
                f"{path} was made with {part} {found.get(part)}, this search has {part} "
                f"{wanted[part]}; move it away to begin anew, or go on with what it was made with"
            )


def _check_trials(path: Path, study: optuna.Study, names: Set[str], kept: Set[str]) -> None:
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        if trial.params.keys() != names or not trial.user_attrs.keys() >= kept:
            raise MadlError(
                f"{path} has lost lines: trial {trial.number} is not whole; "
                "move the file away and its trials will run again"
            )
