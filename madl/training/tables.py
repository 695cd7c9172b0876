"""Tables of texts and labels that users bring: a folder's files, or a data set of the hub.

Parquet, CSV, JSON and Arrow files are read by pyarrow; nothing in a folder is executed, and no file
of it may lead out. A file belongs to the split that its name or its folder names, in the words that
`datasets` knows; where no file names one, all are one table.

Not handled: what a file of the hub costs to download; compressed files other than Parquet's own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madl.errors import MadlError, first_line, kind_and_line
from madl.training import outside

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".json", ".arrow")
DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
SPLITS = {
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "dev", "val"),
    "train": ("train", "training"),
}
TEXT_GB = 2  # of a data set, all splits together
BATCH_MB = 256  # that are unpacked at once, at most
TEXT_COLUMNS = ("text", "sentence", "review", "content", "comment", "tweet", "document", "body")
LABEL_COLUMNS = ("label", "labels", "sentiment", "target", "class", "category")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The names of the columns to read; None: it is to be recognised."""

    text: str | None = None
    label: str | None = None


RECOGNISED = Columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The values in a text column and a label column, unchanged, and the names of both."""

    columns: Columns
    texts: Sequence[object]
    labels: Sequence[object]


def read_folder(folder: Path, columns: Columns) -> dict[str, Table]:
    """Split (`train`, `validation`, `test`) → its table; the key is "" if no file names a split.

    Raises:
        MadlError: no such files, or one that cannot be read, is too large or lacks the columns.
    """
    import pyarrow

    tables: dict[str, Table] = {}
    size = 0
    for split, paths in files_by_split(folder).items():
        texts: list[object] = []
        labels: list[object] = []
        for path in paths:
            try:
                for batch in _batches(folder, path, columns):
                    columns = Columns(text=batch.schema.names[0], label=batch.schema.names[1])
                    if (size := size + batch.nbytes) > TEXT_GB << 30:
                        raise outside.no_data(folder, f"it has more than {TEXT_GB} GB of text")
                    texts += batch.column(0).to_pylist()
                    labels += batch.column(1).to_pylist()
            except (pyarrow.ArrowException, OSError, ValueError, MemoryError, RecursionError) as e:
                reason = f"{path.relative_to(folder)}: {first_line(e)}"
                raise outside.no_data(folder, reason) from e
        if not texts:
            raise outside.no_data(folder, f"{_named(split)} is empty")
        tables[split] = Table(columns=columns, texts=texts, labels=labels)
    return tables


def files_by_split(folder: Path) -> dict[str, list[Path]]:
    """Split → its files, in the order of their names; the key is "" if no file names a split.

    Raises:
        MadlError: there are none, one leads out of the folder, or several data sets or kinds.
    """
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(data_files(folder)):
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise outside.no_data(folder, f"{path.name} is not a regular file of it")
        files[_split_of(path.relative_to(folder))].append(path)
    if files.keys() - {""}:
        files.pop("", None)
    if not files:
        kinds = ", ".join(suffix.removeprefix(".") for suffix in SUFFIXES)
        raise outside.no_data(folder, f"it has no files of data: {kinds}")
    paths = [path for paths in files.values() for path in paths]
    for title, kinds in (
        ("data sets", {_home(folder, path) for path in paths}),
        ("kinds of file", {path.suffix for path in paths}),
    ):
        if len(kinds) > 1:
            reason = f"it holds several {title}: {', '.join(sorted(kinds))}"
            raise outside.no_data(folder, reason, "give a folder with one of them to --dataset")
    return {split: files[split] for split in (*reversed(SPLITS), "") if split in files}


def data_files(folder: Path) -> Iterator[Path]:
    """Every file that may hold rows, without descriptions, hidden files and caches."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        is_cache = path.suffix == ".arrow" and path.name.startswith("cache-")
        if path.suffix in SUFFIXES and path.name not in DESCRIPTIONS and not hidden | is_cache:
            yield path


def _split_of(path: Path) -> str:
    """The split that the file's name, else the nearest folder, names; "" for none."""
    for part in (path.stem, *reversed(path.parent.parts)):
        for split, words in SPLITS.items():
            if re.search(rf"(?:^|[-._ 0-9])(?:{'|'.join(words)})(?:[-._ 0-9]|$)", part.lower()):
                return split
    return ""


def _home(folder: Path, path: Path) -> str:
    """The folder of a file's data set, in `folder`: the nearest that is not named after a split."""
    parts = path.relative_to(folder).parent.parts
    while parts and _split_of(Path(parts[-1])):
        parts = parts[:-1]
    return "/".join(parts) or "."


def _named(split: str) -> str:
    """A split, as errors name it."""
    return f"its split {split}" if split else "the table"


# ---- files --------------------------------------------------------------------------------------


def _batches(folder: Path, path: Path, columns: Columns) -> Iterator[Any]:
    """Arrow's record batches of a file, with the text and label columns alone, of bounded size."""
    from pyarrow import parquet

    if path.suffix == ".parquet":
        opened = parquet.ParquetFile(path)
        names = choose_columns(folder, _types(opened.schema_arrow), columns)
        yield from (
            batch.select(names)
            for batch in opened.iter_batches(_rows_at_once(folder, opened, names), columns=names)
        )
        return
    names: Sequence[str] = ()
    for batch in _whole_batches(folder, path):
        names = names or choose_columns(folder, _types(batch.schema), columns)
        yield batch.select(names)


