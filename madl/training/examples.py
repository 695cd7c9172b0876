"""Labelled texts, made of the tables that users bring, and a sentence for every change.

A text is kept once, with a label that is 0 or 1, and on one side: what is in the test split, or
nearly, is not trained on. What cannot be used is left out and counted; what cannot be learnt from
is refused.

Source: duplicates by prefix filtering, Chaudhuri et al. 2006, "A primitive operator for similarity
joins in data cleaning", ICDE.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from madl.logbook.shapes import shown
from madl.logbook.values import pluralize
from madl.training import outside
from madl.training.tables import Table
from madl.training.workloads import TEXTS

Examples = list[tuple[str, int]]

SHARED = 3  # rare words that two texts must share to be compared; any number gives the same groups
SAME_TEXT = 0.8  # Jaccard similarity of word sets from which two texts count as one


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Examples ready to be dealt to splits, and a sentence for each change that was made of them.

    A group is near-duplicates, which have to stay on one side. `groups` are to choose by and to
    train on, and to test, too, if `test` is None.
    """

    groups: Sequence[Examples]
    test: Sequence[Examples] | None = None
    changes: tuple[str, ...] = ()


def prepare(source: object, tables: Mapping[str, Table]) -> Prepared:
    """The examples in the tables of a data set, by split: `train`, `validation`, `test`, or "".

    `source` is its name in errors.

    Raises:
        MadlError: there is nothing to learn or to judge by.
    """
    changes: list[str] = []
    columns = next(iter(tables.values())).columns
    if (columns.text, columns.label) != ("text", "label"):
        changes.append(f"texts are its column {columns.text}, labels its column {columns.label}")
    labelled = _labelled(source, tables, changes)
    meaning = _meaning(source, labelled, changes)
    splits = {
        split: _distinct([(text, meaning[label]) for text, label in rows], split, changes)
        for split, rows in labelled.items()
    }
    judging = next((split for split in ("test", "validation") if split in splits), None)
    test = splits.pop(judging) if judging else None
    if judging == "validation":
        changes.append(f"its validation split, {len(test or ()):,} texts, is the test split")
    elif "validation" in splits and "train" in splits:
        many = pluralize(len(splits["validation"]), "text")
        changes.append(f"the {many} of its validation split are dealt with those of train")
    pool = _distinct([*chain.from_iterable(splits.values())], "", changes)
    if test is None:
        changes.append("it has no test split, so each seed tests some of its texts")
    groups, judged = _apart(pool, test or [], changes)
    parts = Prepared(groups=groups, test=None if test is None else judged, changes=tuple(changes))
    _check(source, parts)
    return parts


def _labelled(
    source: object, tables: Mapping[str, Table], changes: list[str]
) -> dict[str, list[tuple[str, object]]]:
    """Split → its rows (text, label) that have both; a split without any label is left out."""
    missing = _missing_labels(tables.values())
    labelled: dict[str, list[tuple[str, object]]] = {}
    for split, table in tables.items():
        named = f" in {split}" if split else ""
        rows = [
            (text, label)
            for text, label in zip(table.texts, table.labels)
            if label not in missing and label == label  # not a NaN
        ]
        if not rows:
            changes.append(f"its split {split} has no labels and is not used")
            continue
        if without := len(table.texts) - len(rows):
            changes.append(f"{pluralize(without, 'text')} without a label left out{named}")
        texts = [(text, label) for text, label in rows if isinstance(text, str) and text.strip()]
        if empty := len(rows) - len(texts):
            changes.append(f"{pluralize(empty, 'empty text')} left out{named}")
        labelled[split] = texts
    if not any(split != "test" and rows for split, rows in labelled.items()):
        raise outside.no_data(source, "no text to train on has a label")
    return labelled


def _missing_labels(tables: Iterable[Table]) -> set[object]:
    """The values that stand for no label: None, "", and −1 if there are two other labels."""
    labels = {label for table in tables for label in table.labels}
    return {None, "", *({-1} if len(labels - {None, "", -1}) > 1 else ())}


