"""A workload is a model and a data set: a preset, a local folder, or a hub id.

A preset may limit the number of training texts and the tokens of each text. Sizes that it does not
state are the profile's.

Imports no torch: the plan of a run is made of names, and only a case loads what they mean.
"""

import itertools
import re
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from madl.errors import MadlError, WrongCommand
from madl.files import tree_sha256
from madl.logbook.records import Params, Scalar
from madl.training import tables

NAMES = ("model", "dataset", "text_column", "label_column")  # that a command may give


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The names of a model and data set, for `models` and `data` to load, and limits if stated."""

    model: str
    dataset: str
    text_column: str | None = None
    label_column: str | None = None
    max_length: int | None = None  # tokens
    train_examples: int | None = None

    def params(self) -> dict[str, Scalar]:
        """The workload as case parameters; a local folder's name gets a digest of its files."""
        stated = {name: value for name, value in asdict(self).items() if value is not None}
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
TEXTS = 100  # that a data set must have to train on, and to test


def resolve(
    preset: str,
    *,
    model: str | None = None,
    dataset: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Workload:
    """A preset with its model or data set replaced; for other data, with the columns to read.

    Raises:
        WrongCommand: an empty name, a path that is not there, a folder of something else, or
            columns of a preset's data.
    """
    base = PRESETS[preset]
    columns = {"text_column": text_column, "label_column": label_column}
    for name, column in columns.items():
        if column is not None and dataset is None:
            raise WrongCommand(f"{_option(name)} is of a data set of yours; give --dataset, too")
    for kind, name in (("model", model), ("dataset", dataset)):
        if name is None:
            _check_is_no_folder(kind, getattr(base, kind))
            continue
        folder = Path(name).expanduser()
        is_path = name.startswith((".", "/", "~"))
        if not name.strip() or (is_path and not folder.is_dir()):
            shown = name if name.strip() else repr(name)
            raise WrongCommand(f"no folder {shown}; give a folder in the hub's layout, or a hub id")
        if folder.is_dir():
            _check_layout(kind, folder)
    return replace(base, model=model or base.model, dataset=dataset or base.dataset, **columns)


def _check_is_no_folder(kind: str, name: str) -> None:
    """Refuse a folder here with a preset's name: a command has to mean the same everywhere.

    Raises:
        WrongCommand: there is a folder of that name.
    """
    if Path(name).is_dir():
        raise WrongCommand(
            f"there is a folder {name} here, and the workload's {kind} has that name; "
            f"give --{kind} ./{name} if it is meant, else run this in another folder"
        )


def _check_layout(kind: str, folder: Path) -> None:
    """Refuse a folder of something else, before all of it is read for its digest.

    Raises:
        WrongCommand: it is no model's or data set's, or has too many files.
    """
    files = itertools.islice(folder.rglob("*"), FILES + 1)
    if sum(1 for _ in files) > FILES:
        wrong = f"holds more than {FILES:,} files"
    elif kind == "model" and not (folder / "config.json").is_file():
        wrong = "has no config.json"
    elif kind == "dataset" and not any(tables.data_files(folder)):
        wrong = f"has no files of data ({', '.join(tables.SUFFIXES)})"
    else:
        return
    raise WrongCommand(f"{folder} {wrong}; give a folder with nothing but the {kind} to --{kind}")


def workload_of(params: Params) -> Params | None:
    """The workload in a case's parameters, with a preset's limits; None: they name no data set."""
    if not {"model", "dataset"} <= params.keys():
        return None
    named = {name: params[name] for name in NAMES if name in params}
    presets = ({**preset.params(), "model": params["model"]} for preset in PRESETS.values())
    stated = (preset for preset in presets if preset.items() <= params.items())
    return max([named, *stated], key=len)


def differences(workload: Params, other: Params) -> list[str]:
    """The parts of this workload, in words, that differ from the other's."""
    words = {
        **{"max_length": "{:,} tokens of a text", "train_examples": "{:,} texts to train on"},
        **{"text_column": "texts of column {}", "label_column": "labels of column {}"},
    }
    changed = {name: value for name, value in workload.items() if value != other.get(name)}
    return [words.get(name, "{}").format(value) for name, value in changed.items()]


def arguments(params: Params) -> str:
    """The shortest options of the command line, such as ` --model x`, that choose this workload."""
    options: list[dict[str, Scalar]] = []
    for preset, workload in PRESETS.items():
        stated = workload.params()
        changed = {name: value for name, value in params.items() if value != stated.get(name)}
        if params.keys() ^ stated.keys() <= set(NAMES) and changed.keys() <= set(NAMES):
            options.append({"workload": preset} | changed if preset != DEFAULT else changed)
    shortest = min(options, key=len, default=dict[str, Scalar]())
    return "".join(f" {_option(n)} {shlex.quote(_unpinned(str(v)))}" for n, v in shortest.items())


def _option(name: str) -> str:
    """A parameter's option: `--text-column` for `text_column`."""
    return "--" + name.replace("_", "-")


def _pin(name: str) -> str:
    """A folder's path with a digest of its files, so that a case's key means them; else `name`."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return name
    return f"{folder.resolve()}#{tree_sha256(folder)[:12]}"


def unpin(name: str) -> str:
    """The folder or hub id that a pinned name stands for.

    Raises:
        MadlError: the folder has changed since it was pinned.
    """
    path = _unpinned(name)
    if path != name and _pin(path) != name:
        raise MadlError(f"{path} is not there or has changed since this run was planned; run again")
    return path


def _unpinned(name: str) -> str:
    """The name without its digest."""
    return re.sub(r"#[0-9a-f]{12}$", "", name)
