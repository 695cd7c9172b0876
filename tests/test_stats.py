"""Verdicts: right error rates under the null, the stated power, and agreement with references."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_rel

from madl.logbook import stats
from madl.logbook.stats import Outcomes


def two_models(rng, n, difference=0.0, discordant=0.1):
    """Correctness of two models with a given true difference and rate of disagreement."""
    u = rng.random(n)
    only_a, only_b = (discordant - difference) / 2, (discordant + difference) / 2
    both = rng.random(n) < 0.8
    a = np.where(u < only_a, True, np.where(u < only_a + only_b, False, both))
    b = np.where(u < only_a, False, np.where(u < only_a + only_b, True, both))
    return Outcomes(a, "x"), Outcomes(b, "x")


def methods(rng, seeds, n, effect=0.0, seed_sd=0.4, example_sd=2.0, interaction_sd=0.7):
    """Correctness of two methods: examples of different difficulty, seeds that differ as models."""
    difficulty = rng.normal(1.5, example_sd, n)
    results = []
    for shift in (0.0, effect):
        by_seed = rng.normal(shift, seed_sd, (seeds, 1))
        logits = difficulty + by_seed + rng.normal(0, interaction_sd, (seeds, n))
        correct = rng.random((seeds, n)) < 1 / (1 + np.exp(-logits))
        results.append([Outcomes(row, "x") for row in correct])
    return results


def false_positives(decide, repeats=1500):
    return sum(decide(np.random.default_rng(i)) for i in range(repeats)) / repeats


@pytest.mark.parametrize(("n", "discordant"), [(200, 0.05), (2000, 0.03), (2000, 0.1)])
def test_equal_models_are_called_different_in_at_most_5_percent(n, discordant):
    def decide(rng):
        a, b = two_models(rng, n, discordant=discordant)
        return stats.compare([a], [b]).decided

    assert false_positives(decide) <= stats.ALPHA


@pytest.mark.parametrize(("seeds", "seed_sd"), [(2, 0.4), (3, 0.05), (3, 0.4), (5, 0.0), (5, 0.4)])
def test_equal_methods_are_called_different_in_at_most_5_percent(seeds, seed_sd):
    def decide(rng):
        a, b = methods(rng, seeds, 400, seed_sd=seed_sd)
        return stats.compare(a, b).decided

    assert false_positives(decide) <= stats.ALPHA


def test_a_difference_between_methods_is_found_from_five_seeds():
    def decide(rng):
        a, b = methods(rng, 5, 2000, effect=0.6, seed_sd=0.1)
        return stats.compare(a, b).improves("").verdict == "supported"

    assert false_positives(decide, 200) > 0.9


def test_one_seed_says_nothing_about_a_method():
    """Seeds that differ as models make McNemar's test call equal methods different too often."""

    def decide(rng):
        a, b = methods(rng, 1, 2000, seed_sd=0.4)
        return stats.compare(a, b).decided

    assert false_positives(decide, 300) > 0.2


def test_a_difference_of_the_stated_size_is_found_with_the_stated_power():
    effect, discordant, n = 0.02, 0.06, 2000
    promised = stats.power(effect, discordant, n)
    found = false_positives(
        lambda rng: (
            stats.compare(*([o] for o in two_models(rng, n, effect, discordant)))
            .improves("b is better")
            .verdict
            == "supported"
        )
    )
    assert promised == pytest.approx(0.94, abs=0.02)
    assert found == pytest.approx(promised, abs=0.03)


def test_the_examples_said_to_be_needed_do_decide():
    effect, discordant = 0.01, 0.06
    text = stats._examples_needed(effect, discordant)
    needed = int(text.split()[1].replace(",", ""))
    assert stats.power(effect, discordant, needed) == pytest.approx(0.8, abs=0.03)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(120, 3000))
def test_the_interval_holds_the_effect_and_stays_in_bounds(only_a, only_b, n):
    low, high = stats.paired_interval(only_a, only_b, n)
    assert -1 <= low <= (only_b - only_a) / n <= high <= 1
    assert low < high


def test_the_interval_is_tangos():
    low, high = stats.paired_interval(2, 8, 30)
    for bound in (low, high):
        z = _tango_score(8, 2, 30, bound)
        assert abs(z) == pytest.approx(stats.Z, abs=1e-4)


def _tango_score(b, c, n, delta):
    """Slow reference: the restricted maximum likelihood found by search, not by formula."""
    grid = np.linspace(1e-9, (1 - abs(delta)) / 2 + 1e-9, 400_001)
    q = grid + max(-delta, 0)  # P(only A)
    p = q + delta  # P(only B)
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = b * np.log(p) + c * np.log(q) + (n - b - c) * np.log(1 - p - q)
    q = q[np.nanargmax(likelihood)]
    return (b - c - n * delta) / np.sqrt(n * (2 * q + delta - delta**2))


def test_interval_coverage_is_near_nominal():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        only_a, only_b, _rest = rng.multinomial(500, [0.03, 0.05, 0.92])
        low, high = stats.paired_interval(only_a, only_b, 500)
        covered += low <= 0.02 <= high
    assert covered / 1000 == pytest.approx(0.95, abs=0.02)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_test(only_a, only_b):
    expected = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert stats.mcnemar(only_a, only_b) == pytest.approx(expected)


