"""Verdicts: right error rates under the null, the stated power, and agreement with references."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm, ttest_1samp, ttest_rel

from madl.errors import MadlError
from madl.logbook import stats
from madl.logbook.claims import contrast
from madl.logbook.stats import Estimate, Interval, Outcomes, Unit


def verdict(comparison, question=lambda one: one) -> str:
    """What a claim alone on its page would say of this comparison: by default, that A is better."""
    judged = question(contrast(comparison, [])).judge(supported="s", refuted="r", undecided="u")
    if judged.p > stats.ALPHA:
        return "undecided"
    return "supported" if judged.agrees else "refuted"


def decided(comparison) -> bool:
    return verdict(comparison) != "undecided"


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
        return decided(stats.compare([a], [b]))

    assert false_positives(decide) <= stats.ALPHA


@pytest.mark.parametrize(("seeds", "seed_sd"), [(2, 0.4), (3, 0.05), (3, 0.4), (5, 0.0), (5, 0.4)])
def test_equal_methods_are_called_different_in_at_most_5_percent(seeds, seed_sd):
    def decide(rng):
        a, b = methods(rng, seeds, 400, seed_sd=seed_sd)
        return decided(stats.compare(a, b))

    assert false_positives(decide) <= stats.ALPHA


def test_a_difference_between_methods_is_found_from_five_seeds():
    def decide(rng):
        a, b = methods(rng, 5, 2000, effect=0.6, seed_sd=0.1)
        return verdict(stats.compare(b, a)) == "supported"

    assert false_positives(decide, 200) > 0.9


def test_one_seed_says_nothing_about_a_method():
    """Seeds that differ as models make McNemar's test call equal methods different too often."""

    def decide(rng):
        a, b = methods(rng, 1, 2000, seed_sd=0.4)
        return decided(stats.compare(a, b))

    assert false_positives(decide, 300) > 0.2


def power(effect, discordant, n):
    """Chance that McNemar's exact test decides a true difference of this size, on n examples."""
    total = 0.0
    for m in range(int(binom.ppf(1e-6, n, discordant)), int(binom.isf(1e-6, n, discordant)) + 1):
        reject = int(binom.ppf(stats.ALPHA / 2, m, 0.5))
        while reject >= 0 and 2 * binom.cdf(reject, m, 0.5) > stats.ALPHA:
            reject -= 1
        towards = (discordant + effect) / (2 * discordant)
        tails = binom.cdf(reject, m, towards) + binom.sf(m - reject - 1, m, towards)
        total += float(binom.pmf(m, n, discordant)) * float(tails)
    return total


def test_a_difference_of_a_given_size_is_found_as_often_as_the_exact_test_can():
    effect, discordant, n = 0.02, 0.06, 2000
    found = false_positives(
        lambda rng: (
            verdict(stats.compare(*([o] for o in two_models(rng, n, effect, discordant)[::-1])))
            == "supported"
        )
    )
    assert found == pytest.approx(power(effect, discordant, n), abs=0.03)


def test_the_examples_said_to_be_needed_do_decide():
    effect, discordant, n = 0.01, 0.06, 2000
    right = np.zeros(n, bool)
    a, b = right.copy(), right.copy()
    a[: round(n * (discordant + effect) / 2)] = True
    b[-round(n * (discordant - effect) / 2) :] = True
    text = stats.compare([Outcomes(a, "x")], [Outcomes(b, "x")]).needs(effect, stats.ALPHA)
    needed = int(text.split()[1].replace(",", ""))
    assert power(effect, discordant, needed) == pytest.approx(0.8, abs=0.03)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(120, 3000))
def test_the_interval_holds_the_effect_and_stays_in_bounds(only_a, only_b, n):
    low, high = stats.paired_interval(only_a, only_b, n)
    assert -1 <= low <= (only_a - only_b) / n <= high <= 1
    assert low < high


def test_the_interval_is_tangos():
    low, high = stats.paired_interval(8, 2, 30)
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
        low, high = stats.paired_interval(only_b, only_a, 500)
        covered += low <= 0.02 <= high
    assert covered / 1000 == pytest.approx(0.95, abs=0.02)


@given(st.integers(0, 200), st.integers(0, 200))
def test_zero_is_tested_by_mcnemars_exact_test_and_the_interval_agrees(only_a, only_b):
    total = only_a + only_b
    exact = binomtest(only_a, total).pvalue if total else 1.0
    score = 2 * norm.sf(abs(only_a - only_b) / total**0.5) if total else 1.0
    tails = stats.paired_tails(only_a, only_b, 1000, 0.0)
    assert min(1.0, 2 * min(tails)) == pytest.approx(max(exact, score))