def _meaning(
    source: object, labelled: Mapping[str, Iterable[tuple[str, object]]], changes: list[str]
) -> dict[object, int]:
    """Label → 0 or 1, in the order of the labels.

    Raises:
        MadlError: there are not two of them.
    """
    counts = Counter(label for rows in labelled.values() for _, label in rows)
    listed = ", ".join(f"{shown(label)} ({many:,})" for label, many in counts.most_common(5))
    listed += ", …" if len(counts) > 5 else ""
    if any(isinstance(label, float) and not label.is_integer() for label in counts):
        raise outside.no_data(
            source, f"its labels are numbers such as {listed}, and two classes are needed"
        )
    if len(counts) == 1:
        raise outside.no_data(source, f"all labels are {listed}, so there is nothing to learn")
    if len(counts) != 2:
        raise outside.no_data(source, f"it has {len(counts)} classes, {listed}; two are needed")
    try:
        ordered: list[object] = sorted(counts)  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        raise outside.no_data(source, f"its labels are of several kinds: {listed}") from error
    if ordered != [0, 1]:  # False and 0.0 are equal to 0
        changes.append(f"labels {shown(ordered[0])} → 0, {shown(ordered[1])} → 1")
    return {label: place for place, label in enumerate(ordered)}


def _distinct(examples: Examples, split: str, changes: list[str]) -> Examples:
    """Every text once; a text with both labels is left out."""
    named = f" in {split}" if split else ""
    labels: defaultdict[str, set[int]] = defaultdict(set)
    for text, label in examples:
        labels[text].add(label)
    clear = {text: label for text, label in examples if len(labels[text]) == 1}
    if both := sum(len(kinds) == 2 for kinds in labels.values()):
        changes.append(f"{pluralize(both, 'text')} with both labels left out{named}")
    if copies := len(examples) - len(labels):
        changes.append(f"{pluralize(copies, 'repeated text')} left out{named}")
    return list(clear.items())


def _apart(
    pool: Examples, test: Examples, changes: list[str]
) -> tuple[list[Examples], list[Examples]]:
    """The groups of near-duplicates in `pool`, and those in `test`; none is in both.

    A text of the pool that is in a group of the test split is left out.
    """
    judged = {text for text, _ in test}
    groups: list[Examples] = []
    test_groups: list[Examples] = []
    for group in near_duplicates([*test, *pool]):
        if of_test := [example for example in group if example[0] in judged]:
            test_groups.append(of_test)
        else:
            groups.append(group)
    if leaked := len(pool) - sum(map(len, groups)):
        changes.append(
            f"{pluralize(leaked, 'text')} to train on left out: in the test split too, or nearly"
        )
    return groups, test_groups


def _check(source: object, parts: Prepared) -> None:
    """Raise MadlError if there is too little to train on, to choose by or to judge."""
    for purpose, groups in (("train on", parts.groups), ("test", parts.test)):
        if groups is None:
            continue
        labels = [label for group in groups for _, label in group]
        largest = max(map(len, groups), default=0)
        if len(labels) >= TEXTS and largest > len(labels) / 2:
            raise outside.no_data(
                source,
                f"{largest:,} of its {len(labels):,} texts to {purpose} share {SAME_TEXT:.0%} of "
                "their words, which makes them one text, and that cannot be on two sides",
            )
        if len(groups) < TEXTS:
            many = pluralize(len(groups), "different text")
            raise outside.no_data(source, f"it has {many} to {purpose}, and {TEXTS} are the fewest")
        if len(classes := set(labels)) < 2:
            raise outside.no_data(source, f"all texts to {purpose} have one label, {classes.pop()}")


def near_duplicates(examples: Examples) -> list[Examples]:
    """Groups of near-duplicates, by order: connected components of `Jaccard(words) >= SAME_TEXT`.

    Two sets that similar share at least `SHARED` words among the few rarest of each (the prefix),
    so only texts that do are compared: exact, and far from quadratic.
    """
    words = [frozenset(re.findall(r"\w+", text.lower())) for text, _ in examples]
    frequency = Counter(chain.from_iterable(words))
    leader = list(range(len(examples)))

    def find(i: int) -> int:
        """The first example of the group that example i is in so far."""
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    by_word: dict[str, list[int]] = defaultdict(list)
    needed = [min(SHARED, math.ceil(SAME_TEXT * len(text))) for text in words]
    for i, text in enumerate(words):
        rarest = sorted(text, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(text) - math.ceil(SAME_TEXT * len(text)) + needed[i]]
        shared = Counter(chain.from_iterable(by_word[word] for word in prefix))
        for j, count in shared.items():
            if count < needed[i] and count < needed[j]:
                continue
            if len(text & words[j]) >= SAME_TEXT * len(text | words[j]):
                a, b = sorted((find(i), find(j)))
                leader[b] = a
        for word in prefix:
            by_word[word].append(i)

    groups: dict[int, Examples] = defaultdict(list)
    for i, example in enumerate(examples):
        groups[find(i)].append(example)
    return list(groups.values())
