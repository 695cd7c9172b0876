"""Sentences with a sentiment label: load, split once and for all, encode, batch by length.

Groups of near-duplicates are ordered by a hash of their text and dealt to test, then validation,
then training; a `draw` deals what is not test in another order. A group stays on one side, so no
test sentence has a twin in training. Validation chooses; test is only ever reported.

Shapes: a batch holds input_ids and attention_mask (B, T) with T its own longest sentence.
Source: the default data, Hutto & Gilbert 2014, "VADER", ICWSM; duplicates by prefix filtering,
Chaudhuri et al. 2006, "A primitive operator for similarity joins in data cleaning", ICDE.
"""

import hashlib
import logging
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from madl import assets
from madl.errors import MadlError
from madl.training import outside
from madl.training.outside import Examples
from madl.training.workloads import unpin

log = logging.getLogger(__name__)

TEST_EXAMPLES = 2000
VALIDATION_EXAMPLES = 500
SHARED = 3  # rare words that must agree before two texts are compared; any number is exact
SAME_TEXT = 0.8  # Jaccard similarity of word sets from which two sentences count as one text


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


def load_dataset(name: str, draw: int | None = None) -> Dataset:
    """A preset, a folder in the hub's layout, or a hub id with columns `text` and `label`.

    `draw` names another choice of validation and training sentences; test is always the same.

    Raises:
        MadlError: no network, or not such a data set.
    """
    if name == "movie-snippets":
        examples = _read_snippets(assets.fetch(name) / "movieReviewSnippets_GroundTruth.txt")
        return _split(examples, draw)
    source = unpin(name)
    if Path(source).is_dir():
        return _split_official(*outside.read_parquet(Path(source)), draw)
    return _split_official(*_load_from_hub(source), draw)


def _read_snippets(path: Path) -> Examples:
    """Lines `id, mean rating, text`; positive is a rating above 0, exactly 0 is dropped."""
    rows = [line.split("\t", 2) for line in path.read_text("utf-8").splitlines()]
    return [(text, int(float(rating) > 0)) for _, rating, text in rows if float(rating) != 0]


def _load_from_hub(name: str) -> tuple[Examples, Examples]:
    import datasets
    from datasets import config
    from huggingface_hub import constants

    datasets.disable_progress_bars()
    outside.prepare_hub()
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE
    try:
        loaded: Any = datasets.load_dataset(name)  # untyped library
        train, test = (
            list(zip(map(str, loaded[part]["text"]), map(int, loaded[part]["label"])))
            for part in ("train", "test")
        )
    except KeyError as error:
        raise MadlError(
            f"data set {name} has no {error}; needed: splits train and test, columns text and label"
        ) from error
    except Exception as error:  # the library raises a dozen kinds, all of them about the source
        raise MadlError(
            f"cannot load data set {name} ({type(error).__name__}: {str(error).splitlines()[0]}); "
            "check the name and the network, or give a folder with --dataset"
        ) from error
    return train, test


def _split(examples: Examples, draw: int | None) -> Dataset:
    groups = _in_hash_order(_group_near_duplicates(examples))
    sizes = accumulate(map(len, groups))
    is_test = sum(size - len(group) < TEST_EXAMPLES for size, group in zip(sizes, groups))
    groups = [*groups[:is_test], *_in_hash_order(groups[is_test:], draw)]
    parts: dict[str, Examples] = {"test": [], "validation": [], "train": []}
    quota = {"test": TEST_EXAMPLES, "validation": VALIDATION_EXAMPLES, "train": math.inf}
    for group in groups:
        part = next(name for name, size in quota.items() if len(parts[name]) < size)
        parts[part] += group
    return Dataset(**{name: _as_split(part) for name, part in parts.items()})


def _split_official(train: Examples, test: Examples, draw: int | None) -> Dataset:
    """Keep the authors' test set; cut validation from train, never larger than a tenth of it."""
    groups = _in_hash_order(_group_near_duplicates(train), draw)
    size = min(VALIDATION_EXAMPLES, len(train) // 10)
    validation: Examples = []
    while len(validation) < size:
        validation += groups.pop(0)
    rest = [example for group in groups for example in group]
    ordered_test = [example for group in _in_hash_order([[e] for e in test]) for example in group]
    return Dataset(
        train=_as_split(rest), validation=_as_split(validation), test=_as_split(ordered_test)
    )


def _as_split(examples: Examples) -> Split:
    return Split(texts=[text for text, _ in examples], labels=[label for _, label in examples])


def _in_hash_order(groups: list[Examples], draw: int | None = None) -> list[Examples]:
    salt = "" if draw is None else f"{draw}\n"
    return sorted(groups, key=lambda g: hashlib.sha256(f"{salt}{g[0][0]}".encode()).digest())


def _group_near_duplicates(examples: Examples) -> list[Examples]:
    """Connected components of `Jaccard(words) >= SAME_TEXT`; the first one names the group.

    Two sets that similar share at least `SHARED` words among the few rarest of each (the prefix),
    so only texts that do are compared: exact, and far from quadratic.
    """
    words = [frozenset(re.findall(r"\w+", text.lower())) for text, _ in examples]
    frequency = Counter(word for one in words for word in one)
    leader = list(range(len(examples)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    by_word: dict[str, list[int]] = defaultdict(list)
    needed = [min(SHARED, math.ceil(SAME_TEXT * len(one))) for one in words]
    for i, one in enumerate(words):
        rarest = sorted(one, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(one) - math.ceil(SAME_TEXT * len(one)) + needed[i]]
        shared = Counter(chain.from_iterable(by_word[word] for word in prefix))
        for j, count in shared.items():
            if count < min(needed[i], needed[j]):
                continue
            if len(one & words[j]) >= SAME_TEXT * len(one | words[j]):
                a, b = sorted((find(i), find(j)))
                leader[b] = a
        for word in prefix:
            by_word[word].append(i)

    groups: dict[int, Examples] = defaultdict(list)
    for i, example in enumerate(examples):
        groups[find(i)].append(example)
    return list(groups.values())


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