def test_verdicts_name_the_direction():
    rng = np.random.default_rng(1)
    worse, better = two_models(rng, 4000, difference=0.05)
    assert verdict(stats.compare([better], [worse])) == "supported"
    assert verdict(stats.compare([worse], [better])) == "refuted"
    assert verdict(stats.compare([worse], [worse])) == "undecided"


def test_a_margin_is_asked_about_on_both_sides():
    rng = np.random.default_rng(1)
    worse, better = two_models(rng, 4000, difference=0.05)
    for comparison, margin, within, no_worse in (
        (stats.compare([worse], [better]), 0.02, "refuted", "refuted"),
        (stats.compare([worse], [better]), 0.20, "supported", "supported"),
        (stats.compare([better], [worse]), 0.02, "refuted", "supported"),
        (stats.compare([worse], [better]), 0.05, "undecided", "undecided"),
    ):
        assert verdict(comparison, lambda one, m=margin: one.within(m)) == within
        assert verdict(comparison, lambda one, m=margin: one.no_worse(m)) == no_worse


@pytest.mark.parametrize("question", ["within", "no_worse"])
def test_two_sides_on_the_margin_are_called_close_in_at_most_5_percent(question):
    def decide(rng):
        worse, better = two_models(rng, 2000, difference=0.03)
        made = stats.compare([worse], [better])
        return verdict(made, lambda one: getattr(one, question)(0.03)) == "supported"

    assert false_positives(decide, 800) <= stats.ALPHA + 0.01


def test_undecided_says_what_would_decide_and_with_which_power():
    rng = np.random.default_rng(3)
    a, b = two_models(rng, 300, difference=0.01)
    needed = stats.compare([a], [b]).needs(0.01, stats.ALPHA)
    assert needed.endswith(f"test examples would decide an effect of this size{stats.WITH_POWER}")


@pytest.mark.parametrize("n", [3, 4, 6])
@pytest.mark.parametrize("level", [stats.ALPHA, stats.ALPHA / 8])
def test_the_units_said_to_be_needed_for_a_t_test_decide_and_one_less_does_not(n, level):
    """Drawn again, so many units with this effect and scatter are decided in 80 % of cases."""
    values = np.linspace(-1.0, 1.0, n) + 0.5
    made = stats.mean(list(values), unit=Unit.TIMES, drawn="processes")
    needed = int(made.needs(made.effect, level).split()[1])
    sd, rng = float(values.std(ddof=1)), np.random.default_rng(0)

    def power(units: int) -> float:
        drawn = rng.normal(made.effect, sd, (4000, units))
        return float((ttest_1samp(drawn, 0.0, axis=1).pvalue <= level).mean())

    assert needed > n
    assert power(needed) > 0.78
    assert needed == n + 1 or power(needed - 1) < 0.82


@pytest.mark.parametrize("level", [stats.ALPHA, stats.ALPHA / 5])
def test_the_seeds_said_to_be_needed_allow_for_a_scatter_known_from_few(level):
    """On so many examples that the seeds alone scatter, as many as a t test over seeds needs."""
    won, n = (300, 180, 120), 2000
    pairs = [(Outcomes(np.arange(n) < w, "x"), Outcomes(np.zeros(n, bool), "x")) for w in won]
    made = stats.compare(*zip(*pairs, strict=True))
    needed = int(made.needs(made.effect, level).split()[1])
    drawn = np.random.default_rng(0).normal(made.effect, np.std(won, ddof=1) / n, (4000, needed))
    power = float((ttest_1samp(drawn, 0.0, axis=1).pvalue <= level).mean())
    assert 0.75 < power < 0.9


def test_where_the_examples_are_too_few_it_says_how_many_more_it_would_take():
    rng = np.random.default_rng(5)
    a, b = (np.array([rng.random(400) < 0.5] * 2) for _ in range(2))
    a[1, :3] ^= True  # two models that are all but one
    sides = ([Outcomes(row, "x") for row in side] for side in (a, b))
    made = stats.compare(*sides)
    assert "times as many examples" in made.needs(0.03, stats.ALPHA)
    assert made.needs(1e-6, stats.ALPHA).startswith("no affordable number")


def test_more_units_are_needed_beside_more_claims_and_never_as_few_as_did_not_decide():
    made = stats.mean([0.9, 1.0, 1.1], unit=Unit.TIMES, drawn="processes")
    few, many = (int(made.needs(1.0, stats.ALPHA / k).split()[1]) for k in (1, 1000))
    assert 3 < few < many


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
    assert again._correct.tolist() == correct
    assert again.n == len(correct)