def test_verdicts_name_the_direction():
    rng = np.random.default_rng(1)
    worse, better = two_models(rng, 4000, difference=0.05)
    assert stats.compare([worse], [better]).improves("").verdict == "supported"
    assert stats.compare([better], [worse]).improves("").verdict == "refuted"
    assert stats.compare([better], [worse]).degrades("").verdict == "supported"
    assert stats.compare([worse], [worse]).improves("").verdict == "undecided"


def test_within_needs_the_whole_interval_inside_the_margin():
    rng = np.random.default_rng(1)
    a, b = two_models(rng, 4000, difference=0.05)
    assert stats.compare([a], [b]).within(0.02, "").verdict == "refuted"
    assert stats.compare([a], [b]).within(0.2, "").verdict == "supported"
    assert stats.compare([a], [b]).within(0.05, "").verdict == "undecided"


def test_undecided_says_what_would_decide():
    rng = np.random.default_rng(3)
    a, b = two_models(rng, 300, difference=0.01)
    evidence = stats.compare([a], [b]).evidence
    assert "test examples would decide" in evidence.needed


def test_outcomes_on_other_examples_cannot_be_paired():
    a, b = Outcomes(np.ones(3, bool), "x"), Outcomes(np.ones(3, bool), "y")
    with pytest.raises(ValueError, match="different examples"):
        stats.compare([a], [b])
    with pytest.raises(ValueError, match="same seeds"):
        stats.compare([a], [a, a])


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_outcomes_survive_json(correct):
    outcomes = Outcomes(np.array(correct), "x")
    again = Outcomes.from_json(outcomes.to_json())
    assert again.correct.tolist() == correct
    assert again.n == len(correct)


def test_samples_that_change_batch_by_batch_widen_the_interval():
    """Five places in memory, each with its own ratio: resampling single samples hides them."""
    rng = np.random.default_rng(0)
    ratios = np.repeat([1.00, 1.10, 1.05, 0.98, 1.12], 20)
    fast = 1 + 0.001 * rng.standard_normal(100)
    low, high = stats.ratio_interval(list(fast * ratios), list(fast))
    shuffled = rng.permutation(100)
    narrow = stats.ratio_interval(list((fast * ratios)[shuffled]), list(fast[shuffled]))
    assert high - low > 1.5 * (narrow.high - narrow.low)
    assert low < 1.0 < high


def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        place = np.repeat(rng.normal(1.2, 0.03, 5), 4)  # the truth is 1.2, each batch is elsewhere
        slow, fast = place * (1 + 0.01 * rng.standard_normal(20)), np.ones(20)
        low, high = stats.ratio_interval(list(slow), list(fast), resamples=400)
        held += low <= 1.2 <= high
    assert held >= 180


def test_a_ratio_of_interleaved_samples_cancels_drift():
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 3, 60)
    slow, fast = drift * rng.normal(2, 0.02, 60), drift * rng.normal(1, 0.01, 60)
    result = stats.ratio(list(slow), list(fast))
    assert result.improves("").verdict == "supported"
    assert result.evidence.effect == pytest.approx(1.0, abs=0.15)


def test_the_same_timings_are_undecided():
    samples = list(np.random.default_rng(0).normal(1, 0.1, 40))
    assert stats.ratio(samples, samples).improves("").verdict == "undecided"


def test_times_taken_beside_other_work_decide_nothing():
    slow, fast = [2.0] * 20, [1.0] * 20
    assert stats.ratio(slow, fast, contention=0.1).improves("").verdict == "supported"
    for contended in (
        stats.ratio(slow, fast, contention=0.5).improves(""),
        stats.ratio(slow, slow, contention=0.5).within(0.05, ""),
    ):
        assert contended.verdict == "undecided"
        assert "50%" in contended.evidence.needed


def test_the_paired_mean_is_scipys_paired_t_test():
    rng = np.random.default_rng(0)
    a = rng.normal(0, 1, 300)
    b = a + rng.normal(0.1, 0.5, 300)
    found = stats.paired_mean(list(a), list(b), unit=stats.Unit.LOSS)
    expected = ttest_rel(b, a)
    assert found.evidence.p == pytest.approx(expected.pvalue)
    assert tuple(found.evidence.interval) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.improves("").verdict == "supported"


def test_a_claim_that_there_is_none_is_decided_by_a_single_one():
    assert stats.none_of(0, 7, "none").verdict == "supported"
    claim = stats.none_of(1, 8, "none")
    assert claim.verdict == "refuted"
    assert claim.evidence is not None
    assert claim.evidence.effect == 1 / 8


def test_seeds_that_all_gave_the_same_models_are_one_pair_of_models():
    right, wrong = (Outcomes(np.arange(50) < count, "x") for count in (40, 20))
    one, three = stats.compare([wrong], [right]), stats.compare([wrong] * 3, [right] * 3)
    assert three == one
    assert one.evidence.test == "exact McNemar"


def test_pairs_that_are_not_examples_are_named_in_what_would_decide():
    found = stats.paired_mean([0.1, 0.2], [0.2, 0.1], unit=stats.Unit.POINTS, of="studies")
    assert found.evidence.needed == "more studies"
