"""Sentences with a sentiment label: load, deal to splits, encode, batch by length.

Some sentences are set aside to choose by: they validate for every seed, and test for none. The
others are dealt into five folds. A seed tests one fold and trains on all that is in no test, so
five seeds in a row test every sentence once; the next five do so with another deal. Near-duplicates
stay on one side.

Shapes: a batch holds input_ids and attention_mask (B, T) with T its own longest sentence.
Source: the default data, Hutto & Gilbert 2014, "VADER", ICWSM.
"""

import functools
import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madl import assets
from madl.training.examples import Examples, Prepared, near_duplicates, prepare
from madl.training.tables import RECOGNISED, Columns, read_folder, read_hub
from madl.training.workloads import unpin

CHOOSING_EXAMPLES = 1568  # at most, and at most one in six: leaves 9,000 of the default data
FOLDS, FOLD_EXAMPLES = 5, 1800  # at most


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


def load_dataset(
    name: str, seed: int, columns: Columns = RECOGNISED, *, is_of_one_split: bool = False
) -> Dataset:
    """The splits that a seed has of a preset, a folder or a hub id.

    Raises:
        MadlError: no network, or not such a data set.
    """
    examples = prepared(name, columns)
    return deal_with_one_split(examples, seed) if is_of_one_split else deal(examples, seed)


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


def deal(examples: Prepared, seed: int) -> Dataset:
    """The splits of a seed: number `seed` % 5 of the folds of deal `seed` // 5 is its test.

    Where the data have a test split, the folds are of that split. Training sentences are in the
    seed's order.
    """
    deal, fold = divmod(seed, FOLDS)
    num_choosing = min(CHOOSING_EXAMPLES, _count(examples.groups) // 6)
    choosing, rest = _filled(_in_hash_order(examples.groups), num_choosing)
    tested = rest if examples.test is None else examples.test
    total = _count(tested)
    num_dealt = _count(group for group in tested if 10 * len(group) <= total)
    left = _in_hash_order(tested, f"deal {deal}")
    test: list[Examples] = []
    for _ in range(fold + 1):
        test, left = _filled(left, min(FOLD_EXAMPLES, num_dealt // FOLDS))
    in_test = {id(group) for group in test}
    train = [group for group in rest if id(group) not in in_test]
    train = _in_hash_order(train, f"seed {seed}")
    return Dataset(train=_split(train), validation=_split(choosing), test=_split(test))


def deal_with_one_split(examples: Prepared, seed: int) -> Dataset:
    """The splits of a seed in evidence that is older than folds: all seeds share the test split."""
    total = _count(examples.groups)
    num_test = min(2000, total // 5) if examples.test is None else 0
    test, rest = _up_to(_in_hash_order(examples.groups, None), num_test)
    validation, train = _up_to(_in_hash_order(rest, str(seed)), min(500, total // 10))
    if examples.test is not None:
        test = _in_hash_order([[example] for group in examples.test for example in group], None)
    return Dataset(train=_split(train), validation=_split(validation), test=_split(test))


def _up_to(groups: Sequence[Examples], num_examples: int) -> tuple[list[Examples], list[Examples]]:
    """The groups up to the one that completes so many examples, and those after it."""
    ends = accumulate(map(len, groups), initial=0)
    split = sum(end < num_examples for end, _ in zip(ends, groups))
    return [*groups[:split]], [*groups[split:]]


def _count(groups: Iterable[Examples]) -> int:
    return sum(map(len, groups))


def _filled(groups: Iterable[Examples], num_examples: int) -> tuple[list[Examples], list[Examples]]:
    """The first groups that fit into so many examples, and all others, both in order."""
    fitting: list[Examples] = []
    others: list[Examples] = []
    for group in groups:
        fits = len(group) <= num_examples
        (fitting if fits else others).append(group)
        num_examples -= fits * len(group)
    return fitting, others


def _split(groups: Iterable[Examples]) -> Split:
    texts, labels = zip(*chain.from_iterable(groups))
    return Split(texts=texts, labels=labels)


def _in_hash_order(groups: Iterable[Examples], salt: str | None = "") -> list[Examples]:
    """Groups in the order of a hash of their first text; another `salt` is another hash."""
    start = "" if salt is None else f"{salt}\n"
    return sorted(groups, key=lambda g: hashlib.sha256(f"{start}{g[0][0]}".encode()).digest())


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


def middle_batch(data: Encoded, batch_size: int) -> dict[str, Tensor]:
    """A batch of examples of middle length, alike in length, so that it has hardly any padding."""
    batches = list(batches_by_length(data, batch_size))
    return data.batch(batches[len(batches) // 2])


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