@pytest.mark.parametrize("bits", ["", "AAAA", "!"])
def test_bits_that_are_no_outcomes_are_refused(bits):
    with pytest.raises(ValueError, match=r"outcomes|padding|base64|alphabet"):
        Outcomes.from_json({"n": 4, "bits": bits, "examples": "x"})


def test_samples_that_change_part_by_part_widen_the_interval():
    """Five places in memory, each with its own ratio: neighbouring samples are no new units."""
    rng = np.random.default_rng(0)
    ratios = np.repeat([1.00, 1.10, 1.05, 0.98, 1.12], 20)
    fast = 1 + 0.001 * rng.standard_normal(100)
    low, high = quiet([list(fast * ratios)], [list(fast)]).interval
    shuffled = rng.permutation(100)
    narrow = quiet([list((fast * ratios)[shuffled])], [list(fast[shuffled])]).interval
    assert high - low > 1.5 * (narrow.high - narrow.low)
    assert low < 0.0 < high


def quiet(baseline, candidate):
    return stats.ratio(baseline, candidate, contention=0.0)


@pytest.mark.parametrize("processes", [1, 5])
def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says(processes):
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        place = np.repeat(rng.normal(np.log(1.2), 0.03, 5), 4)  # each part is elsewhere
        slow, fast = np.exp(place) * (1 + 0.01 * rng.standard_normal(20)), np.ones(20)
        samples = [list(part) for part in np.split(slow, processes)]
        low, high = quiet(samples, [list(part) for part in np.split(fast, processes)]).interval
        held += low <= np.log(1.2) <= high
    assert held >= 275


def test_a_ratio_of_interleaved_samples_cancels_drift():
    rng = np.random.default_rng(0)
    drift = np.linspace(1, 3, 60)
    slow, fast = drift * rng.normal(2, 0.02, 60), drift * rng.normal(1, 0.01, 60)
    made = quiet([list(slow)], [list(fast)])
    assert verdict(made) == "supported"
    assert np.exp(made.effect) == pytest.approx(2.0, abs=0.15)


def test_the_same_timings_are_undecided():
    samples = list(np.random.default_rng(0).normal(1, 0.1, 40))
    assert verdict(quiet([samples], [samples])) == "undecided"


@pytest.mark.parametrize(("contention", "says"), [(0.5, "50 %"), (None, "unknown")])
def test_times_taken_beside_other_work_or_nobody_knows_what_decide_nothing(contention, says):
    rng = np.random.default_rng(0)
    fast = list(1 + 0.01 * rng.standard_normal(20))
    slow = [2 * sample for sample in rng.permutation(fast)]
    assert verdict(stats.ratio([slow], [fast], contention=0.1)) == "supported"
    blocked = stats.ratio([slow], [fast], contention=contention)
    assert verdict(blocked) == "undecided"
    assert verdict(blocked, lambda one: one.within(0.05)) == "undecided"
    judged = contrast(blocked, []).judge(supported="s", refuted="r", undecided="u")
    assert says in judged.needs(stats.ALPHA)


def test_the_paired_mean_is_scipys_paired_t_test():
    rng = np.random.default_rng(0)
    a = rng.normal(0, 1, 300)
    b = a + rng.normal(0.1, 0.5, 300)
    found = stats.paired_mean(list(b), list(a), unit=Unit.NATS, drawn="test examples of 1 model")
    expected = ttest_rel(b, a)
    assert 2 * min(found.tails(0.0)) == pytest.approx(expected.pvalue)
    assert tuple(found.interval) == pytest.approx(tuple(expected.confidence_interval()))
    assert verdict(found) == "supported"


def test_units_that_all_agree_decide():
    """A constant difference is no reason for p = 1."""
    found = stats.paired_mean([1.0, 2.0, 3.0], [0.5, 1.5, 2.5], unit=Unit.NATS, drawn="studies")
    assert verdict(found) == "supported"


def test_seeds_that_all_gave_the_same_models_are_one_pair_of_models():
    right, wrong = (Outcomes(np.arange(50) < count, "x") for count in (40, 20))
    one, three = stats.compare([right], [wrong]), stats.compare([right] * 3, [wrong] * 3)
    assert (three.effect, three.drawn, three.test) == (one.effect, one.drawn, one.test)
    assert one.test == "exact McNemar"


def some(*correct: int) -> list[Outcomes]:
    """Models of a hundred examples, of which the first so many are right."""
    return [Outcomes(np.arange(100) < count, "x") for count in correct]


