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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
        """At most that many examples: the order is already that of a hash, so this is a sample."""
        return Split(texts=self.texts[:num_examples], labels=self.labels[:num_examples])

    @property
    def fingerprint(self) -> str:
        """Equal only for the same sentences in the same order: what a paired test needs."""
        joined = "\n".join(f"{label}\t{text}" for label, text in zip(self.labels, self.texts))
        return hashlib.sha256(joined.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Three splits that share no text."""

    train: Split
    validation: Split
    test: Split


def load_dataset(name: str, draw: int | None = None, columns: Columns = RECOGNISED) -> Dataset:
    """A preset, a folder, or a hub id.

    `draw` names another choice of validation and training sentences; test is always the same.

    Raises:
        MadlError: no network, or not such a data set.
    """
    return deal(prepared(name, columns), draw)


@functools.lru_cache(maxsize=1)
def prepared(name: str, columns: Columns = RECOGNISED) -> Prepared:
    """The examples of a data set, and what was changed of them; once per process."""
    if name == "movie-snippets":
        path = assets.fetch(name) / "movieReviewSnippets_GroundTruth.txt"
        return Prepared(groups=near_duplicates(_read_snippets(path)))
    source = unpin(name)
    folder = Path(source)
    read = read_folder(folder, columns) if folder.is_dir() else read_hub(source, columns)
    return prepare(source, read)


def _read_snippets(path: Path) -> Examples:
    """Lines `id, mean rating, text`; positive is a rating above 0, exactly 0 is dropped."""
    rows = [line.split("\t", 2) for line in path.read_text("utf-8").splitlines()]
    return [(text, int(float(rating) > 0)) for _, rating, text in rows if float(rating) != 0]


def deal(examples: Prepared, draw: int | None) -> Dataset:
    """Groups to test, where there is no test split, then to validation, then to training."""
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
        each = _in_hash_order([[example] for example in examples.test])
        parts["test"] = [example for group in each for example in group]
    return Dataset(**{name: _as_split(part) for name, part in parts.items()})


def _as_split(examples: Examples) -> Split:
    return Split(texts=[text for text, _ in examples], labels=[label for _, label in examples])


def _in_hash_order(groups: Sequence[Examples], draw: int | None = None) -> list[Examples]:
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
        """At most that many examples; all of them for None."""
        return replace(
            self, token_ids=self.token_ids[:num_examples], labels=self.labels[:num_examples]
        )

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """The named examples, padded to their own longest."""
        length = max(len(self.token_ids[i]) for i in indices)
        input_ids = torch.full((len(indices), length), self.pad_id)  # (B, T)
        attention_mask = torch.zeros_like(input_ids)  # (B, T)
        for row, i in enumerate(indices):
            ids = torch.tensor(self.token_ids[i])
            input_ids[row, : len(ids)] = ids
            attention_mask[row, : len(ids)] = 1
        labels = torch.tensor([self.labels[i] for i in indices])  # (B,)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def encode(split: Split, tokenizer: Any, *, max_length: int) -> Encoded:
    """Tokenize; longer texts are cut at `max_length` tokens."""
    ids = tokenizer(list(split.texts), truncation=True, max_length=max_length)["input_ids"]
    return Encoded(token_ids=ids, labels=split.labels, pad_id=tokenizer.pad_token_id)


def batches_by_length(data: Encoded, batch_size: int) -> Iterator[list[int]]:
    """Indices of every example once, neighbours in length together: for evaluation."""
    order = sorted(range(len(data)), key=lambda i: len(data.token_ids[i]))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def shuffled_batches(data: Encoded, batch_size: int, seed: int) -> list[list[int]]:
    """One epoch in random order, yet batches of similar length: pools of 50 batches are sorted."""
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
