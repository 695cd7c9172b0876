"""Data sets of other people's shapes: read, with every change counted, or refused in one line."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from madl.errors import MadlError
from madl.training import data
from madl.training.tables import Columns

SYLLABLES = ("be", "co", "di", "fu", "ga", "lo", "mi", "nu", "ra", "te")
WORDS = [f"{a}{b}{c}" for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES]
TRAIN, TEST = 240, 120
Rows = Mapping[str, Sequence[Any]]


def rows(count: int, seed: int, **columns: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """As many different texts with labels; `columns` replace or add."""
    rng = random.Random(seed)
    texts = [" ".join(rng.sample(WORDS, 12)) for _ in range(count)]
    return {"text": texts, "label": [i % 2 for i in range(count)], **columns}


def mapped(meaning: Callable[[int], Any]) -> dict[str, dict[str, Sequence[Any]]]:
    """Both splits with other labels in the place of 0 and 1."""
    splits = {"train": rows(TRAIN, 0), "test": rows(TEST, 1)}
    return {
        name: {**split, "label": [meaning(label) for label in split["label"]]}
        for name, split in splits.items()
    }


def parquet(path: Path, columns: Rows, **types: pa.DataType) -> None:
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path.with_suffix(".parquet"))


def typed(path: Path, columns: Rows) -> None:
    parquet(path, columns, text=pa.string(), label=pa.int64())


def csv(path: Path, columns: Rows) -> None:
    pyarrow.csv.write_csv(pa.table(dict(columns)), path.with_suffix(".csv"))


def tsv(path: Path, columns: Rows) -> None:
    options = pyarrow.csv.WriteOptions(delimiter="\t")
    pyarrow.csv.write_csv(pa.table(dict(columns)), path.with_suffix(".tsv"), options)


def objects(columns: Rows) -> list[dict[str, Any]]:
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def json_lines(path: Path, columns: Rows) -> None:
    path.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, objects(columns))))


def json_list(path: Path, columns: Rows) -> None:
    path.with_suffix(".json").write_text(json.dumps(objects(columns), indent=1))


def saved(path: Path, columns: Rows) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(dict(columns)).save_to_disk(path)


def string_view(path: Path, columns: Rows) -> None:
    table = pa.table({**columns, "text": pa.array(columns["text"], pa.string_view())})
    with (
        pa.OSFile(str(path.with_suffix(".arrow")), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)


def dictionaries(path: Path, columns: Rows) -> None:
    encoded = pa.array(columns["label"]).dictionary_encode()
    parquet(path, {**columns, "label": encoded})


USUAL = {"train": rows(TRAIN, 0), "test": rows(TEST, 1)}
SHARED = {**rows(TEST, 1), "text": [*rows(TEST, 1)["text"][:40], *rows(80, 2)["text"]]}
EMPTY = {**rows(TRAIN, 0), "text": ["", "  ", None, *rows(TRAIN - 3, 0)["text"]]}
UNLABELLED = {**rows(TRAIN, 0), "label": [None, None, *rows(TRAIN - 2, 0)["label"]]}
TWICE = {**rows(TRAIN, 0), "text": [*rows(TRAIN - 6, 0)["text"], *rows(TRAIN, 0)["text"][:6]]}
BOTH = {**TWICE, "label": [*rows(TRAIN - 6, 0)["label"], *(1, 0, 1, 0, 1, 0)]}
SST2 = {
    "train": rows(TRAIN, 0),
    "validation": rows(TEST, 1),
    "test": rows(TEST, 2, label=[-1] * TEST),
}
TEMPLATE = [f"the film number {i} is one that I have seen in a cinema" for i in range(TRAIN)]
LONG = [" ".join(random.Random(i).sample(WORDS, 50) * 100) for i in range(TRAIN)]

KEPT: dict[str, tuple[Any, Mapping[str, Rows], list[str]]] = {  # writer, splits, what is said
    "Parquet": (parquet, USUAL, []),
    "CSV": (csv, USUAL, []),
    "tab-separated": (tsv, USUAL, []),
    "JSON Lines": (json_lines, USUAL, []),
    "a JSON list": (json_list, USUAL, []),
    "saved by datasets": (saved, USUAL, []),
    "Arrow, string views": (string_view, USUAL, []),
    "dictionaries": (dictionaries, USUAL, []),
    "booleans": (parquet, mapped(bool), []),
    "whole floats": (parquet, mapped(float), []),
    "one and two": (parquet, mapped(lambda label: label + 1), ["labels 1 → 0, 2 → 1"]),
    "minus one and one": (csv, mapped(lambda label: 2 * label - 1), ["labels -1 → 0, 1 → 1"]),
    "named classes": (csv, mapped(["neg", "pos"].__getitem__), ["labels 'neg' → 0, 'pos' → 1"]),
    "SST-2": (
        parquet,
        SST2,
        [
            "its split test has no labels and is not used",
            "its validation split, 120 texts, is the test split",
        ],
    ),
    "three splits": (
        parquet,
        {**USUAL, "validation": rows(TEST, 3)},
        ["the 120 texts of its validation split are dealt with those of train"],
    ),
    "one table": (
        csv,
        {"reviews": rows(1000, 0)},
        ["it has no test split, so each seed tests some of its texts"],
    ),
    "missing texts": (
        parquet,
        {**USUAL, "train": EMPTY},
        ["3 empty texts left out in train"],
    ),
    "missing labels": (
        parquet,
        {**USUAL, "train": UNLABELLED},
        ["2 texts without a label left out in train"],
    ),
    "repeated": (parquet, {**USUAL, "train": TWICE}, ["6 repeated texts left out in train"]),
    "both labels": (
        parquet,
        {**USUAL, "train": BOTH},
        ["6 texts with both labels left out in train", "6 repeated texts left out in train"],
    ),
    "test in train": (
        parquet,
        {
            **USUAL,
            "test": SHARED,
            "train": {**rows(TRAIN, 0), "text": [*SHARED["text"][:60], *rows(180, 0)["text"]]},
        },
        ["60 texts to train on left out: in the test split too, or nearly"],
    ),
    "5,000 words": (parquet, {**USUAL, "train": rows(TRAIN, 0, text=LONG)}, []),
}


def written(folder: Path, writer: Any, splits: Mapping[str, Rows]) -> Path:
    for split, columns in splits.items():
        folder.mkdir(exist_ok=True)
        writer(folder / split, columns)
    return folder


@pytest.mark.parametrize("shape", KEPT)
def test_data_of_this_shape_are_read_and_every_change_is_counted(tmp_path, shape):
    writer, splits, changes = KEPT[shape]
    folder = str(written(tmp_path / "data", writer, splits))
    assert list(data.prepared(folder).changes) == changes
    dealt = data.load_dataset(folder, 0)
    parts = {name: set(getattr(dealt, name).texts) for name in ("train", "validation", "test")}
    assert len(parts["test"]) >= 100 // data.FOLDS
    assert len(parts["train"]) >= 80
    assert len(set.union(*parts.values())) == sum(map(len, parts.values()))
    for name in parts:
        assert set(getattr(dealt, name).labels) == {0, 1}
        assert all(text.strip() for text in parts[name])


def two_configurations(path: Path, columns: Rows) -> None:
    for name in ("first", "second"):
        (path.parent / name).mkdir(exist_ok=True)
        parquet(path.parent / name / path.name, columns)


def two_kinds(path: Path, columns: Rows) -> None:
    parquet(path, columns)
    csv(path, columns)


PAIRS = {
    name: {"sentence1": s["text"], "sentence2": s["text"], "label": s["label"]}
    for name, s in USUAL.items()
}
REFUSED: dict[str, tuple[Any, Mapping[str, Rows], str]] = {
    "ratings": (parquet, mapped(lambda label: label + 0.5), "its labels are numbers such as 0.5"),
    "four classes": (
        parquet,
        {**USUAL, "train": rows(TRAIN, 0, label=[i % 4 for i in range(TRAIN)])},
        "it has 4 classes, .*two are needed",
    ),
    "one class": (parquet, mapped(lambda _: 1), "all labels are 1 .*nothing to learn"),
    "no label": (csv, mapped(lambda _: -1), "all labels are -1"),
    "none labelled": (parquet, mapped(lambda _: None), "has no labels|no text to train on"),
    "one class to test": (
        parquet,
        {**USUAL, "test": rows(TEST, 1, label=[1] * TEST)},
        "all texts to test have one label, 1",
    ),
    "all alike": (parquet, {**USUAL, "train": rows(TRAIN, 0, text=["good"] * TRAIN)}, "fewest"),
    "test is train": (parquet, {"train": rows(TRAIN, 0), "test": rows(TRAIN, 0)}, "fewest"),
    "too few": (parquet, {**USUAL, "test": rows(20, 1)}, "20 different texts to test, and 100"),
    "one template": (parquet, {**USUAL, "train": rows(TRAIN, 0, text=TEMPLATE)}, "share 80%"),
    "two configurations": (two_configurations, USUAL, "several data sets: first, second"),
    "two kinds of file": (two_kinds, USUAL, "several kinds of file: .csv, .parquet"),
    "two columns of texts": (
        parquet,
        PAIRS,
        r"any of its columns may hold the texts: sentence1 \(string\), ",
    ),
    "no column of texts": (
        csv,
        {"train": {"a": [1] * 200, "b": [0] * 200}},
        r"no column of it holds texts: a \(int64\), b \(int64\)",
    ),
    "an empty split": (typed, {**USUAL, "test": {"text": [], "label": []}}, "split test is empty"),
    "no text in it": (
        parquet,
        {"train": {"text": [1], "label": [0]}},
        "no column of it holds texts",
    ),
}


@pytest.mark.parametrize("shape", REFUSED)
def test_data_of_this_shape_are_refused_in_one_line_that_says_what_to_do(tmp_path, shape):
    writer, splits, message = REFUSED[shape]
    folder = written(tmp_path / "data", writer, splits)
    with pytest.raises(
        MadlError, match=f"^cannot load data set .*{message}.*; (give|name)"
    ) as told:
        data.load_dataset(str(folder), 0)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


def test_columns_are_named_where_they_are_not_known(tmp_path):
    folder = written(tmp_path / "data", parquet, PAIRS)
    prepared = data.prepared(str(folder), Columns(text="sentence2"))
    assert prepared.changes == ("texts are its column sentence2, labels its column label",)
    with pytest.raises(MadlError, match="it has no column stars, but sentence1, sentence2, label"):
        data.prepared(str(folder), Columns(text="sentence2", label="stars"))