def test_a_group_s_models_are_averaged_within_it():
    a, b = [some(80, 60), some(70, 70)], [some(60, 60), some(60, 40)]
    made = stats.compare_groups(a, b, of="trained models")
    assert made.effect == pytest.approx(0.15)  # 10 and 20 points
    assert made.drawn == "2 trained models × 100 test examples"
    assert made.test == "models × examples, both random"
    assert "models" in made.needs(0.2, stats.ALPHA)


def test_groups_of_one_are_compared_as_seeds_are_and_carry_their_own_name():
    rng = np.random.default_rng(0)
    a, b = methods(rng, 4, 200, effect=1.0)
    seeds = stats.compare(a, b)
    made = stats.compare_groups([[x] for x in a], [[y] for y in b], of="shapes of 1 model")
    assert (made.effect, made.error) == (seeds.effect, seeds.error)
    assert made.interval == seeds.interval
    assert made.drawn == "4 shapes of 1 model × 200 test examples"
    assert "seed" not in made.test + made.needs(0.3, stats.ALPHA)


def test_groups_of_the_same_models_have_no_interval_of_width_zero():
    same = [some(80), some(70)]
    made = stats.compare_groups(same, same, of="studies of 1 model")
    assert made.effect == 0
    assert made.interval.low < 0 < made.interval.high


def test_groups_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="the same two or more studies"):
        stats.compare_groups([some(80, 70), some(60)], [some(80), some(60)], of="studies")
    other = [Outcomes(np.ones(100, bool), "y")]
    with pytest.raises(ValueError, match="different examples"):
        stats.compare_groups([some(80), some(60)], [other, other], of="studies")


def test_pairs_that_are_not_examples_are_named_in_what_would_decide():
    found = stats.paired_mean([0.1, 0.3], [0.2, 0.1], unit=Unit.POINTS, drawn="studies of 1 model")
    assert found.drawn == "2 studies of 1 model"
    assert "studies of 1 model would decide" in found.needs(0.05, stats.ALPHA)


def test_holm_multiplies_by_what_is_left_and_never_falls():
    adjusted = stats.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert stats.holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_only_raises(p_values):
    named = {str(i): p for i, p in enumerate(p_values)}
    adjusted = stats.holm(named)
    assert all(p <= adjusted[name] <= 1 for name, p in named.items())
    ordered = sorted(named, key=lambda name: named[name])
    assert [adjusted[n] for n in ordered] == sorted(adjusted[n] for n in ordered)


def test_an_estimate_is_printed_and_chooses_nothing():
    estimate = Estimate(0.8215, Interval(0.80, 0.84), Unit.PERCENT, 2000)
    assert f"{estimate}" == "82.2 %" or f"{estimate}" == "82.1 %"
    assert f"{estimate:i}".endswith("% [80.0, 84.0]")
    assert f"{Estimate(-0.012, None, Unit.POINTS, 9):+}" == "−1.2 points"
    assert f"{Estimate(np.log(1.5), None, Unit.TIMES, 9)}" == "1.5 ×"
    for choose in (
        lambda: max(estimate, estimate),
        lambda: estimate > 0.8,
        lambda: float(estimate),
        lambda: estimate + estimate,
        lambda: sorted([estimate, estimate]),
        lambda: estimate == estimate,
        lambda: round(estimate, 2),
        lambda: {estimate: 1},
        lambda: bool(estimate),
    ):
        with pytest.raises(TypeError, match="a test value chooses nothing"):
            choose()


def test_an_unknown_unit_is_one_clear_line():
    with pytest.raises(MadlError, match="unknown unit 'furlongs'; known: points, %"):
        Unit("furlongs")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (64, "64"),
        (1024, "1,024"),
        (3.14159, "3.14"),
        (-0.5, "−0.5"),
        (1234.5, "1,230"),
        (758859782.0, "759,000,000"),
        (0.000123, "0.000123"),
        (20.6, "20.6"),
        (99.96, "100"),
        (999.6, "1,000"),
        (-1e-9, "0"),
    ],
)
def test_numbers_have_three_significant_digits_and_counts_are_counts(value, shown):
    assert stats.number(value) == shown


def test_a_value_and_its_interval_have_the_same_decimals():
    assert stats.numbers([1.5, 1.43, 1.57]) == ["1.50", "1.43", "1.57"]


@given(st.integers(0, 50), st.integers(1, 50))
def test_the_interval_of_an_accuracy_is_wilsons(successes, more):
    n = successes + more
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert tuple(stats.wilson(successes / n, n)) == pytest.approx(tuple(expected), abs=1e-12)


def test_a_power_is_shown_raised():
    assert f"10{stats.superscript(-12)}" == "10⁻¹²"
