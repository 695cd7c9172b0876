"""A workload is a model and a data set: a preset, a local folder, or a hub id.

Imports no torch: the plan of a run is made of names, and only a case loads what they mean.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from madl.assets import file_sha256
from madl.errors import MadlError, WrongCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Names that `models.load_pretrained` and `data.load_dataset` resolve."""

    model: str
    dataset: str

    def params(self) -> dict[str, str]:
        """The workload as case parameters; a local folder is named with what is in it."""
        return {"model": _pin(self.model), "dataset": _pin(self.dataset)}


PRESETS = {
    "snippets": Workload(model="all-MiniLM-L6-v2", dataset="movie-snippets"),
    "imdb": Workload(model="prajjwal1/bert-tiny", dataset="stanfordnlp/imdb"),
}


def resolve(preset: str, *, model: str | None = None, dataset: str | None = None) -> Workload:
    """A preset with its model or data set replaced.

    Raises:
        WrongCommand: a path that is not there.
    """
    base = PRESETS[preset]
    for given in (model, dataset):
        if given and given.startswith((".", "/", "~")) and not Path(given).expanduser().is_dir():
            raise WrongCommand(f"no folder {given}; give a folder in the hub's layout, or a hub id")
    return Workload(model=model or base.model, dataset=dataset or base.dataset)


def arguments(params: Mapping[str, object]) -> str:
    """The options of the command line that choose the workload of these parameters."""
    chosen = {name: str(params[name]) for name in ("model", "dataset") if name in params}
    for preset, workload in PRESETS.items():
        if chosen == workload.params():
            return "" if preset == "snippets" else f" --workload {preset}"
    known = PRESETS["snippets"].params()
    return "".join(
        f" --{name} {shlex.quote(_unpinned(value))}"
        for name, value in chosen.items()
        if value != known[name]
    )


def _pin(name: str) -> str:
    """A folder's name gets the digest of its files, so that a case's key cannot outlive them."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return name
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder)} {file_sha256(path)}\n".encode())
    return f"{folder.resolve()}#{digest.hexdigest()[:12]}"


def unpin(name: str) -> str:
    """The folder or hub id behind a parameter.

    Raises:
        MadlError: the folder has changed since the parameter was made.
    """
    path = _unpinned(name)
    if path != name and _pin(path) != name:
        raise MadlError(f"{path} is not there or has changed since this run was planned; run again")
    return path


def _unpinned(name: str) -> str:
    return re.sub(r"#[0-9a-f]{12}$", "", name)
