"""Sentences with a sentiment label: load, split once and for all, encode, batch by length.

Groups of near-duplicates are ordered by a hash of their text and dealt to test, then validation,
then training; a `draw` deals what is not test in another order. A group stays on one side, so no
test sentence has a twin in training. Validation chooses; test is only ever reported.

Shapes: a batch holds input_ids and attention_mask (B, T) with T its own longest sentence.
Source: the default data, Hutto & Gilbert 2014, "VADER", ICWSM.
"""

import functools
import hashlib
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madl import assets
from madl.training.examples import Examples, Prepared, near_duplicates, prepare
from madl.training.tables import RECOGNISED, Columns, read_folder, read_hub
from madl.training.workloads import unpin

TEST_EXAMPLES = 2000
VALIDATION_EXAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Sentences and their labels: 1 is a positive review, 0 a negative one."""

    texts: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, num_examples: int | None) -> "Split":
        """The first examples, or all for None; a sample, as they are in the order of a hash."""
        return Split(texts=self.texts[:num_examples], labels=self.labels[:num_examples])

    @property
    def fingerprint(self) -> str:
        """A digest, equal only for the same examples in the same order, as paired tests need."""
        joined = "\n".join(f"{label}\t{text}" for label, text in zip(self.labels, self.texts))
        return hashlib.sha256(joined.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Three splits that share no text."""

    train: Split
    validation: Split
    test: Split


def load_dataset(name: str, draw: int | None = None, columns: Columns = RECOGNISED) -> Dataset:
    """The splits of a preset, a folder or a hub id.

    `draw` names another choice of validation and training sentences; test is always the same.

    Raises:
        MadlError: no network, or not such a data set.
    """
    return deal(prepared(name, columns), draw)


@functools.lru_cache(maxsize=1)
def prepared(name: str, columns: Columns = RECOGNISED) -> Prepared:
    """The examples of a data set, and what was changed of them; the last one is kept."""
    if name == "movie-snippets":
        path = assets.fetch(name) / "movieReviewSnippets_GroundTruth.txt"
        return Prepared(groups=near_duplicates(_read_snippets(path)))
    source = unpin(name)
    folder = Path(source)
    read = read_folder(folder, columns) if folder.is_dir() else read_hub(source, columns)
    return prepare(source, read)


def _read_snippets(path: Path) -> Examples:
    """(text, label) of lines `id, mean rating, text`: 1 above rating 0, 0 below, else dropped."""
    rows = [line.split("\t", 2) for line in path.read_text("utf-8").splitlines()]
    return [(text, int(float(rating) > 0)) for _, rating, text in rows if float(rating) != 0]


def deal(examples: Prepared, draw: int | None) -> Dataset:
    """Deal groups to test (unless there is such a split), then to validation, the rest to train."""
    total = sum(map(len, examples.groups))
    num_test = min(TEST_EXAMPLES, total // 5) if examples.test is None else 0
    quota = {
        "test": num_test,
        "validation": min(VALIDATION_EXAMPLES, total // 10),
        "train": math.inf,
    }
    groups = _in_hash_order(examples.groups)
    sizes = accumulate(map(len, groups))
    is_test = sum(size - len(group) < num_test for size, group in zip(sizes, groups))
    groups = [*groups[:is_test], *_in_hash_order(groups[is_test:], draw)]
    parts: dict[str, Examples] = {name: [] for name in quota}
    for group in groups:
        part = next(name for name, size in quota.items() if len(parts[name]) < size)
        parts[part] += group
    if examples.test is not None:
        singles = _in_hash_order([[example] for example in examples.test])
        parts["test"] = [example for (example,) in singles]
    return Dataset(**{name: _as_split(part) for name, part in parts.items()})


def _as_split(examples: Examples) -> Split:
    return Split(texts=[text for text, _ in examples], labels=[label for _, label in examples])


def _in_hash_order(groups: Sequence[Examples], draw: int | None = None) -> list[Examples]:
    """Groups in the order of a hash of their first text; `draw` names another hash."""
    salt = "" if draw is None else f"{draw}\n"
    return sorted(groups, key=lambda g: hashlib.sha256(f"{salt}{g[0][0]}".encode()).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A split as token ids, ready to be batched."""

    token_ids: Sequence[Sequence[int]]
    labels: Sequence[int]
    pad_id: int

    def __len__(self) -> int:
        return len(self.token_ids)

    def first(self, num_examples: int | None) -> "Encoded":
        """The first examples, or all for None."""
        return self.subset(range(len(self))[:num_examples])

    def subset(self, indices: Iterable[int]) -> "Encoded":
        """The examples at these indices, in that order."""
        pairs = [(self.token_ids[i], self.labels[i]) for i in indices]
        return replace(
            self, token_ids=[ids for ids, _ in pairs], labels=[label for _, label in pairs]
        )

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """The examples at these indices as tensors, padded to the longest of them."""
        ids = [torch.tensor(self.token_ids[i]) for i in indices]
        words = [torch.ones_like(row) for row in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),  # (B, T)
            "attention_mask": pad_sequence(words, batch_first=True),  # (B, T)
            "labels": torch.tensor([self.labels[i] for i in indices]),  # (B,)
        }


def encode(split: Split, tokenizer: Any, *, max_length: int) -> Encoded:
    """Tokenize a split; longer texts are cut at `max_length` tokens."""
    ids = tokenizer(list(split.texts), truncation=True, max_length=max_length)["input_ids"]
    return Encoded(token_ids=ids, labels=split.labels, pad_id=tokenizer.pad_token_id)


def batches_by_length(data: Encoded, batch_size: int) -> Iterator[list[int]]:
    """Batches of indices, for evaluation: every example once, from the shortest to the longest."""
    order = sorted(range(len(data)), key=lambda i: len(data.token_ids[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def shuffled_batches(data: Encoded, batch_size: int, seed: int) -> list[list[int]]:
    """Batches of indices of one epoch, in random order; texts of a batch are of similar length."""
    rng = random.Random(seed)
    order = list(range(len(data)))
    rng.shuffle(order)
    pool = 50 * batch_size
    batches: list[list[int]] = []
    for start in range(0, len(order), pool):
        chunk = sorted(order[start : start + pool], key=lambda i: len(data.token_ids[i]))
        batches += [chunk[i : i + batch_size] for i in range(0, len(chunk), batch_size)]
    rng.shuffle(batches)
    return batches