def _whole_batches(folder: Path, path: Path) -> Iterator[Any]:
    """Arrow's record batches, with all columns, of a file that is not Parquet."""
    from pyarrow import csv, ipc

    match path.suffix:
        case ".csv" | ".tsv":
            delimiter = "\t" if path.suffix == ".tsv" else ","
            parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            yield from csv.open_csv(path, parse_options=parse)
        case ".arrow":
            with path.open("rb") as file:
                is_stream = file.read(6) != b"ARROW1"
                file.seek(0)
                if is_stream:
                    yield from ipc.open_stream(file)
                else:
                    opened = ipc.open_file(file)
                    yield from (opened.get_batch(i) for i in range(opened.num_record_batches))
        case _:
            yield from _json(folder, path)


def _json(folder: Path, path: Path) -> Iterator[Any]:
    """Arrow's record batches of a JSON file: one object a line, or one list of objects."""
    import pyarrow
    from pyarrow import json as lines

    if path.stat().st_size > TEXT_GB << 30:
        raise outside.no_data(folder, f"{path.name} has more than {TEXT_GB} GB")
    with path.open("rb") as file:
        is_list = file.read(1024).lstrip().startswith(b"[")
    if is_list:
        rows = json.loads(path.read_text("utf-8"))
        if not all(isinstance(row, dict) for row in rows):
            raise outside.no_data(folder, f"{path.name} is a list of something else than objects")
        yield from pyarrow.Table.from_pylist(rows).to_batches()
    else:
        options = lines.ParseOptions(newlines_in_values=True)
        yield from lines.read_json(path, parse_options=options).to_batches()


def _rows_at_once(folder: Path, opened: Any, names: Sequence[str]) -> int:
    """The number of rows of a Parquet file that surely unpack to no more than `BATCH_MB`.

    A chunk whose texts are numbers into a dictionary may hold its largest text in every row.
    """
    metadata = opened.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    read = [chunk for chunk in chunks if chunk.path_in_schema in names]
    largest = max((chunk.total_uncompressed_size for chunk in read), default=1)
    if largest > TEXT_GB << 30:
        raise outside.no_data(folder, f"it has more than {TEXT_GB} GB of text")
    return max(1, min(1024, (BATCH_MB << 20) // max(largest, 1)))


# ---- columns ------------------------------------------------------------------------------------


def _types(schema: Any) -> dict[str, str]:
    """Column name → its Arrow type in words; a dictionary's is that of its values."""
    types = ((field.name, field.type) for field in schema)
    return {name: str(getattr(kind, "value_type", kind)) for name, kind in types}


def choose_columns(source: object, types: Mapping[str, str], named: Columns) -> tuple[str, str]:
    """(text column, label column): those named, else those recognised by name or type.

    Raises:
        MadlError: a column that is asked for is not there, or more than one could be meant.
    """
    for name in filter(None, (named.text, named.label)):
        if name not in types:
            reason = f"it has no column {name}, but {', '.join(types) or 'none'}"
            raise outside.no_data(source, reason)
    listed = ", ".join(f"{name} ({kind})" for name, kind in types.items()) or "none"
    label = named.label or _first_known(LABEL_COLUMNS, types)
    texts = [name for name, kind in types.items() if "string" in kind and name != named.label]
    if not texts or (named.text and named.text not in texts):
        which = f"column {named.text} does not hold" if named.text else "no column of it holds"
        raise outside.no_data(source, f"{which} texts: {listed}")
    text = named.text or _first_known(TEXT_COLUMNS, texts) or _only(set(texts) - {label})
    label = label or _only(set(types) - {text})
    for option, name in (("text", text), ("label", label)):
        if name is None:
            reason = f"any of its columns may hold the {option}s: {listed}"
            raise outside.no_data(source, reason, do=f"name the one with --{option}-column")
    return str(text), str(label)


def _only(names: Collection[str]) -> str | None:
    """The name, if there is exactly one."""
    return next(iter(names)) if len(names) == 1 else None


def _first_known(names: Sequence[str], columns: Mapping[str, str] | Sequence[str]) -> str | None:
    """The column with the first of these names that there is, in upper or lower case."""
    lower = {column.lower(): column for column in reversed([*columns])}
    return next((lower[name] for name in names if name in lower), None)


# ---- the hub ------------------------------------------------------------------------------------


def read_hub(name: str, columns: Columns) -> dict[str, Table]:
    """Split → its table, of a data set of the hub, or of its cache.

    Raises:
        MadlError: no network, no such data set, or it lacks the columns.
    """
    import datasets
    from datasets import config
    from huggingface_hub import constants

    datasets.disable_progress_bars()
    outside.prepare_hub()
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE
    try:
        loaded: Any = datasets.load_dataset(name)  # untyped library
    except Exception as error:  # the library raises a dozen kinds, all of them about the source
        raise MadlError(
            f"cannot load data set {name} ({kind_and_line(error)}); "
            "check the name and the network, or give a folder with --dataset"
        ) from error
    tables: dict[str, Table] = {}
    for split in (split for split in reversed(SPLITS) if split in loaded):
        rows = loaded[split]
        text, label = choose_columns(name, _types(rows.features.arrow_schema), columns)
        columns = Columns(text=text, label=label)
        tables[split] = Table(columns=columns, texts=rows[text][:], labels=rows[label][:])
    if not tables:
        splits = ", ".join(map(str, loaded))
        raise outside.no_data(name, f"it has no split train, validation or test, but {splits}")
    return tables
