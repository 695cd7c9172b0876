"""A workload is a model and a data set: a preset, a local folder, or a hub id.

Of long texts a preset may take less: so many to train on, so many tokens of each. Sizes that it
does not state are the profile's.

Imports no torch: the plan of a run is made of names, and only a case loads what they mean.
"""

import hashlib
import itertools
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from madl.assets import file_sha256
from madl.errors import MadlError, WrongCommand
from madl.logbook.records import Params, Scalar
from madl.training import tables

NAMES = ("model", "dataset", "text_column", "label_column")  # that a command may give
PARAMETERS = (*NAMES, "max_length", "train_examples")  # that a workload may state


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Names that `models.load_pretrained` and `data.load_dataset` resolve, and what is stated."""

    model: str
    dataset: str
    text_column: str | None = None
    label_column: str | None = None
    max_length: int | None = None  # tokens
    train_examples: int | None = None

    def params(self) -> dict[str, Scalar]:
        """The workload as case parameters; a local folder is named with what is in it."""
        every = {name: getattr(self, name) for name in PARAMETERS}
        stated = {name: value for name, value in every.items() if value is not None}
        return {**stated, "model": _pin(self.model), "dataset": _pin(self.dataset)}


PRESETS = {
    "snippets": Workload(model="all-MiniLM-L6-v2", dataset="movie-snippets"),
    "imdb": Workload(model="prajjwal1/bert-tiny", dataset="stanfordnlp/imdb"),
    # as many reviews as there are snippets, and of each its opening: what two cores do in hours
    "imdb-openings": Workload(
        model="all-MiniLM-L6-v2", dataset="stanfordnlp/imdb", max_length=64, train_examples=8000
    ),
}
DEFAULT = "snippets"
FILES = 10_000  # of a model or a data set, at most
TEXTS = 100  # of a split, at least; validation gets a tenth of those to train on


def resolve(
    preset: str,
    *,
    model: str | None = None,
    dataset: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Workload:
    """A preset with its model or data set replaced; of other data, the columns to read.

    Raises:
        WrongCommand: an empty name, a path that is not there, a folder of something else, or
            columns of a preset's data.
    """
    base = PRESETS[preset]
    columns = {"text_column": text_column, "label_column": label_column}
    for name, column in columns.items():
        if column is not None and dataset is None:
            raise WrongCommand(f"{_option(name)} is of a data set of yours; give --dataset, too")
    for what, given in (("model", model), ("dataset", dataset)):
        if given is None:
            _check_is_no_folder(what, getattr(base, what))
            continue
        folder = Path(given).expanduser()
        is_path = given.startswith((".", "/", "~"))
        if not given.strip() or (is_path and not folder.is_dir()):
            named = given if given.strip() else repr(given)
            raise WrongCommand(f"no folder {named}; give a folder in the hub's layout, or a hub id")
        if folder.is_dir():
            _check_layout(what, folder)
    return replace(base, model=model or base.model, dataset=dataset or base.dataset, **columns)


def _check_is_no_folder(what: str, name: str) -> None:
    """Where a command runs changes nothing: what a preset names is never a folder there.

    Raises:
        WrongCommand: there is a folder of that name.
    """
    if Path(name).is_dir():
        raise WrongCommand(
            f"there is a folder {name} here, and the workload's {what} has that name; "
            f"give --{what} ./{name} if it is meant, else run this in another folder"
        )


def _check_layout(what: str, folder: Path) -> None:
    """Before all that is in the folder is read, for its digest.

    Raises:
        WrongCommand: it is no model's or data set's, or holds more than that.
    """
    files = itertools.islice(folder.rglob("*"), FILES + 1)
    if sum(1 for _ in files) > FILES:
        wrong = f"holds more than {FILES:,} files"
    elif what == "model" and not (folder / "config.json").is_file():
        wrong = "has no config.json"
    elif what == "dataset" and not any(tables.data_files(folder)):
        wrong = f"has no files of data ({', '.join(tables.SUFFIXES)})"
    else:
        return
    raise WrongCommand(f"{folder} {wrong}; give a folder with nothing but the {what} to --{what}")


def of_case(params: Params) -> Params | None:
    """The workload that a case's parameters name; None where they name no data set."""
    if not {"model", "dataset"} <= params.keys():
        return None
    named = {name: params[name] for name in NAMES if name in params}
    presets = ({**one.params(), "model": params["model"]} for one in PRESETS.values())
    return max([named, *(one for one in presets if one.items() <= params.items())], key=len)


def differences(workload: Params, other: Params) -> list[str]:
    """In words, what of this workload is not the other's."""
    words = {
        **{"max_length": "{:,} tokens of a text", "train_examples": "{:,} texts to train on"},
        **{"text_column": "texts of column {}", "label_column": "labels of column {}"},
    }
    changed = {name: value for name, value in workload.items() if value != other.get(name)}
    return [words.get(name, "{}").format(value) for name, value in changed.items()]


def arguments(params: Params) -> str:
    """The shortest options of the command line that choose the workload of these parameters."""
    options: list[dict[str, Scalar]] = []
    for preset, workload in PRESETS.items():
        known = workload.params()
        changed = {name: value for name, value in params.items() if value != known.get(name)}
        if params.keys() - set(NAMES) == known.keys() - set(NAMES) and changed.keys() <= set(NAMES):
            options.append({"workload": preset} | changed if preset != DEFAULT else changed)
    shortest = min(options, key=len, default=dict[str, Scalar]())
    return "".join(f" {_option(n)} {shlex.quote(_unpinned(str(v)))}" for n, v in shortest.items())


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


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
