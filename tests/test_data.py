"""The split: fixed, disjoint in meaning, and independent of everything but the text."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from madl.errors import MadlError
from madl.training import data, workloads
from madl.training.examples import SAME_TEXT, Prepared, near_duplicates

letters = st.sampled_from([*"abcdefghij"])
words = st.lists(letters, min_size=1, max_size=8)
examples = st.lists(st.tuples(words.map(" ".join), st.integers(0, 1)), max_size=40)


@settings(max_examples=200)
@given(examples)
def test_grouping_equals_comparing_every_pair(examples):
    """The prefix filter must lose no pair that a quadratic search finds, and add none."""
    sets = [frozenset(text.split()) for text, _ in examples]
    grouped: list[set[int]] = []
    for i, a in enumerate(sets):
        near = {j for j, b in enumerate(sets[:i]) if len(a & b) >= SAME_TEXT * len(a | b)}
        joined = [group for group in grouped if group & near]
        grouped = [group for group in grouped if not group & near] + [{i}.union(*joined)]
    expected = [sorted(examples[i] for i in group) for group in grouped]
    assert sorted(map(sorted, near_duplicates(examples))) == sorted(expected)


def some_examples(count=10_000):
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(3000)]
    return [(" ".join(rng.choices(vocabulary, k=12)), rng.randrange(2)) for _ in range(count)]


@cache
def grouped(examples):
    return near_duplicates(examples)


def dealt(examples, seed, test=None):
    groups = None if test is None else grouped(tuple(test))
    return data.deal(Prepared(groups=grouped(tuple(examples)), test=groups), seed)


DEALS = (range(10, 15), range(15, 20))


def test_five_seeds_test_every_sentence_that_chooses_nothing_and_train_on_the_others():
    ours = some_examples()
    for seeds in DEALS:
        splits = [dealt(ours, seed) for seed in seeds]
        choosing = {texts for split in splits for texts in split.validation.texts}
        tested = [text for split in splits for text in split.test.texts]
        assert len(choosing) == len(splits[0].validation) == data.CHOOSING_EXAMPLES
        assert [len(split.test) for split in splits] == [1686] * 5  # 8,432 are left for five
        assert len(set(tested)) == len(tested) == len(ours) - len(choosing) - 2
        for split in splits:
            parts = [set(part.texts) for part in (split.train, split.validation, split.test)]
            assert sum(map(len, parts)) == len(set.union(*parts)) == len(ours)
    one, other = (dealt(ours, seeds[0]) for seeds in DEALS)
    assert one.validation == other.validation
    assert set(one.test.texts) != set(other.test.texts)


def test_a_deal_depends_on_the_text_alone_and_keeps_near_duplicates_on_one_side():
    ours = some_examples(2000)
    shuffled = ours[:]
    random.Random(1).shuffle(shuffled)
    assert dealt(ours, 10) == dealt(shuffled, 10)
    twins = [(text + " again", label) for text, label in ours]
    for seed in (10, 13, 16):
        split = dealt(ours + twins, seed)
        parts = [
            {text.removesuffix(" again") for text in part.texts}
            for part in (split.train, split.validation, split.test)
        ]
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_test_split_is_dealt_into_folds_and_never_trained_on():
    ours, official = some_examples(12_000)[:2000], some_examples(12_000)[2000:]
    splits = [dealt(ours, seed, official) for seed in DEALS[0]]
    assert [len(split.test) for split in splits] == [data.FOLD_EXAMPLES] * 5
    tested = {text for split in splits for text in split.test.texts}
    assert len(tested) == 9000
    assert tested < {text for text, _ in official}
    texts = {text for text, _ in ours}
    assert all({*s.train.texts, *s.validation.texts} == texts for s in splits)
    assert splits[0].train.texts != splits[1].train.texts  # in another order
    assert len(splits[0].validation) == 2000 // 6


@pytest.mark.parametrize("size", [40, 300])
def test_texts_that_are_nearly_one_are_trained_on_where_no_fold_has_room(size):
    ours = some_examples(1000)
    template = " ".join(f"same{i}" for i in range(20))
    copies = [(f"{template} x{i}", i % 2) for i in range(size)]
    for seed in DEALS[0][::4]:
        split = dealt(ours + copies, seed)
        assert len(split.test) > 100
        held = [len({*part.texts} & {t for t, _ in copies}) for part in (split.train, split.test)]
        assert sorted(held) in ([0, size], [0, 0])


def test_a_folder_keeps_its_test_split_and_a_changed_one_is_another_workload(
    tiny_dataset, tmp_path
):
    loaded = data.load_dataset(str(tiny_dataset), 10)
    assert len(loaded.test) == 320 // 5
    assert 380 < len(loaded.train) + len(loaded.validation) < 400  # some are in test, or nearly
    assert not set(loaded.validation.texts) & set(loaded.train.texts)
    assert set(loaded.test.labels) == {0, 1}
    (tmp_path / "config.json").write_text("1")
    before = workloads.Workload(model=str(tmp_path), dataset="d").params()["model"]
    assert workloads.unpin(before) == str(tmp_path)
    (tmp_path / "config.json").write_text("2")
    with pytest.raises(MadlError, match="has changed"):
        workloads.unpin(before)


def encoded(lengths):
    return data.Encoded(token_ids=[[7] * n for n in lengths], labels=[0] * len(lengths), pad_id=0)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 9))
def test_every_example_is_in_exactly_one_batch(lengths, batch_size, seed):
    everything = list(range(len(lengths)))
    shuffled = data.shuffled_batches(encoded(lengths), batch_size, seed)
    assert sorted(i for batch in shuffled for i in batch) == everything
    sorted_batches = list(data.batches_by_length(encoded(lengths), batch_size))
    assert sorted(i for batch in sorted_batches for i in batch) == everything


def test_a_batch_is_padded_to_its_own_longest_and_masked():
    batch = encoded([3, 1]).batch([0, 1])
    assert batch["input_ids"].tolist() == [[7, 7, 7], [7, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
