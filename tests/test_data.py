"""The split: fixed, disjoint in meaning, and independent of everything but the text."""

import random

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
    """The prefix filter must lose no pair that a quadratic search finds."""
    groups = near_duplicates(examples)
    group_of = {id(e): i for i, group in enumerate(groups) for e in group}
    sets = [frozenset(text.split()) for text, _ in examples]
    for i, a in enumerate(sets):
        for j, b in enumerate(sets[:i]):
            if len(a & b) >= SAME_TEXT * len(a | b):
                assert group_of[id(examples[i])] == group_of[id(examples[j])]
    assert sorted(e for group in groups for e in group) == sorted(examples)


def some_examples(count=10_000):
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(3000)]
    return [(" ".join(rng.choices(vocabulary, k=12)), rng.randrange(2)) for _ in range(count)]


def dealt(examples, draw=None):
    return data.deal(Prepared(groups=near_duplicates(examples)), draw)


def test_the_split_depends_on_the_text_alone_and_no_duplicate_or_draw_touches_test():
    ours = some_examples()
    shuffled = ours[:]
    random.Random(1).shuffle(shuffled)
    first, second = dealt(ours), dealt(shuffled)
    assert first.test == second.test
    assert len(first.test) >= data.TEST_EXAMPLES
    assert len(first.validation) >= data.VALIDATION_EXAMPLES
    one, other = (dealt(ours, draw) for draw in (10, 11))
    assert first.test == one.test == other.test
    assert set(one.validation.texts) != set(other.validation.texts)
    for made in (first, one, other):
        parts = [set(part.texts) for part in (made.train, made.validation, made.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == len(ours)
    twins = [(text + " again", label) for text, label in some_examples()]
    split = dealt(some_examples() + twins)
    test, train = set(split.test.texts), set(split.train.texts)
    assert not {f"{text} again" for text in test} & train
    assert not {text.removesuffix(" again") for text in test} & train


def test_a_folder_keeps_its_test_split_and_a_changed_one_is_another_workload(
    tiny_dataset, tmp_path
):
    loaded = data.load_dataset(str(tiny_dataset))
    assert len(loaded.test) == 120
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
